"""Recipes of operators that move, select and reduce elements, and of products."""

from __future__ import annotations

import numpy as np

from .graph import ALL, BOOL, F16, F32, F64, FLOATS, I8, I32, I64, MOST_ELEMENTS, NUMBERS, U8, Graph, Skip, Value
from .recipes import WIDE, recipe

# Shapes


@recipe("Shape", "Size", weight=0.5)
def shape_of(g: Graph, op):
    x = g.pick(ALL)
    options = {}
    if op == "Shape" and g.opset >= 15 and g.random.random() < 0.5:
        options = {"start": g.random.randint(-2, 2), "end": g.random.randint(-1, 4)}
    return g.add(op, [x], exact=True, **options)


def factorise(g: Graph, count: int, rank: int) -> list[int]:
    """Sizes whose product is `count`."""
    sizes = []
    for _ in range(rank - 1):
        if count == 0:
            sizes.append(g.random.choice([0, 2]))
            continue
        divisors = [d for d in range(1, count + 1) if count % d == 0][:24]
        sizes.append(g.random.choice(divisors))
        count //= sizes[-1]
    sizes.append(count)
    g.random.shuffle(sizes)
    return sizes


@recipe("Reshape", weight=6)
def reshape(g: Graph):
    x = g.pick(ALL)
    how = g.random.random()
    if how < 0.3 and x.rank >= 2:  # joins or splits neighbouring dimensions
        at = g.random.randrange(x.rank - 1)
        shape = [*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :]]
    elif how < 0.6 and x.rank >= 1:
        at = g.random.randrange(x.rank)
        shape = [*x.shape[:at], *factorise(g, x.shape[at], 2), *x.shape[at + 1 :]]
    elif x.array.size == 1 and how < 0.7:
        shape = []
    else:
        shape = factorise(g, x.array.size, g.random.randint(1, 4))
    allow = {}
    if 0 in shape:
        if g.opset < 14:
            raise Skip("0 keeps")
        allow = {"allowzero": 1}
    elif shape and g.random.random() < 0.4:
        shape[g.random.randrange(len(shape))] = -1
    elif shape and x.rank and shape[0] == x.shape[0] and g.random.random() < 0.4:
        shape[0] = 0
    return g.add("Reshape", [x, g.constant(shape)], exact=True, **allow)


@recipe("ReshapeOfShape", weight=1.5)
def reshape_of_shape(g: Graph):
    """The nodes that exporters write for x.reshape(x.shape[0], -1, n)."""
    x = g.pick(FLOATS, range(2, 5), lambda v: 0 not in v.shape)
    shape = g.add("Shape", [x], exact=True)
    first = g.add("Gather", [shape, g.constant(0)], exact=True, axis=0)
    first = g.add("Unsqueeze", [first, g.constant([0])], exact=True)
    last = g.constant([g.random.choice([d for d in range(1, x.shape[-1] + 1) if x.shape[-1] % d == 0])])
    joined = g.add("Concat", [first, g.constant([-1]), last], exact=True, axis=0)
    return g.add("Reshape", [x, joined], exact=True)


@recipe("Flatten")
def flatten(g: Graph):
    x = g.pick(NUMBERS)
    return g.add("Flatten", [x], exact=True, axis=g.random.randint(-x.rank, x.rank))


@recipe("Squeeze")
def squeeze(g: Graph):
    x = g.pick(ALL, range(1, 6), lambda v: 1 in v.shape)
    ones = [i for i, d in enumerate(x.shape) if d == 1]
    axes = g.random.sample(ones, g.random.randint(1, len(ones)))
    return g.add("Squeeze", [x, g.constant(axes) if g.random.random() < 0.8 else None], exact=True)


@recipe("Unsqueeze")
def unsqueeze(g: Graph):
    x = g.pick(ALL, range(5))
    count = g.random.choice([1, 1, 2])
    axes = g.random.sample(range(x.rank + count), count)
    axes = [a - x.rank - count if g.random.random() < 0.3 else a for a in axes]
    return g.add("Unsqueeze", [x, g.constant(axes)], exact=True)


