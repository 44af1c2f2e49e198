"""A model that grows node by node. ONNX Runtime runs every node as soon as it is added, so its shape, type and value are known to later
nodes. Where ONNX Runtime does not implement an operator for a type, ONNX's reference evaluator runs it.

Every value has a few *noisy* values: the results when each inexact operation's operands and results are off by a few units in the last
place. Their spread bounds the error of another correct implementation. An integer on which they disagree depends on rounding."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

F16, F32, F64 = map(np.dtype, (np.float16, np.float32, np.float64))
I8, I16, I32, I64 = map(np.dtype, (np.int8, np.int16, np.int32, np.int64))
U8, U16, U32, U64 = map(np.dtype, (np.uint8, np.uint16, np.uint32, np.uint64))
BOOL = np.dtype(bool)

FLOATS = (F32, F64, F16)
INTS = (I64, I32, I8, U8)
NUMBERS = FLOATS + INTS
ALL = NUMBERS + (BOOL,)

# Rounding units. That of f64 leaves room for functions that are accurate to only 1e-15.
EPSILON = {F16: 2.0**-11, F32: 2.0**-24, F64: 2.0**-50}
NOISES = 4  # noisy values per value
# The signs of the noise. Some two noisy values are off to different sides whatever cancels, so a dependence on rounding shows.
OPERAND_SIDES, RESULT_SIDES = (1, -1, 1, -1), (1, -1, -1, 1)
ULPS = 4.0  # error of each noisy operation
MOST_ELEMENTS = 3000
SIZES = [1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 12, 13, 16, 17]


# Operators that ONNX Runtime computes to f32's accuracy; others are recognised by results that are f32 numbers.
COARSE = {"Attention", "Erf", "Gelu", "HardSwish"}

# Operators whose small results come from cancellation of numbers near 1 or of the operands' size.
CANCELLING = {
    "Asinh", "Atanh", "Attention", "BatchNormalization", "BiasGelu", "Celu", "DFT", "Elu", "Erf", "FastGelu", "GRU", "Gelu",
    "GroupNormalization", "GridSample", "If", "InstanceNormalization", "LSTM", "LayerNormalization", "Log", "LogSoftmax", "Loop",
    "BlackmanWindow", "HammingWindow", "HannWindow", "MeanVarianceNormalization", "MelWeightMatrix", "Mish", "QuickGelu",
    "RNN", "ReduceLogSumExp", "Resize", "STFT", "Scan", "Selu", "Sinh", "SkipLayerNormalization", "Softplus", "Swish", "Tanh",
}  # fmt: skip
# Those of them whose results may cancel to zero where others compute a small number.
VANISHING = {"BiasGelu", "FastGelu", "Gelu", "Mish"}


class Skip(Exception):
    """A recipe does not fit the model so far, or its values would drown all others."""


class Value:
    def __init__(self, name: str, array: np.ndarray, noisy: Sequence[np.ndarray], kind: str):
        self.name = name
        self.array = array
        self.noisy = list(noisy)
        self.kind = kind  # input, initializer or node
        self.signs = np.where(np.arange(array.size).reshape(array.shape) * 2654435761 % 4096 < 2048, 1.0, -1.0)
        self.uses = 0

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim

    def within(self, low: float, high: float) -> bool:
        return all(a.size == 0 or (low <= a.min() and a.max() <= high) for a in (self.array, *self.noisy))


def declare(name: str, array: np.ndarray | None) -> onnx.ValueInfoProto:
    if array is None:
        return onnx.ValueInfoProto(name=name)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def opsets(version: int) -> list[onnx.OperatorSetIdProto]:
    return [helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1)]


_OPTIONS = onnxruntime.SessionOptions()
_OPTIONS.intra_op_num_threads = _OPTIONS.inter_op_num_threads = 1
_OPTIONS.log_severity_level = 4
_OPTIONS.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def is_coarse(node: onnx.NodeProto, operands: Iterable[Value], results: list[np.ndarray]) -> bool:
    """Whether f64 was computed as f32, judging by the numbers. An inverse DFT is multiplied by 1/n in f32."""
    if node.op_type == "DFT" and any(a.name == "inverse" and a.i for a in node.attribute):
        return True
    attributes = any(a.type == onnx.AttributeProto.FLOAT for a in node.attribute)
    is_single = lambda a: np.array_equal(a, a.astype(np.float32), equal_nan=True)  # noqa: E731
    with np.errstate(all="ignore"):
        wide = [a for a in results if a.dtype == F64 and a.size]
        return (
            bool(wide)
            and all(map(is_single, wide))
            and (attributes or any(v.dtype == F64 and not is_single(v.array) for v in operands))
        )


class Runner:
    """One node as a function on arrays."""

    def __init__(self, node: onnx.NodeProto, inputs: dict[str, np.ndarray], fixed: dict[str, np.ndarray], opset: int):
        graph = helper.make_graph(
            [node],
            "node",
            [declare(name, array) for name, array in inputs.items()],
            [declare(name, None) for name in node.output if name],
            [numpy_helper.from_array(array, name) for name, array in fixed.items()],
        )
        imports = [o for o in opsets(opset) if o.domain in ("", node.domain)]
        self.model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        self.reference = None
        try:
            self.session = onnxruntime.InferenceSession(
                self.model.SerializeToString(), _OPTIONS, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            if "NOT_IMPLEMENTED" not in str(error):
                raise Skip(f"{node.op_type}: {str(error)[:300]}") from error
            self.reference = True

    def __call__(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        try:
            if not self.reference:
                return [np.asarray(a) for a in self.session.run(None, inputs)]
            with np.errstate(all="ignore"):
                results = ReferenceEvaluator(self.model).run(None, inputs)
            return [np.asarray(r) for r in results]
        except Exception as error:
            raise Skip(f"{self.model.graph.node[0].op_type}: {str(error)[:300]}") from error


class Graph:
    """The model so far. Recipes take operands with `pick`, `match` and `source`, and make nodes with `add`."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        r = self.random
        self.opset = r.randint(13, 24)
        self.palette = [r.choice(SIZES) for _ in range(r.randint(2, 4))]
        if r.random() < 0.03:
            self.palette.append(0)
        # Most values of a model have its main type; others appear as well.
        self.main = r.choices([F32, F64, F16, I64, I32], [70, 10, 10, 5, 5])[0]
        self.values: list[Value] = []
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[Value] = []
        self.inputs: list[Value] = []
        self.last: list[Value] = []  # outputs that no other node may read
        self.by_reference = 0
        self._names = 0

    # Sources

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def size(self) -> int:
        return self.random.choice(self.palette) if self.random.random() < 0.85 else self.random.choice(SIZES)

    def shape(self, ranks: Iterable[int] = (0, 1, 2, 2, 3, 3, 4)) -> tuple[int, ...]:
        rank = self.random.choice(list(ranks))
        shape = [self.size() for _ in range(rank)]
        if shape and self.random.random() < 0.6:
            shape[0] = self.palette[0]
        while np.prod(shape, dtype=np.int64) > MOST_ELEMENTS:
            shape[shape.index(max(shape))] //= 2
        return tuple(shape)

    def dtype(self, dtypes: Sequence[np.dtype]) -> np.dtype:
        """One of `dtypes`, most often the model's main type."""
        if self.main in dtypes and self.random.random() < 0.7:
            return self.main
        return self.random.choice(list(dtypes))

    def fill(self, dtype: np.dtype, shape: Sequence[int], low: float | None, high: float | None) -> np.ndarray:
        if dtype == BOOL:
            return self.numbers.random(shape) < 0.5
        if dtype.kind in "iu":
            low = (0 if dtype.kind == "u" else -6) if low is None else low
            high = 10 if high is None else high
            return self.numbers.integers(int(low), int(high), shape, dtype, endpoint=True)
        if low is None or high is None:
            array = self.numbers.standard_normal(shape)
            if self.random.random() < 0.1:
                array = np.round(array * 2)  # ties, zeros, exact sums
        else:
            array = self.numbers.uniform(low, high, shape)
        return np.asarray(array).astype(dtype)

    def source(
        self,
        dtype: np.dtype,
        shape: Sequence[int],
        low: float | None = None,
        high: float | None = None,
        kind: str | None = None,
        array: np.ndarray | None = None,
    ) -> Value:
        """A new input or initializer of the model; `low` and `high` bound its elements."""
        kind = kind or self.random.choice(["input", "input", "initializer"])
        array = np.asarray(self.fill(dtype, shape, low, high) if array is None else array)
        value = Value(self.name("x" if kind == "input" else "w"), array, [array] * NOISES, kind)
        (self.inputs if kind == "input" else self.initializers).append(value)
        self.values.append(value)
        return value

    def constant(self, array, dtype=np.int64) -> Value:
        """An initializer for a shape, axes or the like; it never becomes another node's operand."""
        array = np.asarray(array, dtype)
        value = Value(self.name("c"), array, [array] * NOISES, "initializer")
        self.initializers.append(value)
        return value

    # Operands

    def pick(
        self,
        dtypes: Sequence[np.dtype],
        ranks: Iterable[int] = range(6),
        test: Callable[[Value], bool] | None = None,
        shape: Sequence[int] | None = None,
        fresh: float = 0.1,
        otherwise: Sequence[int] | None = None,
    ) -> Value:
        """An existing value, preferably an unused one, or a new one. With a `test`, a new one needs a shape `otherwise`."""
        ranks = list(ranks)
        fits = [
            v
            for v in self.values
            if v.dtype in dtypes
            and (v.rank in ranks if shape is None else v.shape == tuple(shape))
            and (test is None or test(v))
        ]
        if fits and (self.random.random() > fresh or (test and shape is None and otherwise is None)):
            last = len(self.values)
            weights = [
                (4 if v.uses == 0 and v.kind != "initializer" else 1) * (2 if i > last - 6 else 1)
                for i, v in enumerate(fits)
            ]
            return self.random.choices(fits, weights)[0]
        shape = shape if otherwise is None else otherwise
        if test and shape is None:
            raise Skip("no operand")
        return self.source(self.dtype(dtypes), self.shape(ranks) if shape is None else shape)

    def match(self, x: Value, dtype: np.dtype | None = None, into: bool = False, **bounds) -> Value:
        """An operand that broadcasts with x; with `into` its shape must not enlarge x's."""
        dtype = dtype or x.dtype

        def joins(v: Value) -> bool:
            try:
                joint = np.broadcast_shapes(v.shape, x.shape)
            except ValueError:
                return False
            return joint == x.shape if into else np.prod(joint, dtype=np.int64) <= MOST_ELEMENTS

        if not bounds and self.random.random() < 0.6:
            fits = [v for v in self.values if v.dtype == dtype and joins(v) and v is not x]
            if fits:
                return self.random.choice(fits)
        shape = [1 if self.random.random() < 0.25 else d for d in x.shape]
        if self.random.random() < 0.3:
            shape = shape[self.random.randint(0, len(shape)) :]
        return self.source(dtype, shape, **bounds)

    def tame(self, x: Value, low: float, high: float) -> Value:
        """x, or a value computed from it, with elements between `low` and `high`."""
        if x.array.size and not (np.isfinite(x.array.astype(np.float64)).all()):
            raise Skip("not finite")
        if x.within(low, high):
            return x
        if x.dtype.kind == "f" and np.isfinite([low, high]).all() and x.within(-12, 12) and self.random.random() < 0.5:
            unit = self.add("Sigmoid", [x])
            scaled = self.add(
                "Mul", [unit, self.source(x.dtype, (), kind="initializer", array=np.asarray(high - low, x.dtype))]
            )
            tamed = self.add(
                "Add", [scaled, self.source(x.dtype, (), kind="initializer", array=np.asarray(low, x.dtype))]
            )
            if tamed.within(low, high):
                return tamed
        info = np.finfo(x.dtype) if x.dtype.kind == "f" else np.iinfo(x.dtype)
        low, high = max(low, float(info.min)), min(high, float(info.max))
        bounds = [
            self.constant(int(b) if x.dtype.kind in "iu" else b, x.dtype)
            for b in (np.ceil(low) if x.dtype.kind in "iu" else low, high)
        ]
        return self.add("Clip", [x, *bounds], exact=True)

    def axis(self, rank: int) -> int:
        """A random dimension, half of the time counted from the end."""
        if rank == 0:
            raise Skip("a scalar has no axis")
        axis = self.random.randrange(rank)
        return axis - rank if self.random.random() < 0.5 else axis

    def indices(
        self, shape: Sequence[int], limit: int, dtypes: Sequence[np.dtype] = (I64, I32), low: int | None = None
    ) -> Value:
        """Indices below `limit`; unless `low` is 0, some are negative and count from the end."""
        if limit < 1:
            raise Skip("nothing to index")
        low = -limit if low is None else low
        dtype = self.random.choice(list(dtypes))
        if self.random.random() < 0.3:
            fits = [v for v in self.values if v.dtype == dtype and v.shape == tuple(shape)]
            if fits:
                value = self.random.choice(fits)
                if value.within(low, limit - 1):
                    return value
                return self.add("Mod", [value, self.constant(limit, dtype)], exact=True)
        return self.source(dtype, shape, low, limit - 1)

    # Nodes

    def evaluate(self, node, operands: list[Value | None], exact: bool) -> list[tuple[np.ndarray, list[np.ndarray]]]:
        present = {v.name: v for v in operands if v is not None}
        fixed = {n: v.array for n, v in present.items() if v.kind == "initializer" and n.startswith("c")}
        free = {n: v for n, v in present.items() if n not in fixed}
        runner = Runner(node, {n: v.array for n, v in free.items()}, fixed, self.opset)
        self.by_reference += runner.reference is not None
        clean = runner({n: v.array for n, v in free.items()})
        if sum(a.size for a in clean) > 3 * MOST_ELEMENTS:
            raise Skip("large")
        largest = max([1.0] + [np.abs(v.array).max(initial=0) for v in free.values() if v.dtype.kind == "f"])
        beside = min(largest, 100.0) if node.op_type in CANCELLING else 0.0
        zeros = node.op_type in VANISHING
        coarse = not exact and (
            node.op_type in COARSE or bool(runner.reference) or is_coarse(node, free.values(), clean)
        )
        signs = [self.signs(a.shape) for a in clean]
        spread = []
        for k in range(NOISES):
            noisy = {n: v.noisy[k] for n, v in free.items()}
            if exact and all(a is free[n].array for n, a in noisy.items()):
                spread.append(clean)
                continue
            if not exact:
                noisy = {n: self.disturb(a, OPERAND_SIDES[k] * free[n].signs) for n, a in noisy.items()}
            results = runner(noisy)
            if any(a.shape != b.shape for a, b in zip(results, clean)):
                raise Skip("a shape hangs on a rounding")
            if not exact:
                results = [
                    self.disturb(a, RESULT_SIDES[k] * sign, beside, coarse, zeros) for a, sign in zip(results, signs)
                ]
            spread.append(results)
        return [(a, [s[i] for s in spread]) for i, a in enumerate(clean)]

    def signs(self, shape: Sequence[int]) -> np.ndarray:
        return self.numbers.choice([-1.0, 1.0], shape)

    def disturb(
        self, array, side: np.ndarray, beside: float = 0, coarse: bool = False, zeros: bool = False
    ) -> np.ndarray:
        """Moves elements to `side`, 1 or -1, by a few units in the last place of each, plus as many of `beside` or, if larger, of a
        quarter of the largest element (at most 1). Zeros stay, unless `zeros`."""
        if array.dtype not in EPSILON or array.size == 0:
            return array
        unit = ULPS * max(EPSILON[array.dtype], EPSILON[F32] if coarse else 0)

        def noise() -> np.ndarray:
            return unit * side * self.numbers.uniform(0.6, 1, array.shape)

        with np.errstate(all="ignore"):
            wide = array.astype(np.float64)
            beside = max(beside, min(1.0, np.abs(wide[np.isfinite(wide)]).max(initial=0) / 4))
            wide = np.where((wide != 0) | zeros, wide + np.abs(wide) * noise() + beside * noise(), wide)
            return np.asarray(wide).astype(array.dtype)

    def add(
        self,
        op: str,
        operands: Sequence[Value | None],
        outputs: int | Sequence[bool] = 1,
        domain: str = "",
        exact: bool = False,
        captures: Sequence[Value] = (),
        **attributes,
    ) -> Value | list[Value | None]:
        """Adds a node and returns its result or results. `outputs` is their number, or which ones to name; `exact`: no correct
        implementation rounds; `captures` are the outer values that graphs in attributes read."""
        wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
        names = [self.name("v") if w else "" for w in wanted]
        node = helper.make_node(
            op, [v.name if v else "" for v in operands], names, name=self.name("n"), domain=domain, **attributes
        )
        while node.input and not node.input[-1]:
            node.input.pop()
        results = self.evaluate(node, [*operands, *captures], exact)
        made = [Value(n, array, noisy, "node") for n, (array, noisy) in zip(filter(None, names), results)]
        for value in made:
            self.check(value)
        for value in (*operands, *captures):
            if value:
                value.uses += 1
        self.nodes.append(node)
        self.values += made
        if outputs == 1:
            return made[0]
        by_name = {v.name: v for v in made}
        return [by_name.get(n) for n in names]

    def end(self, values: Sequence[Value | None]) -> None:
        """Makes values whose length depends on data outputs that no node reads."""
        for value in filter(None, values):
            self.values.remove(value)
            self.last.append(value)

    def check(self, value: Value) -> None:
        """Skips most nodes with large or infinite values, which hide errors in other values."""
        if value.dtype == BOOL or value.array.size == 0:
            return
        wide = np.abs(value.array.astype(np.float64))
        limit = {"f": 100.0 if value.dtype == F16 else 3000.0, "i": 1e6, "u": 1e6}[value.dtype.kind]
        if not (wide <= limit).all() and self.random.random() > (0.02 if np.isfinite(wide).all() else 0.01):
            raise Skip("large values")

    # The model

    def prune(self) -> None:
        """Removes inputs and initializers that no node reads."""
        read = {name for node in self.nodes for name in reads(node)}
        self.inputs = [v for v in self.inputs if v.name in read]
        self.initializers = [v for v in self.initializers if v.name in read]


def reads(node: onnx.NodeProto) -> set[str]:
    """The names that a node reads, including outer names that its attributes' graphs read."""
    names = set(filter(None, node.input))
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            inner = set()
            for body in attribute.g.node:
                inner |= reads(body)
            inner |= {o.name for o in attribute.g.output}
            made = {i.name for i in attribute.g.input} | {o for body in attribute.g.node for o in body.output}
            names |= inner - made - {t.name for t in attribute.g.initializer}
    return names


def make_model(opset: int, nodes, inputs, initializers, outputs: Sequence[Value]) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "random",
        [declare(v.name, v.array) for v in inputs],
        [declare(v.name, v.array) for v in outputs],
        [numpy_helper.from_array(v.array, v.name) for v in initializers],
    )
    used = {node.domain for node in nodes}
    imports = [o for o in opsets(opset) if o.domain == "" or o.domain in used]
    return helper.make_model(graph, opset_imports=imports, ir_version=10 if opset < 23 else 11)
