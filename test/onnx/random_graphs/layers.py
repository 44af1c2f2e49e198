"""Recipes for layers: normalisations, convolutions, pooling, resizing, attention, recurrence, quantization and control flow."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from .graph import BOOL, F16, F32, F64, FLOATS, I8, I32, I64, U8, Graph, Skip, Value
from .recipes import recipe


def some(g: Graph, **options):
    """Picks each attribute with a probability of 0.6."""
    return {k: v for k, v in options.items() if g.random.random() < 0.6}


def image(g: Graph, dtypes=(F32,), spatial=(1, 2, 2, 2, 3), least: int = 3) -> Value:
    """A value of shape [n, c, ...] with spatial dimensions of at least `least`."""
    rank = 2 + g.random.choice(spatial)
    try:
        return g.pick(dtypes, [rank], lambda v: all(d >= least for d in v.shape[2:]) and v.shape[0] * v.shape[1] > 0)
    except Skip:
        shape = [max(1, min(g.palette[0], 8)), g.random.choice([1, 2, 3, 4, 6])]
        return g.source(
            g.dtype(dtypes), [*shape, *(g.random.randint(least, 8 if rank < 5 else 5) for _ in range(rank - 2))]
        )


def batch_size(g: Graph, most=6) -> int:
    """The graph's usual first dimension, clamped to 1 .. `most`."""
    return max(1, min(g.palette[0], most))


def parameter(g: Graph, dtype, shape, low=None, high=None) -> Value:
    """Mostly a weight, sometimes an input or an existing value."""
    if low is None and g.random.random() < 0.1:
        return g.pick([dtype], shape=shape)
    return g.source(dtype, shape, low, high, kind=g.random.choices(["initializer", "input"], [4, 1])[0])


# Normalisations


@recipe("BatchNormalization")
def batch_normalization(g: Graph):
    x = image(g, FLOATS, (0, 1, 2, 2), least=1)
    c = x.shape[1]
    numbers = [parameter(g, x.dtype, (c,)) for _ in range(3)]
    return g.add("BatchNormalization", [x, *numbers, parameter(g, x.dtype, (c,), 0.3, 2)], **some(g, epsilon=0.01))


@recipe("InstanceNormalization")
def instance_normalization(g: Graph):
    x = image(g, (F32,), least=2)
    return g.add("InstanceNormalization", [x, *(parameter(g, x.dtype, x.shape[1:2]) for _ in range(2))], epsilon=0.01)


@recipe("GroupNormalization", since=18)
def group_normalization(g: Graph):
    x = image(g, (F32, F16), least=2)
    groups = g.random.choice([d for d in range(1, x.shape[1] + 1) if x.shape[1] % d == 0])
    shape = (groups,) if g.opset < 21 else x.shape[1:2]
    numbers = [parameter(g, x.dtype, shape) for _ in range(2)]
    return g.add("GroupNormalization", [x, *numbers], num_groups=groups, epsilon=0.01)


@recipe("LayerNormalization", since=17, weight=2)
def layer_normalization(g: Graph):
    x = g.pick((F32, F64, F16), range(1, 5), lambda v: v.shape[-1] > 2 and v.array.size > 0)
    axis = g.random.choice([-1, -1, -1, -2, 0])
    if -axis > x.rank:
        axis = -1
    shape = x.shape[axis:]
    bias = parameter(g, x.dtype, shape) if g.random.random() < 0.7 else None
    outputs = [True, True, True] if g.random.random() < 0.1 and x.dtype == F32 else 1
    return g.add("LayerNormalization", [x, parameter(g, x.dtype, shape), bias], outputs, axis=axis, epsilon=0.01)


@recipe("RMSNormalization", since=23)
def rms_normalization(g: Graph):
    x = g.pick((F32, F16), range(1, 5), lambda v: v.array.size > 0)
    axis = g.random.choice([-1, -1, -2]) if x.rank > 1 else -1
    return g.add("RMSNormalization", [x, parameter(g, x.dtype, x.shape[axis:])], axis=axis, epsilon=0.01)


@recipe("LpNormalization")
def lp_normalization(g: Graph):
    x = g.pick((F32, F64), range(1, 5), lambda v: v.array.size > 0)
    return g.add("LpNormalization", [x], axis=g.axis(x.rank), p=g.random.choice([1, 2]))


