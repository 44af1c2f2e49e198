"""ONNX models of gridloom.zoo as JAX functions, for train_vs_jax.py.

Values that hold no weight and no input's elements (shapes, constants) are computed with numpy while the function is traced, so that
shapes stay known. Operators are those of mlp, bert, minilm and gpt2."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax import lax
from onnx import numpy_helper

DTYPES = {onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.INT64: np.int32, onnx.TensorProto.BOOL: np.bool_}


def split(model: onnx.ModelProto) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The initializers: the floats, which are trained, and the rest."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    weights = {name: value for name, value in values.items() if value.dtype == np.float32}
    return weights, {name: value for name, value in values.items() if name not in weights}


def function(model: onnx.ModelProto):
    """f(weights, inputs) -> the first output; integers are int32, JAX's default."""
    _, constants = split(model)

    def run(weights, inputs):
        values = {**constants, **weights, **inputs, "": None}
        for node in model.graph.node:
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            operands = [values[name] for name in node.input]
            if node.op_type not in OPERATORS:
                raise ValueError(f"node '{node.name}': operator {node.op_type} is not one of those that this peer computes: {', '.join(sorted(OPERATORS))}")
            known = all(operand is None or isinstance(operand, (np.ndarray, np.generic)) for operand in operands)
            result = OPERATORS[node.op_type](np if known else jnp, *operands, **attributes)
            results = result if isinstance(result, (tuple, list)) else [result]
            values.update(zip(node.output, results))
        return values[model.graph.output[0].name]

    return run


def layer_norm(_, x, scale, bias, axis, epsilon):
    mean = x.mean(-1, keepdims=True)
    inverse = lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + epsilon)
    return (x - mean) * inverse * scale + bias


def slice_(_, x, starts, ends, axes, steps):
    ranges = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps):
        ranges[axis] = slice(int(start), int(end), int(step))
    return x[tuple(ranges)]


def shape_of(sizes) -> tuple[int, ...]:
    return tuple(int(size) for size in np.ravel(sizes))


def reshape(np_, x, sizes):
    return np_.reshape(x, [x.shape[i] if size == 0 else size for i, size in enumerate(shape_of(sizes))])


def split_(np_, x, sizes, axis):
    return np_.split(x, np.cumsum(sizes)[:-1], axis)


def clip(np_, x, low=None, high=None):
    return np_.clip(x, low, high)


OPERATORS = {
    "Add": lambda np_, a, b: a + b,
    "Cast": lambda np_, x, to: x.astype(DTYPES[to]),
    "Clip": clip,
    "Concat": lambda np_, *parts, axis: np_.concatenate(parts, axis),
    "Constant": lambda np_, value: numpy_helper.to_array(value),
    "Div": lambda np_, a, b: a / b,
    "Erf": lambda np_, x: lax.erf(x),
    "Expand": lambda np_, x, sizes: np_.broadcast_to(x, np.broadcast_shapes(x.shape, shape_of(sizes))),
    "Gather": lambda np_, x, indices, axis=0: np_.take(x, indices, axis, mode="clip"),
    "LayerNormalization": layer_norm,
    "LessOrEqual": lambda np_, a, b: a <= b,
    "MatMul": lambda np_, a, b: np_.matmul(a, b),
    "Mul": lambda np_, a, b: a * b,
    "Pow": lambda np_, a, b: a ** int(b) if np.size(b) == 1 and b == int(b) else np_.power(a, b),
    "Range": lambda np_, start, stop, step: np.arange(start, stop, step),
    "ReduceL2": lambda np_, x, axes, keepdims: np_.sqrt((x * x).sum(tuple(axes), keepdims=bool(keepdims))),
    "ReduceSum": lambda np_, x, axes, keepdims: x.sum(shape_of(axes), keepdims=bool(keepdims)),
    "Relu": lambda np_, x: jax.nn.relu(x),
    "Reshape": reshape,
    "Shape": lambda np_, x: np.array(x.shape, np.int64),
    "Slice": slice_,
    "Softmax": lambda np_, x, axis: jax.nn.softmax(x, axis),
    "Split": split_,
    "Sub": lambda np_, a, b: a - b,
    "Tanh": lambda np_, x: jnp.tanh(x),
    "Transpose": lambda np_, x, perm: np_.transpose(x, perm),
    "Unsqueeze": lambda np_, x, axes: np_.expand_dims(x, shape_of(axes)),
    "Where": lambda np_, condition, a, b: np_.where(condition, a, b),
}
