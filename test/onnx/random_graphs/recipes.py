"""The table of operators: for each, how to choose operands and attributes of a node. Elementwise operators are rows, others short
functions. This file has elementwise operators and constants; `moves`, `layers` and `contrib` add the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import numpy as np
from onnx import helper

from .graph import ALL, BOOL, F16, F32, F64, FLOATS, I8, I32, I64, INTS, NUMBERS, U8, Graph, Value


@dataclasses.dataclass(frozen=True)
class Recipe:
    name: str
    make: Callable[[Graph], object]
    since: int = 13
    until: int = 24
    weight: float = 1.0
    domain: str = ""

    @property
    def qualified(self) -> str:
        return f"{self.domain}.{self.name}" if self.domain else self.name


TABLE: dict[str, Recipe] = {}


def recipe(*names: str, **options):
    """Adds a function to the table under each name. With several names the function gets the name as `op`."""

    def add(make):
        for name in names:
            row = Recipe(name, partial(make, op=name) if len(names) > 1 else make, **options)
            TABLE[row.qualified] = row
        return make

    return add


# Elementwise

SIGNED = FLOATS + (I64, I32, I8)
WIDE = (I64, I32)

# name: types, bounds of the operand, whether exact, first opset
UNARY = {
    "Abs": (NUMBERS, None, True, 13),
    "Neg": (SIGNED, None, True, 13),
    "Sign": (NUMBERS, None, True, 13),
    "Ceil": (FLOATS, None, True, 13),
    "Floor": (FLOATS, None, True, 13),
    "Round": (FLOATS, None, True, 13),
    "Not": ((BOOL,), None, True, 13),
    "BitwiseNot": (INTS, None, True, 18),
    "IsNaN": (FLOATS, None, True, 13),
    "Identity": (ALL, None, True, 13),
    "Relu": (FLOATS + (I32, I8), None, True, 14),
    "Acos": (FLOATS, (-0.9, 0.9), False, 13),
    "Acosh": (FLOATS, (1.2, 20), False, 13),
    "Asin": (FLOATS, (-0.9, 0.9), False, 13),
    "Asinh": (FLOATS, None, False, 13),
    "Atan": (FLOATS, None, False, 13),
    "Atanh": (FLOATS, (-0.9, 0.9), False, 13),
    "Cos": (FLOATS, (-30, 30), False, 13),
    "Cosh": (FLOATS, (-5, 5), False, 13),
    "Erf": (FLOATS, None, False, 13),
    "Exp": (FLOATS, (-10, 5), False, 13),
    "HardSwish": (FLOATS, None, False, 14),
    "Log": (FLOATS, (0.01, 1000), False, 13),
    "Mish": (FLOATS, None, False, 18),
    "Reciprocal": (FLOATS, (0.1, 50), False, 13),
    "Sigmoid": (FLOATS, (-12, 12), False, 13),
    "Sin": (FLOATS, (-30, 30), False, 13),
    "Sinh": (FLOATS, (-5, 5), False, 13),
    "Softplus": (FLOATS, (-30, 30), False, 13),
    "Softsign": (FLOATS, None, False, 13),
    "Sqrt": (FLOATS, (0, 1000), False, 13),
    "Tan": (FLOATS, (-1.3, 1.3), False, 13),
    "Tanh": (FLOATS, None, False, 13),
}

# name: types, attributes and their range, first opset
ACTIVATIONS = {
    "Celu": ((F32,), {"alpha": (0.5, 2)}, 13),
    "Elu": (FLOATS, {"alpha": (0.2, 2)}, 13),
    "HardSigmoid": (FLOATS, {"alpha": (0.1, 0.5), "beta": (0.2, 0.8)}, 13),
    "LeakyRelu": (FLOATS, {"alpha": (0.01, 0.5)}, 13),
    "Selu": (FLOATS, {"alpha": (1, 2), "gamma": (0.5, 2)}, 13),
    "Shrink": (FLOATS, {"bias": (0, 0.5), "lambd": (0.1, 1)}, 13),
    "Swish": (FLOATS, {"alpha": (0.5, 2)}, 24),
    "ThresholdedRelu": (FLOATS, {"alpha": (0.1, 1)}, 13),
}

# name: types, whether exact on integers, first opset
BINARY = {
    "Add": (NUMBERS, 13),
    "Sub": (NUMBERS, 13),
    "Mul": (NUMBERS, 13),
    "And": ((BOOL,), 13),
    "Or": ((BOOL,), 13),
    "Xor": ((BOOL,), 13),
    "BitwiseAnd": (INTS, 18),
    "BitwiseOr": (INTS, 18),
    "BitwiseXor": (INTS, 18),
    "Equal": (NUMBERS + (BOOL,), 13),
    "Greater": (NUMBERS, 13),
    "GreaterOrEqual": (NUMBERS, 16),
    "Less": (NUMBERS, 13),
    "LessOrEqual": (NUMBERS, 16),
}
COMPARISONS = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}


def unary(g: Graph, op, dtypes, bounds, exact):
    x = g.pick(dtypes)
    if bounds and not (op == "Exp" and x.dtype != F16 and g.random.random() < 0.03):
        x = g.tame(x, *bounds)
    return g.add(op, [x], exact=exact)


def activation(g: Graph, op, dtypes, attributes):
    chosen = {k: round(g.random.uniform(*v), 3) for k, v in attributes.items() if g.random.random() < 0.6}
    return g.add(op, [g.pick(dtypes)], **chosen)


def binary(g: Graph, op, dtypes):
    x = g.pick(dtypes)
    y = x if g.random.random() < 0.05 else g.match(x)
    pair = [x, y] if g.random.random() < 0.7 else [y, x]
    return g.add(op, pair, exact=op in COMPARISONS or x.dtype.kind != "f")


for _name, (_types, _bounds, _exact, _since) in UNARY.items():
    TABLE[_name] = Recipe(
        _name, partial(unary, op=_name, dtypes=_types, bounds=_bounds, exact=_exact), _since, weight=0.7
    )
for _name, (_types, _attributes, _since) in ACTIVATIONS.items():
    TABLE[_name] = Recipe(
        _name, partial(activation, op=_name, dtypes=_types, attributes=_attributes), _since, weight=0.7
    )
for _name, (_types, _since) in BINARY.items():
    _weight = 4.0 if _name in ("Add", "Mul", "Sub") else 0.8
    TABLE[_name] = Recipe(_name, partial(binary, op=_name, dtypes=_types), _since, weight=_weight)


@recipe("Gelu", since=20)
def gelu(g: Graph):
    return g.add(
        "Gelu",
        [g.pick(FLOATS)],
        **({"approximate": g.random.choice(["none", "tanh"])} if g.random.random() < 0.7 else {}),
    )


@recipe("PRelu")
def prelu(g: Graph):
    x = g.pick(FLOATS)
    return g.add("PRelu", [x, g.match(x, into=True)])


@recipe("Div", weight=2)
def div(g: Graph):
    x = g.pick(NUMBERS)
    if x.dtype.kind == "f":
        return g.add("Div", [x, g.tame(g.match(x), 0.2, 50)])
    low = 1 if x.dtype.kind == "u" or g.random.random() < 0.7 else -5
    y = g.match(x, low=low, high=max(low + 3, -1) if low < 0 else 7)
    return g.add("Div", [x, y], exact=True)


@recipe("Mod")
def mod(g: Graph):
    x = g.pick(NUMBERS)
    if x.dtype.kind == "f":
        return g.add("Mod", [x, g.match(x, low=0.5, high=4)], fmod=1)
    y = g.match(x, low=1, high=9)
    if x.dtype.kind == "i" and g.random.random() < 0.3:
        y = g.match(x, low=-9, high=-1)
    return g.add("Mod", [x, y], exact=True, fmod=g.random.choice([0, 1]))


@recipe("Pow")
def pow(g: Graph):
    x = g.pick(FLOATS + WIDE)
    if x.dtype.kind == "i":
        exponent = g.match(g.tame(x, -6, 6), I64 if g.random.random() < 0.5 else x.dtype, low=0, high=3)
        return g.add("Pow", [g.tame(x, -6, 6), exponent], exact=True)
    if g.random.random() < 0.5:  # any base, integer exponents
        exponent = g.source(g.random.choice([x.dtype, I64, I32]), (), low=0, high=3, kind="initializer")
        exponent.array = np.asarray(np.round(exponent.array))
        exponent.noisy = [exponent.array] * len(exponent.noisy)
        return g.add("Pow", [g.tame(x, -20, 20), exponent])
    return g.add("Pow", [g.tame(x, 0.1, 10), g.match(x, low=-2, high=3)])


@recipe("BitShift")
def bit_shift(g: Graph):
    x = g.pick((U8,))
    return g.add("BitShift", [x, g.match(x, low=0, high=7)], exact=True, direction=g.random.choice(["LEFT", "RIGHT"]))


@recipe("Max", "Min", "Sum", "Mean")
def variadic(g: Graph, op):
    x = g.pick(FLOATS if op in ("Sum", "Mean") else FLOATS + WIDE + ((U8, I8) if g.opset >= 13 else ()))
    operands = [x] + [g.match(x, into=True) for _ in range(g.random.choice([0, 1, 1, 2, 3]))]
    g.random.shuffle(operands)
    return g.add(op, operands, exact=op in ("Max", "Min"))


@recipe("Where", weight=2)
def where(g: Graph):
    x = g.pick(ALL)
    condition = g.match(x, BOOL)
    if g.random.random() < 0.4 and x.dtype != BOOL:
        condition = g.add("Less", [x, g.match(x)], exact=True) if x.dtype.kind == "f" else condition
    pair = [x, g.match(x)]
    g.random.shuffle(pair)
    return g.add("Where", [condition, *pair], exact=True)


@recipe("Clip")
def clip(g: Graph):
    x = g.pick(FLOATS + WIDE + (I8, U8))
    bound = lambda v: g.source(x.dtype, (), array=np.asarray(v, x.dtype))  # noqa: E731
    low = bound(g.random.choice([0, 1])) if g.random.random() < 0.8 else None
    high = bound(g.random.choice([2, 3])) if g.random.random() < 0.7 else None
    return g.add("Clip", [x, low, high], exact=True)


def castable(g: Graph, x: Value, to: np.dtype) -> Value:
    """x, bounded where the cast of large values is undefined."""
    if x.dtype.kind == "f" and to.kind in "iu":
        return g.tame(x, 0 if to.kind == "u" else -100, 100)
    return x


@recipe("Cast", weight=2)
def cast(g: Graph):
    x, to = g.pick(ALL), g.dtype(ALL)
    x = castable(g, x, to)
    exact = not (x.dtype.kind in "fiu" and to.kind == "f" and to.itemsize <= x.dtype.itemsize)
    return g.add("Cast", [x], exact=exact, to=helper.np_dtype_to_tensor_dtype(to))


@recipe("CastLike", since=15)
def cast_like(g: Graph):
    x, like = g.pick(ALL), g.pick(ALL)
    return g.add("CastLike", [castable(g, x, like.dtype), like])


@recipe("IsInf")
def is_inf(g: Graph):
    x = g.pick((F32, F64))
    if x.rank and g.random.random() < 0.5 and x.array.size:
        x = g.add("Div", [x, g.add("Floor", [g.source(x.dtype, x.shape)], exact=True)])
    options = {k: g.random.choice([0, 1]) for k in ("detect_negative", "detect_positive") if g.random.random() < 0.5}
    return g.add("IsInf", [x], exact=True, **options)


# Constants


@recipe("Constant")
def constant(g: Graph):
    dtype = g.dtype((F32, F64, I64, I32, BOOL))
    array = g.fill(dtype, g.shape((0, 0, 1, 2)), None, None)
    if g.random.random() < 0.2 and dtype in (F32, I64) and array.ndim < 2:
        key = "value_" + ("float" if dtype == F32 else "int") + "s" * array.ndim
        return g.add("Constant", [], exact=True, **{key: array.tolist()})
    return g.add(
        "Constant",
        [],
        exact=True,
        value=helper.make_tensor("c", helper.np_dtype_to_tensor_dtype(dtype), array.shape, array.flatten()),
    )


@recipe("ConstantOfShape")
def constant_of_shape(g: Graph):
    dtype = g.dtype((F32, F64, I64, I32, BOOL))
    value = helper.make_tensor(
        "c", helper.np_dtype_to_tensor_dtype(dtype), [1], [g.random.choice([0, 1, 2]) if dtype != BOOL else 1]
    )
    shape = g.constant(g.shape())
    if g.random.random() < 0.4:
        shape = g.add("Shape", [g.pick(ALL)], exact=True)
    return g.add("ConstantOfShape", [shape], exact=True, **({"value": value} if g.random.random() < 0.8 else {}))


@recipe("EyeLike")
def eye_like(g: Graph):
    options = {"k": g.random.randint(-3, 3)} if g.random.random() < 0.6 else {}
    dtype = g.dtype((F32, F64, I64, I32))
    return g.add(
        "EyeLike",
        [g.pick((F32, F64, I64, I32), [2])],
        exact=True,
        dtype=helper.np_dtype_to_tensor_dtype(dtype),
        **options,
    )


@recipe("Range")
def range_(g: Graph):
    dtype = g.dtype((F32, F64, I64, I32))
    start, step = g.random.randint(-4, 4), g.random.choice([1, 1, 2, -1, 3])
    limit = start + step * g.size() + (g.random.choice([0, 0, 1]) if step > 1 else 0)
    return g.add("Range", [g.constant(v, dtype) for v in (start, limit, step)], exact=True)


@recipe("Dropout")
def dropout(g: Graph):
    x = g.pick(FLOATS)
    ratio = g.constant(0.5, np.float32) if g.random.random() < 0.6 else None
    outputs = [True, True] if g.random.random() < 0.3 else 1
    return g.add("Dropout", [x, ratio], outputs, exact=True)


@recipe("BlackmanWindow", "HammingWindow", "HannWindow", since=17, weight=0.4)
def window(g: Graph, op):
    return g.add(op, [g.constant(g.random.randint(2, 9))], periodic=g.random.choice([0, 1]))


@recipe("MelWeightMatrix", since=17, weight=0.3)
def mel_weight_matrix(g: Graph):
    bounds = [g.constant(v, np.float32) for v in (g.random.choice([0, 100]), 4000)]
    return g.add("MelWeightMatrix", [g.constant(g.random.randint(2, 6)), g.constant(16), g.constant(8192), *bounds])


@recipe("DFT", since=17, weight=0.5)
def dft(g: Graph):
    length, outer = g.random.choice([4, 6, 8, 9, 12, 16]), g.size() or 1
    onesided = g.random.choice([0, 1])
    x = g.source(g.dtype((F32, F64)), (outer, length, 1 if onesided else g.random.choice([1, 2])))
    options = {"onesided": onesided, "inverse": 0 if onesided else g.random.choice([0, 1])}
    given = g.constant(g.random.choice([4, 8, 16])) if g.random.random() < 0.4 else None
    if g.opset < 20:
        return g.add("DFT", [x, given], axis=1, **options)
    return g.add("DFT", [x, given, g.constant(g.random.choice([1, -2]))], **options)


@recipe("STFT", since=17, weight=0.4)
def stft(g: Graph):
    length = g.random.choice([4, 8, 16])
    x = g.source(F32, (g.size() or 1, length * g.random.randint(1, 4) + g.random.randint(0, 3), 1))
    window = g.source(F32, (length,), 0.1, 1.0) if g.random.random() < 0.5 else None
    steps = g.constant(g.random.randint(1, length))
    return g.add("STFT", [x, steps, window, g.constant(length)], onesided=g.random.choice([0, 1]))
