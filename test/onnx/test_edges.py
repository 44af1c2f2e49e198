"""Single nodes at an operator's edge cases, against ONNX Runtime, imported and compiled. Each was wrong once."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import evaluate
from suite import backend

X = np.arange(48, dtype=np.float32).reshape(1, 2, 3, 8)


def fixed(*values) -> tuple:
    """An initializer as operand."""
    return (np.float32(values[0] if len(values) == 1 else values),)


def numbers(*values) -> list:
    """Integer initializers."""
    return [(np.int64(value),) for value in values]


def half(*shape, fill=0) -> np.ndarray:
    return np.full(shape, fill, np.float16)


TEN = np.arange(10, dtype=np.float32).reshape(1, 1, 1, 10)
WIDE = np.float16([400, -400, 300, -300]).reshape(1, 2, 2)  # squares are beyond the largest f16, 65504
BYTES = np.tile(np.uint8([0, 255, 255, 0, 0, 255, 0, 255]), (1, 1, 2, 1))  # cubic interpolation goes beyond both ends
CUBIC = np.tile(np.uint8([0, 105, 255, 255, 192, 24, 0, 27, 220, 184, 1, 130, 255]), (1, 1, 2, 1))
ONES = (np.ones(2, np.float16),)

# name: opset, operator, operands (arrays are inputs), attributes, number of results, the result where ONNX Runtime has none
EDGES = {
    "quantize-zeros": (13, "DynamicQuantizeLinear", [np.zeros((1, 2), np.float32)], {}, 3),
    "resize-to-one": (
        13, "Resize", [X, None, fixed(1, 1, 0.5, 2)],
        {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}, 1,
    ),
    "power-of-two": (13, "Pow", [fixed(2), np.float32([0.5, -3, 7])], {}, 1),
    "power-of-ten": (13, "Pow", [fixed(10), np.float32([0.5, -3, 2])], {}, 1),
    "root": (13, "Pow", [np.float32([-np.inf, -0.0, 0, np.inf, 4, -1]), fixed(0.5)], {}, 1),
    "inverse-root": (13, "Pow", [np.float32([-np.inf, -0.0, 0, np.inf, 4, -1]), fixed(-0.5)], {}, 1),
    "power-of-integers": (13, "Pow", [np.int32([3, 7, -3]), np.float32([17, 9, 17])], {}, 1),
    "odd-power-f16": (15, "Pow", [-ONES[0], np.int32([2049, 2050])], {}, 1),
    "odd-power-f32": (15, "Pow", [np.float32([-1, -1]), (np.int64([2**24 + 1, 2**33 + 1]),)], {}, 1),
    "odd-power-of-integers": (15, "Pow", [np.int32([-1, 0]), np.int64([2**33 + 1, 2**33])], {}, 1),
    "resize-shrinks-10": (10, "Resize", [X[:, :, :2, :4].copy(), fixed(1, 1, 0.6, 0.6)], {"mode": "nearest"}, 1),
    "resize-shrinks-and-grows-10": (10, "Resize", [X, fixed(1, 1, 1.5, 0.7)], {"mode": "nearest"}, 1),
    "resize-to-whole-length": (13, "Resize", [TEN, None, fixed(1, 1, 1, 1.3)], {"mode": "linear"}, 1),
    "resize-from-whole-place": (
        13, "Resize", [TEN, None, fixed(1, 1, 1, 0.6)],
        {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}, 1,
    ),
    "resize-half-way": (
        19, "Resize", [TEN, None, fixed(1, 1, 1, 1.2)],
        {"mode": "nearest", "nearest_mode": "round_prefer_ceil", "coordinate_transformation_mode": "asymmetric"}, 1,
    ),
    "resize-half-pixel": (13, "Resize", [TEN, None, fixed(1, 1, 1, 3.4)], {"mode": "nearest", "nearest_mode": "floor"}, 1),
    "resize-to-border": (
        13, "Resize", [TEN, fixed(0, 0, 0, 0.3, 1, 1, 1, 1.1), None, *numbers([1, 1, 1, 9])],
        {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": -9.0}, 1,
    ),
    "resize-bytes-cubic": (19, "Resize", [BYTES, None, None, *numbers([1, 1, 2, 13])], {"mode": "cubic"}, 1, CUBIC),
    "resize-bytes-filtered": (19, "Resize", [BYTES, None, None, *numbers([1, 1, 2, 13])], {"mode": "cubic", "antialias": 1}, 1),
    "resize-integers-filtered": (
        19, "Resize", [BYTES.astype(np.int32), None, None, *numbers([1, 1, 2, 5])], {"mode": "linear", "antialias": 1}, 1,
    ),
    "resize-leaves-integers": (
        19, "Resize", [np.int32([[[[2**24 + 1]]]]), None, None, *numbers([1, 1, 1, 1])], {"mode": "linear"}, 1,
    ),
    "dropout-mask-7": (7, "Dropout", [X], {}, 2),
    "dropout-mask-10": (10, "Dropout", [X], {}, 2),
    "resize-no-images": (13, "Resize", [np.zeros((0, 2, 3, 3), np.float32), None, fixed(1, 1, 2, 2)], {"mode": "linear"}, 1),
    "upsample-to-whole-length": (9, "Upsample", [TEN, fixed(1, 1, 1, 1.3)], {"mode": "nearest"}, 1),
    "slice-from-before": (13, "Slice", [X[0, 0, 0, :5], *numbers([-10], [-(2**63)], [0], [-1])], {}, 1),
    "slice-to-first": (13, "Slice", [X[0, 0, 0, :5], *numbers([-10], [0], [0], [-1])], {}, 1),
    "shrink-bytes": (13, "Shrink", [np.uint8([0, 1, 2, 5])], {"lambd": 1.5}, 1),
    "shrink-integers": (13, "Shrink", [np.int32([-3, 0, 2, 5])], {"lambd": 0.5, "bias": 1.5}, 1),
    "half-a-product": (
        13, "Gemm", [np.int32([[3]]), (np.int32([[3]]),), np.int32([[3]])], {"alpha": 0.5, "beta": 0.5}, 1, np.int32([[6]]),
    ),
    "range-of-large": (13, "Range", numbers(2**53 + 1, 2**53 + 4, 1), {}, 1, np.arange(2**53 + 1, 2**53 + 4)),
    "range-of-all": (13, "Range", numbers(2**63 - 1, -(2**63), -(2**62)), {}, 1),
    "range-of-many": (13, "Range", numbers(2**53 + 1, 2**53 + 20001, 2), {}, 1),
    "diagonal-beyond": (14, "Trilu", [X, *numbers(2**63 - 1)], {"upper": 0}, 1),
    "diagonal-before": (14, "Trilu", [X, *numbers(-(2**63))], {"upper": 1}, 1),
    "eye-beyond": (13, "EyeLike", [X[0, 0]], {"k": 2**63 - 1}, 1),
    "einsum-broadcast": (
        13, "Einsum", [X[:, 0, :2, :3].copy(), X[0, :, :, :5].copy()], {"equation": "...ij,...jk->...ik"}, 1,
    ),
    "einsum-broadcast-both": (
        13, "Einsum", [X[0, :1, :, :4].copy(), X[0, :, :1, :4].copy()], {"equation": "...i,...i->i..."}, 1,
    ),
    "vector-of-one-channel": (
        15, "BatchNormalization", [X[0, 0, 0], *[fixed(v)[0].reshape(1) for v in (2, 3, 0.5, 4)]], {}, 1,
    ),
    "largest-of-none": (20, "ReduceMax", [np.zeros((2, 0), np.int16), *numbers([1])], {}, 1, np.full((2, 1), -(2**15), np.int16)),
    "least-of-none": (20, "ReduceMin", [np.zeros((2, 0), np.int32), *numbers([1])], {}, 1),
    "any-of-none": (20, "ReduceMax", [np.zeros((2, 0), np.bool_), *numbers([1])], {}, 1, np.zeros((2, 1), np.bool_)),
    "all-of-none": (20, "ReduceMin", [np.zeros((2, 0), np.bool_), *numbers([1])], {}, 1, np.ones((2, 1), np.bool_)),
    "mean-f16": (13, "GlobalAveragePool", [half(1, 1, 112, 112, fill=8)], {}, 1),
    "average-pool-f16": (13, "AveragePool", [half(1, 1, 64, 70, fill=20)], {"kernel_shape": [64, 64], "pads": [0, 1, 0, 1]}, 1),
    "group-normalization-f16": (21, "GroupNormalization", [WIDE, ONES, ONES], {"num_groups": 1}, 1),
    "instance-normalization-f16": (13, "InstanceNormalization", [WIDE, ONES, ONES], {}, 1),
    "layer-normalization-f16": (17, "LayerNormalization", [WIDE, ONES], {}, 3),
    "log-softmax-f16": (13, "LogSoftmax", [half(1, 70000)], {}, 1),
    "log-sum-exp-f16": (13, "ReduceLogSumExp", [half(1, 70000)], {"axes": [1]}, 1),
    "log-sum-f16": (13, "ReduceLogSum", [half(1, 40000, fill=2)], {"axes": [1]}, 1),
    "length-f16": (13, "ReduceL2", [WIDE], {"axes": [1, 2]}, 1),
    "global-lp-pool-f16": (13, "GlobalLpPool", [WIDE], {}, 1),
}  # fmt: skip


def make_model(opset, op, operands, attributes, results, known=None):
    inputs = {f"x{i}": a for i, a in enumerate(operands) if isinstance(a, np.ndarray)}
    weights = {f"c{i}": np.asarray(a[0]) for i, a in enumerate(operands) if isinstance(a, tuple)}
    types = {name: helper.np_dtype_to_tensor_dtype(a.dtype) for name, a in inputs.items()}
    given = [helper.make_tensor_value_info(name, types[name], a.shape) for name, a in inputs.items()]
    names = [next((n for n in (f"x{i}", f"c{i}") if n in inputs | weights), "") for i in range(len(operands))]
    node = helper.make_node(op, names, [f"y{i}" for i in range(results)], **attributes)
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    fixed = [numpy_helper.from_array(a, name) for name, a in weights.items()]
    graph = helper.make_graph([node], "g", given, outputs, fixed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    if known is None:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        expected = [np.asarray(a) for a in session.run(None, inputs)]
    else:
        expected = [known]
    for output, array in zip(model.graph.output, expected):
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        output.CopyFrom(helper.make_tensor_value_info(output.name, kind, array.shape))
    return list(inputs.values()), model, expected


@pytest.mark.parametrize("name", EDGES)
def test_edge(name, tmp_path):
    inputs, model, expected = make_model(*EDGES[name])
    case = evaluate.Case(tmp_path, model, inputs)
    evaluate.run([case])
    assert case.error is None, case.error
    for actual in (case.imported, case.simplified, backend.run_model(model, inputs)):
        for want, got in zip(expected, actual, strict=True):
            exact = want.dtype.kind in "biu"
            tolerance = 0 if exact else max(1e-6, np.finfo(want.dtype).eps)
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op, values", [("ReduceSum", [6e4, 6e4, -6e4, -6e4]), ("ReduceProd", [1000, 1000, 0.001, 0.001])])
def test_parts_beyond_f16(op, values):
    """The sum or product of a device's part may be beyond f16 where that of all parts is not."""
    inputs, model, expected = make_model(13, op, [np.float16(values)], {}, 1)
    actual = backend.run_model(model, inputs, mesh="x=2", shard={"x0": "[{x}]"})
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-3)