@recipe("MeanVarianceNormalization", weight=0.5)
def mean_variance_normalization(g: Graph):
    x = g.pick((F32,), range(2, 5), lambda v: v.array.size > 0 and v.shape[-1] > 2)
    axes = sorted(g.random.sample(range(x.rank), g.random.randint(1, x.rank)))
    if np.std(x.array, axis=tuple(axes)).min() < 0.1:
        raise Skip("too even")
    return g.add("MeanVarianceNormalization", [x], axes=axes)


@recipe("LRN")
def lrn(g: Graph):
    return g.add(
        "LRN",
        [image(g, (F32,), (2,), least=1)],
        size=g.random.choice([1, 3, 5]),
        **some(g, alpha=0.01, beta=0.5, bias=2.0),
    )


# Losses


@recipe("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", weight=0.7)
def loss(g: Graph, op):
    classes = g.random.randint(2, 6)
    shape = (max(1, min(g.palette[0], 8)), *g.shape((0, 0, 1)))
    x = g.pick([F32], shape=(shape[0], classes, *shape[1:]))
    labels = g.source(g.random.choice([I64, I32]), shape, 0, classes - 1)
    weights = parameter(g, F32, (classes,), 0.2, 2) if g.random.random() < 0.5 else None
    options = {"reduction": g.random.choice(["none", "sum", "mean"])}
    if g.random.random() < 0.4 and len(np.unique(labels.array)) > 1:  # some are not ignored
        options["ignore_index"] = int(labels.array.flat[0])
    outputs = [True, True] if op == "SoftmaxCrossEntropyLoss" and g.random.random() < 0.4 else 1
    return g.add(op, [x, labels, weights], outputs, **options)


# Windows


def window(g: Graph, x: Value, dilations=True, least=1, padded=True) -> dict:
    """Attributes of a window that fits into x."""
    kernel, pads_low, pads_high, strides, dilated = [], [], [], [], []
    for size in x.shape[2:]:
        k = g.random.randint(least, min(3, size))
        d = g.random.choice([1, 1, 2]) if dilations and (k - 1) * 2 < size else 1
        kernel.append(k), dilated.append(d)
        strides.append(g.random.choice([1, 1, 2, 3]))
        most = min(1, k - 1) if padded else 0
        pads_low.append(g.random.randint(0, most)), pads_high.append(g.random.randint(0, most))
    options = {"kernel_shape": kernel}
    if g.random.random() < 0.7:
        options["strides"] = strides
    if dilations and g.random.random() < 0.4:
        options["dilations"] = dilated
    how = g.random.random()
    if how < 0.5:
        options["pads"] = pads_low + pads_high
    elif how < 0.7 and "dilations" not in options:
        options["auto_pad"] = g.random.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
        if "strides" in options:  # ONNX Runtime's padding is negative where windows leave gaps
            options["strides"] = [min(stride, k) for stride, k in zip(strides, kernel)]
    return options