@recipe("Transpose", weight=3)
def transpose(g: Graph):
    x = g.pick(ALL, range(1, 6))
    perm = g.random.sample(range(x.rank), x.rank)
    return g.add("Transpose", [x], exact=True, **({"perm": perm} if g.random.random() < 0.9 else {}))


@recipe("Expand")
def expand(g: Graph):
    x = g.pick(ALL, range(4))
    shape = [g.size() if d == 1 else g.random.choice([d, 1]) for d in x.shape]
    shape = [g.size() for _ in range(g.random.choice([0, 0, 1]))] + shape
    if g.random.random() < 0.3:
        shape = shape[len(shape) // 2 :]
    return g.add("Expand", [x, g.constant(shape)], exact=True)


@recipe("Tile")
def tile(g: Graph):
    x = g.pick(ALL, range(5))
    return g.add("Tile", [x, g.constant([g.random.choice([1, 1, 2, 3]) for _ in x.shape])], exact=True)


@recipe("Concat", weight=3)
def concat(g: Graph):
    x = g.pick(ALL, range(1, 5))
    axis = g.axis(x.rank)
    operands = [x]
    for _ in range(g.random.choice([0, 1, 1, 1, 2, 3])):
        same = [
            v
            for v in g.values
            if v.dtype == x.dtype
            and v.rank == x.rank
            and all(i == axis % x.rank or a == b for i, (a, b) in enumerate(zip(v.shape, x.shape)))
        ]
        if same and g.random.random() < 0.7:
            operands.append(g.random.choice(same))
        else:
            shape = list(x.shape)
            shape[axis] = g.size()
            operands.append(g.source(x.dtype, shape))
    g.random.shuffle(operands)
    return g.add("Concat", operands, exact=True, axis=axis)


@recipe("Split", weight=2)
def split(g: Graph):
    x = g.pick(ALL, range(1, 5))
    axis = g.axis(x.rank)
    size, count = x.shape[axis], g.random.choice([2, 2, 3])
    if g.random.random() < 0.5:
        cuts = sorted(g.random.randint(0, size) for _ in range(count - 1))
        parts = [b - a for a, b in zip([0, *cuts], [*cuts, size])]
        return g.add("Split", [x, g.constant(parts)], count, exact=True, axis=axis)
    if g.opset >= 18:
        if (count - 1) * -(-size // count) > size:
            raise Skip("too many parts")
        return g.add("Split", [x], count, exact=True, axis=axis, num_outputs=count)
    if size % count:
        raise Skip("uneven")
    return g.add("Split", [x], count, exact=True, axis=axis)


@recipe("SpaceToDepth")
def space_to_depth(g: Graph):
    shape = (g.palette[0], g.random.randint(1, 3), 2 * g.random.randint(1, 3), 2 * g.random.randint(1, 3))
    fits = lambda v: v.shape[2] % 2 == 0 and v.shape[3] % 2 == 0 and v.shape[0] * v.shape[1] > 0  # noqa: E731
    try:
        x = g.pick(FLOATS, [4], fits)
    except Skip:
        x = g.source(F32, shape)
    return g.add("SpaceToDepth", [x], exact=True, blocksize=2)


@recipe("DepthToSpace")
def depth_to_space(g: Graph):
    try:
        x = g.pick(FLOATS, [4], lambda v: v.shape[1] % 4 == 0 and v.shape[1] > 0)
    except Skip:
        x = g.source(F32, (g.palette[0], 4 * g.random.randint(1, 2), g.random.randint(1, 4), g.random.randint(1, 4)))
    return g.add(
        "DepthToSpace",
        [x],
        exact=True,
        blocksize=2,
        **({"mode": g.random.choice(["DCR", "CRD"])} if g.random.random() < 0.7 else {}),
    )


# Selection and indexing


@recipe("Slice", weight=3)
def slice_(g: Graph):
    x = g.pick(ALL, range(1, 5))
    axes = g.random.sample(range(x.rank), g.random.randint(1, x.rank))
    starts, ends, steps = [], [], []
    for axis in axes:
        n = x.shape[axis]
        step = g.random.choice([1, 1, 1, 2, 3, -1, -2])
        a, b = sorted(g.random.randint(0, n) for _ in range(2))
        if g.random.random() < 0.25:
            b = g.random.choice([1 << 31, (1 << 63) - 1])
        if step < 0:
            a, b = (b if b <= n else n) - 1, a - 1
            b = -n - 1 if b < 0 else b
        elif g.random.random() < 0.3 and a < n:
            a -= n
        starts.append(a), ends.append(b), steps.append(step)
    given = [g.constant(starts), g.constant(ends)]
    all_axes = axes == list(range(len(axes)))
    whole = all(s == 1 for s in steps)
    given.append(
        None
        if all_axes and g.random.random() < 0.3
        else g.constant([a - x.rank if g.random.random() < 0.3 else a for a in axes])
    )
    given.append(None if whole and g.random.random() < 0.5 else g.constant(steps))
    return g.add("Slice", [x, *given], exact=True)


@recipe("Gather", weight=2)
def gather(g: Graph):
    x = g.pick(ALL, range(1, 5))
    axis = g.axis(x.rank)
    return g.add("Gather", [x, g.indices(g.shape((0, 1, 1, 2)), x.shape[axis])], exact=True, axis=axis)


@recipe("GatherElements")
def gather_elements(g: Graph):
    x = g.pick(ALL, range(1, 5))
    axis = g.axis(x.rank)
    shape = [
        g.size() if i == axis % x.rank else g.random.randint(min(1, d), d) if g.random.random() < 0.4 else d
        for i, d in enumerate(x.shape)
    ]
    return g.add("GatherElements", [x, g.indices(shape, x.shape[axis])], exact=True, axis=axis)


def tuples(g: Graph, sizes, shape, unique=False) -> Value:
    """Index tuples into dimensions of `sizes`."""
    if 0 in sizes:
        raise Skip("nothing to index")
    count = int(np.prod(shape, dtype=np.int64))
    if unique:
        total = int(np.prod(sizes))
        if count > total:
            raise Skip("too few places")
        flat = np.asarray(g.random.sample(range(total), count), np.int64)
    else:
        flat = g.numbers.integers(0, int(np.prod(sizes)), count)
    array = np.stack(np.unravel_index(flat, sizes), -1).reshape(*shape, len(sizes)).astype(np.int64)
    if g.random.random() < 0.3:
        array -= np.asarray(sizes) * (g.numbers.random(array.shape) < 0.5)
    return g.source(I64, array.shape, array=array)


@recipe("GatherND")
def gather_nd(g: Graph):
    x = g.pick(ALL, range(1, 5))
    batch = g.random.choice([0, 0, 1]) if x.rank > 1 else 0
    depth = g.random.randint(1, x.rank - batch)
    shape = [*x.shape[:batch], *g.shape((0, 1, 2) if not batch else (1, 1, 2))]
    return g.add("GatherND", [x, tuples(g, x.shape[batch : batch + depth], shape)], exact=True, batch_dims=batch)


def reduction(g: Graph) -> str:
    if g.opset < 16:
        return "none"
    return g.random.choice(["none", "none", "add", "mul"] + (["max", "min"] if g.opset >= 18 else []))


@recipe("ScatterElements")
def scatter_elements(g: Graph):
    x = g.pick(FLOATS + WIDE, range(1, 4), lambda v: v.array.size > 0)
    axis = g.axis(x.rank)
    how = reduction(g)
    size = x.shape[axis]
    shape = [
        g.random.randint(1, d) if i == axis % x.rank or g.random.random() < 0.3 else d for i, d in enumerate(x.shape)
    ]
    if how == "none":
        rows = np.moveaxis(np.empty(shape), axis, -1)
        places = np.stack([g.numbers.permutation(size)[: shape[axis]] for _ in range(rows[..., 0].size)])
        array = np.moveaxis(places.reshape(rows.shape), -1, axis)
        indices = g.source(g.random.choice(WIDE), shape, array=array.astype(np.int64))
        if g.random.random() < 0.5:
            indices = g.source(
                I64, shape, array=np.where(g.numbers.random(shape) < 0.5, array, array - size).astype(np.int64)
            )
    else:
        indices = g.indices(shape, size)
    return g.add(
        "ScatterElements",
        [x, indices, g.pick([x.dtype], shape=shape)],
        exact=how in ("none", "max", "min") or x.dtype.kind != "f",
        axis=axis,
        **({"reduction": how} if how != "none" else {}),
    )


@recipe("ScatterND")
def scatter_nd(g: Graph):
    x = g.pick(FLOATS + WIDE, range(1, 5), lambda v: v.array.size > 0)
    how = reduction(g)
    depth = g.random.randint(1, x.rank)
    shape = g.shape((1, 1, 2))
    indices = tuples(g, x.shape[:depth], shape, unique=how == "none")
    updates = g.pick([x.dtype], shape=(*shape, *x.shape[depth:]))
    return g.add(
        "ScatterND",
        [x, indices, updates],
        exact=how in ("none", "max", "min") or x.dtype.kind != "f",
        **({"reduction": how} if how != "none" else {}),
    )


@recipe("TensorScatter", since=24)
def tensor_scatter(g: Graph):
    batch, heads, length, width = g.size() or 1, g.random.randint(1, 3), g.random.randint(2, 8), g.random.randint(1, 4)
    cache = g.source(g.dtype((F32, F16)), (batch, heads, length, width))
    steps = g.random.randint(1, length)
    mode = g.random.choice(["linear", "circular"])
    last = length - steps if mode == "linear" else length - 1
    start = g.source(I64, (batch,), 0, last) if g.random.random() < 0.7 else None
    return g.add(
        "TensorScatter",
        [cache, g.pick([cache.dtype], shape=(batch, heads, steps, width)), start],
        exact=True,
        mode=mode,
    )


@recipe("OneHot")
def one_hot(g: Graph):
    indices = g.indices(g.shape((1, 1, 2)), 6, (I64,))
    values = g.source(g.dtype((F32, I64)), (2,))
    axis = g.random.randint(-indices.rank - 1, indices.rank)
    return g.add(
        "OneHot",
        [indices, g.constant(g.random.randint(2, 7)), values],
        exact=True,
        **({"axis": axis} if g.random.random() < 0.7 else {}),
    )


@recipe("Pad", weight=2)
def pad(g: Graph):
    x = g.pick(FLOATS + WIDE, range(1, 5), lambda v: v.array.size > 0)
    mode = g.random.choice(["constant", "constant", "reflect", "edge"] + (["wrap"] if g.opset >= 19 else []))
    axes = None
    if g.opset >= 18 and g.random.random() < 0.4:
        axes = g.random.sample(range(x.rank), g.random.randint(1, x.rank))
    dims = [x.shape[a] for a in axes or range(x.rank)]
    low = [
        0
        if g.random.random() < 0.4
        else g.random.randint(
            -1 if mode == "constant" and d > 2 else 0, 2 if mode in ("constant", "edge") else min(2, d - 1)
        )
        for d in dims * 2
    ]
    fill = None
    if mode == "constant" and g.random.random() < 0.6 or axes:
        fill = g.source(x.dtype, (), kind="initializer")
    given = [g.constant(low), fill] + ([g.constant(axes)] if axes else [])
    return g.add("Pad", [x, *given], exact=True, mode=mode)


@recipe("Trilu", since=14)
def trilu(g: Graph):
    x = g.pick(FLOATS + WIDE + (BOOL,), range(2, 5))
    k = g.constant(g.random.randint(-3, 3)) if g.random.random() < 0.6 else None
    return g.add("Trilu", [x, k], exact=True, **({"upper": g.random.choice([0, 1])} if g.random.random() < 0.8 else {}))


@recipe("CenterCropPad", since=18)
def center_crop_pad(g: Graph):
    x = g.pick(FLOATS + WIDE, range(1, 5), lambda v: v.array.size > 0)
    axes = g.random.sample(range(x.rank), g.random.randint(1, x.rank))
    return g.add("CenterCropPad", [x, g.constant([g.random.randint(1, 9) for _ in axes])], exact=True, axes=axes)


@recipe("Compress")
def compress(g: Graph):
    x = g.pick(ALL, range(1, 4))
    axis = g.axis(x.rank) if g.random.random() < 0.8 else None
    size = x.array.size if axis is None else x.shape[axis]
    condition = g.constant([g.random.random() < 0.6 for _ in range(min(size, 40))], bool)
    return g.add("Compress", [x, condition], exact=True, **({} if axis is None else {"axis": axis}))


@recipe("NonZero", weight=0.5)
def non_zero(g: Graph):
    dtype = g.random.choice((I64, BOOL))
    return g.add("NonZero", [g.constant(g.numbers.random(g.shape((1, 2))) < 0.5, dtype)], exact=True)


@recipe("NonZeroOfData", "CompressOfData", "Unique", weight=0.4)
def selected_by_data(g: Graph, op):
    """Selects from values computed at run time. The results' length depends on data, so they become outputs."""
    if op == "NonZeroOfData":
        return g.end([g.add("NonZero", [g.pick((I64, BOOL), range(1, 4), lambda v: v.kind != "initializer")], exact=True)])
    if op == "CompressOfData":
        x = g.pick(ALL, range(1, 4), lambda v: v.array.size > 0)
        axis = g.axis(x.rank)
        condition = g.source(BOOL, (x.shape[axis],), kind="input")
        return g.end([g.add("Compress", [x, condition], exact=True, axis=axis)])
    x = g.source(g.random.choice((I64, F32)), (g.size() or 1,), -2, 2, kind="input")
    return g.end(g.add("Unique", [x], 4, exact=True, sorted=g.random.choice([0, 1])))


@recipe("NonMaxSuppression", weight=0.3)
def non_max_suppression(g: Graph):
    batch, classes, n = g.random.randint(1, 2), g.random.randint(1, 3), g.random.randint(1, 12)
    corner, size = g.numbers.uniform(0, 4, (batch, n, 2)), g.numbers.uniform(0.5, 3, (batch, n, 2))
    boxes = g.source(F32, (batch, n, 4), kind="input", array=np.concatenate([corner, corner + size], -1).astype(F32))
    # Scores far from each other and from the threshold, so that rounding does not matter.
    ranks = g.numbers.permutation(batch * classes * n).reshape(batch, classes, n)
    scores = g.source(F32, ranks.shape, kind="input", array=((ranks + 0.5) / ranks.size).astype(F32))
    given = [g.constant(g.random.randint(1, n)), g.constant(0.4, np.float32)]
    given += [g.constant(g.random.choice([0.25, 0.5]), np.float32)] if g.random.random() < 0.5 else []
    return g.end([g.add("NonMaxSuppression", [boxes, scores, *given], exact=True, center_point_box=g.random.choice([0, 1]))])


@recipe("ReverseSequence")
def reverse_sequence(g: Graph):
    x = g.pick(FLOATS + WIDE, range(2, 5), lambda v: v.array.size > 0)
    batch = g.random.choice([0, 1])
    lengths = g.source(I64, (x.shape[batch],), 1, x.shape[1 - batch])
    return g.add("ReverseSequence", [x, lengths], exact=True, batch_axis=batch, time_axis=1 - batch)


def order_axis(g: Graph, x: Value) -> int:
    """Draws an axis along which no rounding changes the order of elements. The few noisy values do not show all such changes."""
    axis = g.axis(x.rank)
    if x.shape[axis] < 2:
        return axis
    with np.errstate(all="ignore"):
        error = 4 * np.max([np.where(n == x.array, 0, np.abs(n.astype(np.float64) - x.array)) for n in x.noisy], axis=0)
        order = np.argsort(x.array, axis)
        gaps = np.diff(np.take_along_axis(x.array.astype(np.float64), order, axis), axis=axis)
        error = np.take_along_axis(error, order, axis)
        error = np.delete(error, 0, axis) + np.delete(error, -1, axis)
    if np.any((gaps < error) | np.isnan(error)):
        raise Skip("an order hangs on a rounding")
    return axis


@recipe("ArgMax", "ArgMin")
def arg_reduce(g: Graph, op):
    x = g.pick(FLOATS + (I32, I8, U8), range(1, 5), lambda v: v.array.size > 0)
    options = {
        k: v
        for k, v in {"keepdims": g.random.choice([0, 1]), "select_last_index": g.random.choice([0, 1])}.items()
        if g.random.random() < 0.7
    }
    return g.add(op, [x], exact=True, axis=order_axis(g, x), **options)


@recipe("Hardmax")
def hardmax(g: Graph):
    x = g.pick(FLOATS, range(1, 5), lambda v: v.array.size > 0)
    return g.add("Hardmax", [x], exact=True, axis=order_axis(g, x))


@recipe("TopK")
def top_k(g: Graph):
    x = g.pick(
        FLOATS + WIDE, range(1, 4), lambda v: len(np.unique(v.array)) == v.array.size
    )  # no ties: their order is not defined
    axis = order_axis(g, x)
    count = g.random.randint(1 if x.shape[axis] else 0, x.shape[axis])
    return g.add("TopK", [x, g.constant([count])], 2, exact=True, axis=axis, largest=g.random.choice([0, 1]))


@recipe("CumSum")
def cum_sum(g: Graph):
    x = g.pick((F32, F64, I32, I64), range(1, 5))
    options = {k: g.random.choice([0, 1]) for k in ("exclusive", "reverse") if g.random.random() < 0.6}
    return g.add("CumSum", [x, g.constant(g.axis(x.rank))], exact=x.dtype.kind != "f", **options)


# Reductions


def reduction_axes(g: Graph, x: Value, op: str):
    options = {"keepdims": g.random.choice([0, 1])} if g.random.random() < 0.8 else {}
    if g.random.random() < 0.2:
        axes = None
        if (op == "ReduceSum" or g.opset >= 18) and g.random.random() < 0.3:
            options["noop_with_empty_axes"] = 1
    else:
        axes = (
            [
                a - x.rank if g.random.random() < 0.4 else a
                for a in g.random.sample(range(x.rank), g.random.randint(1, x.rank))
            ]
            if x.rank
            else None
        )
    if axes is None:
        return [], options
    if op == "ReduceSum" or g.opset >= 18:
        return [g.constant(axes)], options
    return [], {"axes": axes, **options}


@recipe(*("Reduce" + s for s in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()), weight=0.8)
def reduce(g: Graph, op):
    dtypes = FLOATS + WIDE if op not in ("ReduceLogSum", "ReduceLogSumExp", "ReduceL2", "ReduceMean") else FLOATS
    if op in ("ReduceMax", "ReduceMin"):
        dtypes += (I8, U8) + ((BOOL,) if g.opset >= 20 else ())
    x = g.pick(dtypes, range(0, 5))
    if x.array.size == 0:
        raise Skip("ONNX Runtime's shape is wrong")
    if op == "ReduceLogSum":
        x = g.tame(x, 0.05, 100)
    if op == "ReduceProd":
        x = g.tame(x, -2, 2) if x.dtype.kind != "u" else x
    axes, options = reduction_axes(g, x, op)
    exact = op in ("ReduceMax", "ReduceMin") or x.dtype.kind != "f"
    return g.add(op, [x, *axes], exact=exact, **options)


@recipe("Softmax", "LogSoftmax", weight=1.5)
def softmax(g: Graph, op):
    x = g.pick(FLOATS, range(1, 5))
    return g.add(op, [x], **({"axis": g.axis(x.rank)} if g.random.random() < 0.7 else {}))


# Products


@recipe("MatMul", weight=6)
def matmul(g: Graph):
    x = g.pick(FLOATS if g.random.random() < 0.9 else WIDE, range(1, 5))
    inner = x.shape[-1]
    if inner == 0:
        raise Skip("ONNX Runtime leaves f16 results of no terms as they are")
    how = g.random.random()
    if how < 0.15:
        shape = (inner,)
    elif how < 0.7 or x.rank < 3:
        shape = (inner, g.size())
    else:
        outer = [g.random.choice([d, 1]) for d in x.shape[:-2]]
        shape = (*outer[g.random.randint(0, len(outer)) :], inner, g.size())
    y = g.pick([x.dtype], shape=shape)
    if g.random.random() < 0.25 and y.rank >= 2 and x.rank >= 2:  # the weight on the left
        return g.add(
            "MatMul",
            [
                g.add("Transpose", [y], exact=True, perm=[*range(y.rank - 2), y.rank - 1, y.rank - 2]),
                g.pick([x.dtype], shape=(inner, g.size())),
            ],
            exact=x.dtype.kind != "f",
        )
    return g.add("MatMul", [x, y], exact=x.dtype.kind != "f")


@recipe("Gemm", weight=2)
def gemm(g: Graph):
    x = g.pick(FLOATS, [2])
    options = {
        k: v
        for k, v in {
            "transA": g.random.choice([0, 1]),
            "transB": g.random.choice([0, 1]),
            "alpha": 0.5,
            "beta": 2.0,
        }.items()
        if g.random.random() < 0.4
    }
    rows, inner = x.shape[:: -1 if options.get("transA") else 1]
    if inner == 0:
        raise Skip("ONNX Runtime forgets beta")
    columns = g.size()
    y = g.pick([x.dtype], shape=(columns, inner) if options.get("transB") else (inner, columns))
    c = None
    if g.random.random() < 0.7:
        c = g.pick([x.dtype], shape=g.random.choice([(columns,), (1, columns), (rows, 1), (rows, columns), (1,), ()]))
    return g.add("Gemm", [x, y, c], **options)


@recipe("Einsum", weight=1.5)
def einsum(g: Graph):
    forms = [
        "ij,jk->ik",
        "bij,bjk->bik",
        "bhqd,bhkd->bhqk",
        "ij->ji",
        "ij->",
        "bi,bj->bij",
        "bij,jk->bik",
        "...ij,...jk->...ik",
        "i,i->",
        "bij->bj",
        "ij,jk,kl->il",
        "bsd,hde->bhse",
        "bij,bij->bi",
        "ii->i",
        "ii",
        "...ii->...i",
        "bii,bij->bj",
        "iji->ij",
    ]
    form = g.random.choice(forms)
    x = None
    sizes = {label: g.size() for label in "abcdefghijklmnopqrstuvwxyz"}
    operands, terms = [], form.split("->")[0].split(",")
    dots = g.shape((0, 1, 2))
    dtype = g.dtype(FLOATS)
    for term in terms:
        shape = [*(dots if "..." in term else ()), *(sizes[label] for label in term.replace("...", ""))]
        if not 0 < np.prod(shape, dtype=np.int64) <= MOST_ELEMENTS:
            raise Skip("large, or of no terms")
        x = g.pick([dtype], shape=shape, fresh=0.3)
        operands.append(x)
    return g.add("Einsum", operands, equation=form)


@recipe("Det", weight=0.5)
def det(g: Graph):
    n = g.random.randint(1, 4)
    try:
        x = g.pick(
            (F32, F64), range(2, 5), lambda v: v.shape[-1] == v.shape[-2] and 0 < v.shape[-1] <= 4 and v.array.size > 0
        )
    except Skip:
        x = g.source(g.dtype((F32, F64)), (*g.shape((0, 1)), n, n))
    return g.add("Det", [x])
