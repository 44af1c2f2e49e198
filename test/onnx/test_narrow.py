"""Types of fewer than 8 bits: packed in files, one element per byte in programs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import evaluate
from suite import backend

TYPES = {
    "int4": ml_dtypes.int4,
    "uint4": ml_dtypes.uint4,
    "int2": ml_dtypes.int2,
    "uint2": ml_dtypes.uint2,
    "float4": ml_dtypes.float4_e2m1fn,
}
# Rows of whole bytes and others, a scalar, and weights too large to be folded.
SHAPES = [(4, 8), (3, 5), (), (7,), (512, 516), (257, 511)]


def numbers(dtype, shape, seed=0):
    """Random elements from the type's whole range."""
    bits = 2 if "2" in np.dtype(dtype).name and "int" in np.dtype(dtype).name else 4
    codes = np.random.default_rng(seed).integers(0, 1 << bits, shape).astype(np.uint8)
    if dtype == ml_dtypes.float4_e2m1fn:
        return codes.view(dtype)
    low = 0 if np.dtype(dtype).name.startswith("u") else -(1 << (bits - 1))
    return (codes.astype(np.int32) + low).astype(dtype)


def make(nodes, inputs, outputs, initializers=(), opset=25):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs],
        list(initializers),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=13)


def check(folder, model, inputs, expected, ranks=2):
    """Evaluates the model, and compiles it for one device and, unless `ranks` is 1, for two."""
    case = evaluate.evaluate(folder, model, inputs)
    assert case.error is None, case.error
    outcomes = [case.imported, case.simplified]
    for mesh, strategy in [("", None), ("x=2", "random:5")][:ranks]:
        program = backend.prepare(model, mesh=mesh, strategy=strategy, base=folder)
        outcomes.append(program.run(inputs))
        program.close()
    for i, values in enumerate(outcomes):
        for actual, want in zip(values, expected, strict=True):
            assert actual.dtype == (want if i > 1 else evaluate.carry(want)).dtype and actual.shape == want.shape
            np.testing.assert_allclose(actual.astype(np.float32), want.astype(np.float32), rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_initializers(tmp_path, name, shape):
    values = numbers(TYPES[name], shape)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    model = make(
        [helper.make_node("Cast", ["w"], ["c"], to=T.FLOAT), helper.make_node("Add", ["x", "c"], ["y"])],
        [("x", T.FLOAT, shape)],
        [("y", T.FLOAT)],
        [numpy_helper.from_array(values, "w")],
    )
    check(tmp_path, model, [x], [x + values.astype(np.float32)])


@pytest.mark.parametrize("name", TYPES)
def test_numbers_in_typed_fields(tmp_path, name):
    values = numbers(TYPES[name], (3, 5))
    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    tensor = helper.make_tensor("w", kind, values.shape, values.astype(np.float32).flatten().tolist())
    assert not tensor.HasField("raw_data")
    nodes = [helper.make_node("Cast", ["w"], ["c"], to=T.FLOAT), helper.make_node("Add", ["x", "c"], ["y"])]
    x = np.ones((3, 5), np.float32)
    model = make(nodes, [("x", T.FLOAT, (3, 5))], [("y", T.FLOAT)], [tensor])
    check(tmp_path, model, [x], [x + values.astype(np.float32)], ranks=1)


@pytest.mark.parametrize("name", TYPES)
def test_moves(tmp_path, name):
    # Passed through the program unchanged, and converted to each other.
    values, more = numbers(TYPES[name], (4, 6)), numbers(TYPES[name], (2, 6), seed=1)
    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    model = make(
        [
            helper.make_node("Concat", ["x", "w"], ["a"], axis=0),
            helper.make_node("Transpose", ["a"], ["t"]),
            helper.make_node("Slice", ["t", "from", "to"], ["y"]),
            helper.make_node("Cast", ["y"], ["z"], to=T.INT4),
        ],
        [("x", kind, (4, 6))],
        [("y", kind), ("z", T.INT4)],
        [
            numpy_helper.from_array(more, "w"),
            numpy_helper.from_array(np.array([1, 0]), "from"),
            numpy_helper.from_array(np.array([5, 6]), "to"),
        ],
    )
    moved = np.concatenate([values, more]).T[1:5, 0:6]
    check(tmp_path, model, [values], [moved, moved.astype(np.float32).astype(np.int32).astype(ml_dtypes.int4)])


@pytest.mark.parametrize("block", [0, 4])
@pytest.mark.parametrize("name", ["int4", "uint4", "uint2"])
def test_weights_in_blocks(tmp_path, name, block):
    # The output of weight quantizers: DequantizeLinear before MatMul.
    weight = numbers(TYPES[name], (16, 6))
    scale = np.random.default_rng(2).random((4, 6) if block else (6,)).astype(np.float32)
    point = numbers(TYPES[name], scale.shape, seed=3)
    x = np.random.default_rng(4).standard_normal((3, 16)).astype(np.float32)
    names = ["w", "s", "p"]
    flags = dict(axis=0, block_size=block) if block else dict(axis=1)
    model = make(
        [helper.make_node("DequantizeLinear", names, ["d"], **flags), helper.make_node("MatMul", ["x", "d"], ["y"])],
        [("x", T.FLOAT, (3, 16))],
        [("y", T.FLOAT)],
        [numpy_helper.from_array(v, n) for v, n in zip([weight, scale, point], names)],
    )
    spread = [np.repeat(v.astype(np.float32), block, 0) if block else v.astype(np.float32) for v in (scale, point)]
    real = (weight.astype(np.float32) - spread[1]) * spread[0]
    case = evaluate.evaluate(tmp_path, model, [x])
    assert case.error is None, case.error
    np.testing.assert_allclose(case.simplified[0], x @ real, rtol=1e-5, atol=1e-5)
    for mesh in ("", "x=2"):
        program = backend.prepare(model, mesh=mesh, strategy="random:1" if mesh else None, base=tmp_path)
        np.testing.assert_allclose(program.run([x])[0], x @ real, rtol=1e-5, atol=1e-5)
        program.close()


def test_a_function_keeps_the_type(tmp_path):
    # Through a function call: 9 is -7 in four bits.
    function = helper.make_function(
        "local", "Same", ["a"], ["b"], [helper.make_node("Identity", ["a"], ["b"])], [helper.make_opsetid("", 25)]
    )
    model = make(
        [
            helper.make_node("Cast", ["x"], ["n"], to=T.INT4),
            helper.make_node("Same", ["n"], ["m"], domain="local"),
            helper.make_node("Cast", ["m"], ["y"], to=T.INT8),
        ],
        [("x", T.FLOAT, (2,))],
        [("y", T.INT8), ("m", T.INT4)],
    )
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("local", 1))
    case = evaluate.evaluate(tmp_path, model, [np.array([9, -3], np.float32)])
    assert case.error is None, case.error
    assert case.simplified[0].tolist() == [-7, -3] and case.simplified[1].tolist() == [-7, -3]


def test_branches_refuse_them(tmp_path):
    branch = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["b"])], "branch", [], [helper.make_tensor_value_info("b", T.INT4, [2])]
    )
    model = make(
        [helper.make_node("If", ["c"], ["y"], name="i", then_branch=branch, else_branch=branch)],
        [("c", T.BOOL, ()), ("x", T.INT4, (2,))],
        [("y", T.INT4)],
    )
    case = evaluate.evaluate(tmp_path, model, [np.array(True), np.array([1, 2], np.int8)])
    assert case.error == "output 'b' of a subgraph is of 'i4', which is not supported; convert it (Cast)"