@recipe("Conv", weight=3)
def conv(g: Graph):
    x = image(g, (F32, F32, F64, F16))
    options = window(g, x)
    groups = g.random.choice([1, 1, 1] + [d for d in (2, 3, x.shape[1]) if x.shape[1] % d == 0])
    out = groups * g.random.randint(1, 4)
    w = parameter(g, x.dtype, (out, x.shape[1] // groups, *options["kernel_shape"]), -0.7, 0.7)
    b = parameter(g, x.dtype, (out,)) if g.random.random() < 0.6 else None
    return g.add("Conv", [x, w, b], **options, **({"group": groups} if groups > 1 else {}))


@recipe("ConvTranspose")
def conv_transpose(g: Graph):
    x = image(g, (F32,), (1, 2, 2), least=2)
    kernel = [g.random.randint(1, 3) for _ in x.shape[2:]]
    strides = [g.random.choice([1, 2]) for _ in kernel]
    options = {"kernel_shape": kernel, **some(g, strides=strides)}
    if g.random.random() < 0.4:
        options["pads"] = [g.random.randint(0, min(1, k - 1)) for k in kernel * 2]
    elif g.random.random() < 0.3 and "strides" in options:
        options["output_padding"] = [g.random.randint(0, s - 1) for s in strides]
    if g.random.random() < 0.2 and "output_padding" not in options:
        options["dilations"] = [g.random.choice([1, 2]) for _ in kernel]
    groups = g.random.choice([1, 1] + [d for d in (2, 3) if x.shape[1] % d == 0])
    out = g.random.randint(1, 3)
    w = parameter(g, x.dtype, (x.shape[1], out, *kernel), -0.7, 0.7)
    b = parameter(g, x.dtype, (out * groups,)) if g.random.random() < 0.6 else None
    return g.add("ConvTranspose", [x, w, b], **options, **({"group": groups} if groups > 1 else {}))


@recipe("MaxPool", weight=1.5)
def max_pool(g: Graph):
    x = image(g, (F32, F64, I8, U8))
    options = window(g, x, least=1)
    if g.random.random() < 0.2 and options.get("auto_pad") is None and "dilations" not in options:
        options["ceil_mode"] = 1
    outputs = [True, True] if g.random.random() < 0.2 and len(np.unique(x.array)) == x.array.size else 1
    return g.add("MaxPool", [x], outputs, exact=True, **options)


@recipe("AveragePool")
def average_pool(g: Graph):
    x = image(g, (F32,))
    return g.add(
        "AveragePool",
        [x],
        **window(g, x, dilations=g.opset >= 19),
        **some(g, count_include_pad=g.random.choice([0, 1])),
    )


@recipe("LpPool", weight=0.5)
def lp_pool(g: Graph):
    x = image(g, (F32,))
    return g.add("LpPool", [x], **window(g, x, dilations=g.opset >= 18), **some(g, p=g.random.choice([1, 2, 3])))


@recipe("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", weight=0.7)
def global_pool(g: Graph, op):
    return g.add(
        op,
        [image(g, (F32,), least=1)],
        exact=op == "GlobalMaxPool",
        **(some(g, p=g.random.choice([1, 2, 3])) if op == "GlobalLpPool" else {}),
    )


@recipe("MaxUnpool", weight=0.4)
def max_unpool(g: Graph):
    n, c, h, w = 2, g.random.randint(1, 3), 2 * g.random.randint(1, 3), 2 * g.random.randint(1, 3)
    x = g.source(F32, (n, c, h, w))
    pooled, places = g.add("MaxPool", [x], 2, exact=True, kernel_shape=[2, 2], strides=[2, 2])
    return g.add("MaxUnpool", [pooled, places], exact=True, kernel_shape=[2, 2], strides=[2, 2])


@recipe("Resize", weight=1.5)
def resize(g: Graph):
    x = image(g, (F32,), (1, 2, 2), least=2)
    mode = g.random.choice(["nearest", "linear", "linear"] + (["cubic"] if x.rank == 4 else []))
    options = {
        "mode": mode,
        "coordinate_transformation_mode": g.random.choice(
            ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
        ),
    }
    if mode == "nearest":
        options |= some(g, nearest_mode=g.random.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]))
    if g.random.random() < 0.5:
        # ONNX Runtime's align_corners differs from the standard's where size times scale is no integer.
        whole = "align_corners" in options.values()
        scales = [1.0, 1.0, *(g.random.choice([1, 2, 3] if d % 2 and whole else [0.5, 1, 2, 3]) for d in x.shape[2:])]
        return g.add("Resize", [x, None, g.constant(scales, np.float32)], **options)
    sizes = [*x.shape[:2], *(g.random.randint(1, 2 * d) for d in x.shape[2:])]
    return g.add("Resize", [x, None, None, g.constant(sizes)], **options)


@recipe("GridSample", since=16)
def grid_sample(g: Graph):
    x = image(g, (F32,), (2,), least=2)
    grid = g.source(F32, (x.shape[0], g.random.randint(1, 4), g.random.randint(1, 4), 2), -1.2, 1.2)
    new = g.opset >= 20
    mode = g.random.choice(["linear", "nearest", "cubic"] if new else ["bilinear", "nearest", "bicubic"])
    return g.add(
        "GridSample",
        [x, grid],
        mode=mode,
        padding_mode=g.random.choice(["zeros", "border", "reflection"]),
        align_corners=g.random.choice([0, 1]),
    )


@recipe("AffineGrid", since=20, weight=0.5)
def affine_grid(g: Graph):
    n = max(1, g.palette[0])
    size = [n, 2, g.random.randint(2, 5), g.random.randint(2, 5)]
    return g.add(
        "AffineGrid", [g.pick([F32], shape=(n, 2, 3)), g.constant(size)], align_corners=g.random.choice([0, 1])
    )


