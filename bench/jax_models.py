"""ONNX models of gridloom.zoo as JAX functions, for train_vs_jax.py and test/python/test_gradients_jax.py.

Values that depend on no weight's or input's elements (shapes, constants) are computed with numpy while the function is traced, so that
shapes stay known. It implements the operators of the zoo and of PP-OCR's detector, in the forms that these use, and refuses other forms.
With `widen` and jax_enable_x64 a model is computed in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax import lax
from onnx import numpy_helper

T = onnx.TensorProto
GELU = (2**0.5, (2 / np.pi) ** 0.5, 0.044715)
DTYPES = {T.FLOAT: np.float32, T.DOUBLE: np.float64, T.INT32: np.int32, T.INT64: np.int32, T.BOOL: np.bool_}


def split(model: onnx.ModelProto) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The initializers: the floats that are trained, and the others, including the running statistics of training mode."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    running = {
        name for node in model.graph.node for name in node.input[3:]
        if node.op_type == "BatchNormalization" and any(a.name == "training_mode" and a.i for a in node.attribute)
    }  # fmt: skip
    weights = {name: value for name, value in values.items() if np.issubdtype(value.dtype, np.floating) and name not in running}
    return weights, {name: value for name, value in values.items() if name not in weights}


def widen(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with float64 in place of float32. Constants of Gelu's formulas, by which compilers recognise it, get the digits that
    float32 took from them."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)

    def widened(tensor):
        if tensor.data_type != T.FLOAT:
            return tensor
        values = numpy_helper.to_array(tensor)
        exact = next((c for c in GELU if values.size == 1 and values == np.float32(c)), None)
        return numpy_helper.from_array(values.astype(np.float64) if exact is None else np.full(values.shape, exact), tensor.name)

    for tensor in wide.graph.initializer:
        tensor.CopyFrom(widened(tensor))
    for value in [*wide.graph.input, *wide.graph.output]:
        if value.type.tensor_type.elem_type == T.FLOAT:
            value.type.tensor_type.elem_type = T.DOUBLE
    del wide.graph.value_info[:]
    for node in wide.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                attribute.t.CopyFrom(widened(attribute.t))
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == T.FLOAT:
                attribute.i = T.DOUBLE
    return wide


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


def slice_(_, x, starts, ends, axes=None, steps=None):
    ranges = [slice(None)] * x.ndim
    axes, steps = (range(len(starts)) if axes is None else axes), ([1] * len(starts) if steps is None else steps)
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
    """The derivative at the bounds is 1; jnp.clip's is a half."""
    if np_ is np:
        return np.clip(x, low, high)
    x = x if low is None else jnp.where(x < low, low, x)
    return x if high is None else jnp.where(x > high, high, x)


def reduce_mean(np_, x, axes, keepdims=1):
    return x.mean(tuple(axes), keepdims=bool(keepdims))


def gemm(_, a, b, c=None, alpha=1.0, beta=1.0, transA=0, transB=0):  # noqa: N803
    product = alpha * ((a.T if transA else a) @ (b.T if transB else b))
    return product if c is None else product + beta * c


def one_hot(_, indices, depth, values, axis=-1):
    assert axis == -1, "OneHot along another axis than the last"
    off, on = np.ravel(values)
    return jnp.where(indices[..., None] == jnp.arange(int(np.ravel(depth)[0])), on, off)


def top_k(_, x, k, axis=-1, largest=1, sorted=1):
    assert axis in (-1, x.ndim - 1) and largest, "TopK along another axis than the last, or of the smallest"
    return lax.top_k(x, int(np.ravel(k)[0]))


def pairs(pads, rank: int) -> list[tuple[int, int]]:
    """ONNX's pads: all lower ones, then all upper ones."""
    return list(zip(pads[:rank], pads[rank:])) if pads else [(0, 0)] * rank


def conv(_, x, w, bias=None, kernel_shape=None, strides=None, pads=None, dilations=None, group=1):
    rank = x.ndim - 2
    y = lax.conv_general_dilated(
        x, w, strides or [1] * rank, pairs(pads, rank), rhs_dilation=dilations, feature_group_count=group
    )
    return y if bias is None else y + bias.reshape(-1, *[1] * rank)


def conv_transpose(_, x, w, bias=None, kernel_shape=None, strides=None, pads=None, dilations=None, group=1):
    """A transposed convolution: convolves x, with zeros between its elements, by the mirrored weights with strides 1."""
    rank = x.ndim - 2
    assert group == 1 and set(dilations or [1]) == {1}, "ConvTranspose with groups or dilations"
    mirrored = jnp.flip(jnp.swapaxes(w, 0, 1), range(2, 2 + rank))
    around = [(k - 1 - low, k - 1 - high) for k, (low, high) in zip(w.shape[2:], pairs(pads, rank))]
    y = lax.conv_general_dilated(x, mirrored, [1] * rank, around, lhs_dilation=strides or [1] * rank)
    return y if bias is None else y + bias.reshape(-1, *[1] * rank)


def max_pool(_, x, kernel_shape, strides=None, pads=None, dilations=None, ceil_mode=0):
    rank = x.ndim - 2
    assert not ceil_mode and set(dilations or [1]) == {1}, "MaxPool with ceil_mode or dilations"
    around = [(0, 0), (0, 0), *pairs(pads, rank)]
    return lax.reduce_window(x, -np.inf, lax.max, (1, 1, *kernel_shape), (1, 1, *(strides or [1] * rank)), around)


