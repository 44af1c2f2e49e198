"""ONNX models of gridloom.zoo as JAX functions, for train_vs_jax.py.

Values that hold no weight and no input's elements (shapes, constants) are computed with numpy while the function is traced, so that
shapes stay known. Operators are those of mlp, bert, minilm, gpt2, and of resnet in training mode."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax import lax
from onnx import numpy_helper

DTYPES = {onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.INT64: np.int32, onnx.TensorProto.BOOL: np.bool_}


def split(model: onnx.ModelProto) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The initializers: the floats, which are trained, and the rest, with running statistics."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    running = {name for node in model.graph.node if node.op_type == "BatchNormalization" for name in node.input[3:]}
    weights = {name: value for name, value in values.items() if value.dtype == np.float32 and name not in running}
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


def convolve(_, x, weight, kernel_shape, strides, pads, dilations, group):
    before, after = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    return lax.conv_general_dilated(x, weight, strides, list(zip(before, after)), rhs_dilation=dilations, feature_group_count=group)


def batch_norm(_, x, scale, bias, mean, variance, epsilon, training_mode):
    """By the statistics of the batch; running ones are nobody's input here."""
    assert training_mode
    axes, shape = (0, 2, 3), (1, -1, 1, 1)
    mean = x.mean(axes)
    variance = ((x - mean.reshape(shape)) ** 2).mean(axes)
    y = (x - mean.reshape(shape)) * lax.rsqrt(variance + epsilon).reshape(shape) * scale.reshape(shape) + bias.reshape(shape)
    return y, mean, variance


def max_pool(_, x, kernel_shape, strides, pads):
    around = [(0, 0), (0, 0), *zip(pads[: len(pads) // 2], pads[len(pads) // 2 :])]
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, *kernel_shape), (1, 1, *strides), around)


def gemm(_, a, b, c, alpha, beta, transB):
    return alpha * (a @ (b.T if transB else b)) + beta * c


OPERATORS = {
    "Add": lambda np_, a, b: a + b,
    "BatchNormalization": batch_norm,
    "Cast": lambda np_, x, to: x.astype(DTYPES[to]),
    "Clip": clip,
    "Concat": lambda np_, *parts, axis: np_.concatenate(parts, axis),
    "Constant": lambda np_, value: numpy_helper.to_array(value),
    "Conv": convolve,
    "Div": lambda np_, a, b: a / b,
    "Erf": lambda np_, x: lax.erf(x),
    "Expand": lambda np_, x, sizes: np_.broadcast_to(x, np.broadcast_shapes(x.shape, shape_of(sizes))),
    "Flatten": lambda np_, x, axis: x.reshape(int(np.prod(x.shape[:axis])), -1),
    "Gather": lambda np_, x, indices, axis=0: np_.take(x, indices, axis, mode="clip"),
    "Gemm": gemm,
    "GlobalAveragePool": lambda np_, x: x.mean((2, 3), keepdims=True),
    "LayerNormalization": layer_norm,
    "LessOrEqual": lambda np_, a, b: a <= b,
    "MatMul": lambda np_, a, b: np_.matmul(a, b),
    "MaxPool": max_pool,
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