@recipe("Col2Im", since=18, weight=0.5)
def col2im(g: Graph):
    n, c, block, shape = max(1, min(4, g.palette[0])), g.random.randint(1, 3), [2, 2], [4, g.random.randint(3, 5)]
    columns = int(np.prod([d - b + 1 for d, b in zip(shape, block)]))
    return g.add("Col2Im", [g.pick([F32], shape=(n, c * 4, columns)), g.constant(shape), g.constant(block)])


@recipe("RoiAlign", since=16, weight=0.5)
def roi_align(g: Graph):
    x = image(g, (F32,), (2,), least=4)
    count = g.random.randint(1, 4)
    corner = g.numbers.uniform(0, 2, (count, 2))
    rois = np.concatenate([corner, corner + g.numbers.uniform(1, 3, (count, 2))], 1).astype(np.float32)
    batch = g.source(I64, (count,), 0, x.shape[0] - 1)
    return g.add(
        "RoiAlign",
        [x, g.source(F32, rois.shape, array=rois), batch],
        output_height=2,
        output_width=3,
        sampling_ratio=g.random.choice([1, 2]),
        mode="avg",
        coordinate_transformation_mode=g.random.choice(["half_pixel", "output_half_pixel"]),
    )


@recipe("DeformConv", since=19, weight=0.5)
def deform_conv(g: Graph):
    n, c, h, w, out = (
        g.random.randint(1, 4),
        g.random.randint(1, 3),
        g.random.randint(3, 6),
        g.random.randint(3, 6),
        g.random.randint(1, 3),
    )
    x = g.pick([F32], shape=(n, c, h, w))
    offset = g.source(F32, (n, 8, h - 1, w - 1), -0.4, 0.4)
    mask = g.source(F32, (n, 4, h - 1, w - 1), 0, 1) if g.random.random() < 0.5 else None
    weight = g.source(F32, (out, c, 2, 2), -1, 1)
    return g.add(
        "DeformConv",
        [x, weight, offset, g.source(F32, (out,)) if g.random.random() < 0.5 else None, mask],
        kernel_shape=[2, 2],
    )


# Attention


@recipe("Attention", since=23, weight=2)
def attention(g: Graph):
    batch, kv, group = batch_size(g), g.random.randint(1, 3), g.random.choice([1, 1, 2])
    heads, queries, keys, width, depth = (
        kv * group,
        g.random.randint(1, 6),
        g.random.randint(1, 7),
        g.random.choice([2, 3, 4]),
        g.random.choice([2, 4]),
    )
    flat = g.random.random() < 0.4
    dtype = g.dtype((F32, F16)) if g.random.random() < 0.9 else F64

    def operand(h, s, d):
        return g.pick([dtype], shape=(batch, s, h * d) if flat else (batch, h, s, d))

    options = {"q_num_heads": heads, "kv_num_heads": kv} if flat else {}
    mask = None
    if g.random.random() < 0.5:
        shape = g.random.choice(
            [(queries, keys), (batch, 1, queries, keys), (1, heads, queries, keys), (batch, heads, queries, keys)]
        )
        mask = (
            g.source(dtype, shape)
            if g.random.random() < 0.6
            else g.source(BOOL, shape, array=(g.numbers.random(shape) < 0.7) | (np.arange(keys) == 0))
        )
    options |= {"is_causal": 1} if g.random.random() < 0.3 and mask is None else {}
    options |= {"scale": 0.5} if g.random.random() < 0.3 else {}
    options |= {"softcap": 2.0} if g.random.random() < 0.2 else {}
    return g.add(
        "Attention",
        [operand(heads, queries, width), operand(kv, keys, width), operand(kv, keys, depth), mask],
        **options,
    )