def batch_norm(_, x, scale, bias, mean, var, epsilon=1e-5, momentum=0.9, training_mode=0):
    def wide(v):
        return v.reshape(-1, *[1] * (x.ndim - 2))

    if not training_mode:
        return (x - wide(mean)) * lax.rsqrt(wide(var) + epsilon) * wide(scale) + wide(bias)
    axes = (0, *range(2, x.ndim))
    now = x.mean(axes)
    spread = ((x - wide(now)) ** 2).mean(axes)
    y = (x - wide(now)) * lax.rsqrt(wide(spread) + epsilon) * wide(scale) + wide(bias)
    return y, mean * momentum + now * (1 - momentum), var * momentum + spread * (1 - momentum)


def resize(_, x, region=None, scales=None, sizes=None, mode=b"nearest", coordinate_transformation_mode=b"", nearest_mode=b""):
    forms = (mode, coordinate_transformation_mode, nearest_mode)
    assert forms == (b"nearest", b"asymmetric", b"floor"), f"Resize {forms}"
    for axis, scale in enumerate(np.asarray(scales)):
        x = x if scale == 1 else jnp.repeat(x, int(scale), axis)
    return x


def lstm(_, x, w, r, b, hidden_size, direction=b"forward"):
    """Gates are in the order input, output, forget, cell; x is [steps, batch, features], the result [steps, directions, batch, hidden]."""

    def run(x, w, r, bias):
        def step(state, gates):
            h, c = state
            i, o, f, g = jnp.split(gates + h @ r.T + bias, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((x.shape[1], hidden_size), x.dtype)
        return lax.scan(step, (zero, zero), x @ w.T)[1]

    biases = b[:, : 4 * hidden_size] + b[:, 4 * hidden_size :]
    hs = [run(x, w[0], r[0], biases[0])] if direction != b"reverse" else []
    if direction != b"forward":
        hs.append(run(x[::-1], w[-1], r[-1], biases[-1])[::-1])
    return jnp.stack(hs, axis=1)


def cross_entropy(_, scores, labels, reduction=b"mean"):
    """The mean over all labels; classes are dimension 1."""
    assert reduction == b"mean", "SoftmaxCrossEntropyLoss with another reduction"
    logs = scores - jax.nn.logsumexp(scores, axis=1, keepdims=True)
    return -jnp.take_along_axis(logs, labels[:, None], axis=1).mean()


OPERATORS = {
    "Add": lambda np_, a, b: a + b,
    "BatchNormalization": batch_norm,
    "Cast": lambda np_, x, to: x.astype(DTYPES[to]),
    "Clip": clip,
    "Concat": lambda np_, *parts, axis: np_.concatenate(parts, axis),
    "Constant": lambda np_, value: numpy_helper.to_array(value),
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Cos": lambda np_, x: np_.cos(x),
    "Div": lambda np_, a, b: a / b,
    "Erf": lambda np_, x: lax.erf(x),
    "Expand": lambda np_, x, sizes: np_.broadcast_to(x, np.broadcast_shapes(x.shape, shape_of(sizes))),
    "Flatten": lambda np_, x, axis=1: x.reshape(int(np.prod(x.shape[:axis])), -1),
    "Gather": lambda np_, x, indices, axis=0: np_.take(x, indices, axis, mode="clip"),
    "Gemm": gemm,
    "GlobalAveragePool": lambda np_, x: x.mean(range(2, x.ndim), keepdims=True),
    "HardSigmoid": lambda np_, x, alpha=0.2, beta=0.5: clip(jnp, alpha * x + beta, 0.0, 1.0),
    "Identity": lambda np_, x: x,
    "LSTM": lstm,
    "LayerNormalization": layer_norm,
    "LessOrEqual": lambda np_, a, b: a <= b,
    "MatMul": lambda np_, a, b: np_.matmul(a, b),
    "MaxPool": max_pool,
    "Mul": lambda np_, a, b: a * b,
    "Neg": lambda np_, x: -x,
    "OneHot": one_hot,
    "Pow": lambda np_, a, b: a ** int(b) if np.size(b) == 1 and b == int(b) else np_.power(a, b),
    "Range": lambda np_, start, stop, step: np.arange(start, stop, step),
    "ReduceL2": lambda np_, x, axes, keepdims: np_.sqrt((x * x).sum(tuple(axes), keepdims=bool(keepdims))),
    "ReduceMean": reduce_mean,
    "ReduceSum": lambda np_, x, axes=None, keepdims=1: x.sum(None if axes is None else shape_of(axes), keepdims=bool(keepdims)),
    "Relu": lambda np_, x: jax.nn.relu(x),
    "Reshape": reshape,
    "Resize": resize,
    "Shape": lambda np_, x: np.array(x.shape, np.int64),
    "Sigmoid": lambda np_, x: jax.nn.sigmoid(x),
    "Sin": lambda np_, x: np_.sin(x),
    "Slice": slice_,
    "Softmax": lambda np_, x, axis=-1: jax.nn.softmax(x, axis),
    "SoftmaxCrossEntropyLoss": cross_entropy,
    "Split": split_,
    "Sqrt": lambda np_, x: np_.sqrt(x),
    "Sub": lambda np_, a, b: a - b,
    "Tanh": lambda np_, x: jnp.tanh(x),
    "TopK": top_k,
    "Transpose": lambda np_, x, perm: np_.transpose(x, perm),
    "Unsqueeze": lambda np_, x, axes: np_.expand_dims(x, shape_of(axes)),
    "Where": lambda np_, condition, a, b: np_.where(condition, a, b),
}