@recipe("RotaryEmbedding", since=23)
def rotary_embedding(g: Graph):
    batch, heads, steps, width = (
        batch_size(g),
        g.random.randint(1, 4),
        g.random.randint(1, 6),
        g.random.choice([2, 4, 8]),
    )
    flat = g.random.random() < 0.5
    x = g.pick([F32], shape=(batch, steps, heads * width) if flat else (batch, heads, steps, width))
    most = 8
    positions = g.source(I64, (batch, steps), 0, most - 1) if g.random.random() < 0.7 else None
    shape = (most, width // 2) if positions else (batch, steps, width // 2)
    caches = [g.source(F32, shape, -1, 1) for _ in range(2)]
    return g.add(
        "RotaryEmbedding",
        [x, *caches, positions],
        **some(g, interleaved=g.random.choice([0, 1])),
        **({"num_heads": heads} if flat else {}),
    )


# Recurrence


@recipe("RNN", "GRU", "LSTM", weight=0.7)
def recurrent(g: Graph, op):
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    steps, batch, width, hidden = (
        g.random.randint(1, 5),
        batch_size(g),
        g.random.choice([1, 2, 4, 5]),
        g.random.choice([1, 2, 3, 4]),
    )
    direction = g.random.choice(["forward", "forward", "reverse", "bidirectional"])
    ways = 2 if direction == "bidirectional" else 1
    x = g.pick([F32], shape=(steps, batch, width))
    w = g.source(F32, (ways, gates * hidden, width), -0.7, 0.7)
    r = g.source(F32, (ways, gates * hidden, hidden), -0.7, 0.7)
    b = g.source(F32, (ways, 2 * gates * hidden), -0.7, 0.7) if g.random.random() < 0.6 else None
    lengths = g.source(I32, (batch,), 1, steps) if g.random.random() < 0.3 else None
    first = g.pick([F32], shape=(ways, batch, hidden)) if g.random.random() < 0.4 else None
    options = some(g, linear_before_reset=g.random.choice([0, 1])) if op == "GRU" else {}
    outputs = [g.random.random() < 0.8, True] + ([g.random.random() < 0.5] if op == "LSTM" else [])
    return g.add(op, [x, w, r, b, lengths, first], outputs, hidden_size=hidden, direction=direction, **options)


# Quantization


def byte_matrices(g: Graph, ranks=range(2, 4), kind=None):
    """Two operands for a product of U8 matrices with no empty rows or columns."""
    x = g.pick((U8,), ranks, lambda v: v.array.size > 0, otherwise=(max(1, g.palette[0]), g.random.choice([3, 4, 8])))
    return x, g.source(U8, (x.shape[-1], max(1, g.size())), kind=kind)


def scale_and_point(g: Graph, dtype, shape=(), kind="initializer"):
    scale = g.source(F32, shape, 0.02, 0.1, kind=kind)
    point = g.source(dtype, shape, 100 if dtype == U8 else -10, 150 if dtype == U8 else 10, kind=kind)
    return scale, point


@recipe("QuantizeLinear")
def quantize_linear(g: Graph):
    x = g.pick((F32,), range(5))
    dtype = g.random.choice([U8, I8])
    if x.rank and g.random.random() < 0.3:
        axis = g.axis(x.rank)
        return g.add("QuantizeLinear", [x, *scale_and_point(g, dtype, (x.shape[axis],))], axis=axis)
    scale, point = scale_and_point(g, dtype)
    return g.add("QuantizeLinear", [x, scale, point if dtype == I8 or g.random.random() < 0.7 else None])


@recipe("DequantizeLinear")
def dequantize_linear(g: Graph):
    x = g.pick((U8, I8), range(5))
    axis = {}
    if x.rank and g.random.random() < 0.3:
        axis = {"axis": g.axis(x.rank)}
    shape = (x.shape[axis["axis"]],) if axis else ()
    scale, point = scale_and_point(g, x.dtype, shape)
    return g.add("DequantizeLinear", [x, scale, point if g.random.random() < 0.7 else None], **axis)


@recipe("DynamicQuantizeLinear")
def dynamic_quantize_linear(g: Graph):
    x = g.pick((F32,), range(1, 5), lambda v: v.array.size > 0)
    # If the range is symmetric about 0, the zero point is 127.5 before rounding, and the smallest error decides it.
    low, high = min(0.0, float(x.array.min())), max(0.0, float(x.array.max()))
    if high > low and abs(-low * 255 / (high - low) % 1 - 0.5) < 1e-3:
        raise Skip("a zero point hangs on a rounding")
    return g.add("DynamicQuantizeLinear", [x], 3)


@recipe("MatMulInteger")
def matmul_integer(g: Graph):
    x = g.pick((U8, I8), range(2, 5))
    y = g.source(g.random.choice([U8, I8]) if x.dtype == U8 else I8, (x.shape[-1], max(1, g.size())))
    points = [g.source(v.dtype, (), 0, 5, kind="initializer") if g.random.random() < 0.6 else None for v in (x, y)]
    return g.add("MatMulInteger", [x, y, *points], exact=True)


@recipe("ConvInteger", weight=0.6)
def conv_integer(g: Graph):
    x = image(g, (U8,), (2,))
    options = window(g, x)
    w = g.source(U8, (g.random.randint(1, 4), x.shape[1], *options["kernel_shape"]))
    points = [g.source(U8, (), 0, 5, kind="initializer") if g.random.random() < 0.6 else None for _ in range(2)]
    return g.add("ConvInteger", [x, w, *points], exact=True, **options)


@recipe("QLinearMatMul", weight=0.6)
def qlinear_matmul(g: Graph):
    x, y = byte_matrices(g)
    return g.add("QLinearMatMul", [x, *scale_and_point(g, U8), y, *scale_and_point(g, U8), *scale_and_point(g, U8)])


@recipe("QLinearConv", weight=0.6)
def qlinear_conv(g: Graph):
    x = image(g, (U8,), (2,))
    options = window(g, x)
    out = g.random.randint(1, 4)
    w = g.source(U8, (out, x.shape[1], *options["kernel_shape"]), kind="initializer")
    b = g.source(I32, (out,), -50, 50, kind="initializer") if g.random.random() < 0.5 else None
    return g.add(
        "QLinearConv", [x, *scale_and_point(g, U8), w, *scale_and_point(g, U8), *scale_and_point(g, U8), b], **options
    )


# Control flow


def typed(name: str, value: Value, shape=None):
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape if shape is None else shape
    )


@recipe("If", weight=0.7)
def if_(g: Graph):
    x = g.pick(FLOATS)
    y = g.match(x, into=True)
    condition = (
        g.source(BOOL, (), kind="input")
        if g.random.random() < 0.6
        else g.add("Greater", [g.source(F32, (), kind="input"), g.source(F32, (), kind="input")], exact=True)
    )
    out, ops = g.name("b"), ["Add", "Sub", "Mul", "Max"]
    bodies = []
    for _ in range(2):
        inner = g.name("b")
        nodes = [
            helper.make_node(g.random.choice(ops), [x.name, y.name], [inner]),
            helper.make_node(g.random.choice(["Tanh", "Neg", "Relu"]), [inner], [out]),
        ]
        bodies.append(helper.make_graph(nodes, g.name("g"), [], [typed(out, x)]))
    return g.add("If", [condition], captures=[x, y], then_branch=bodies[0], else_branch=bodies[1])


@recipe("Loop", weight=0.7)
def loop(g: Graph):
    x = g.pick((F32, F64))
    y = g.match(x, into=True)
    trips = g.random.randint(0, 12)
    scans = trips > 0 and g.random.random() < 0.4 and g.random.choice([True])
    number, keep, state, again, result, stacked = (g.name("b") for _ in range(6))
    nodes = [
        helper.make_node("Identity", [keep], [again]),
        helper.make_node(g.random.choice(["Add", "Mul", "Max", "Sub"]), [state, y.name], [stacked]),
        helper.make_node(g.random.choice(["Tanh", "Sigmoid", "Sin"]), [stacked], [result]),
    ]
    inputs = [
        helper.make_tensor_value_info(number, TensorProto.INT64, []),
        helper.make_tensor_value_info(keep, TensorProto.BOOL, []),
        typed(state, x),
    ]
    outputs = [helper.make_tensor_value_info(again, TensorProto.BOOL, []), typed(result, x)] + (
        [typed(stacked, x)] if scans else []
    )
    body = helper.make_graph(nodes, g.name("g"), inputs, outputs)
    condition = g.constant(True, bool) if scans or g.random.random() < 0.5 else None
    return g.add("Loop", [g.constant(trips), condition, x], 2 if scans else 1, captures=[y], body=body)


@recipe("Scan", weight=0.7)
def scan(g: Graph):
    x = g.pick(
        (F32,),
        range(2, 4),
        lambda v: 1 <= v.shape[0] <= 9 and v.array.size > 0,
        otherwise=(g.random.randint(1, 6), max(1, g.palette[0]), 3),
    )
    start = g.pick([F32], shape=x.shape[1:])
    state, element, joined, after, out = (g.name("b") for _ in range(5))
    nodes = [
        helper.make_node(g.random.choice(["Add", "Max", "Sub"]), [state, element], [joined]),
        helper.make_node("Tanh", [joined], [after]),
        helper.make_node("Neg", [joined], [out]),
    ]
    body = helper.make_graph(
        nodes, g.name("g"), [typed(state, start), typed(element, start)], [typed(after, start), typed(out, start)]
    )
    options = some(g, scan_input_directions=[g.random.choice([0, 1])], scan_output_directions=[g.random.choice([0, 1])])
    return g.add("Scan", [start, x], 2, num_scan_inputs=1, body=body, **options)
