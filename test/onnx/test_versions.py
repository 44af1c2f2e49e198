"""Operators whose meaning depends on the operator set's version. ONNX's node tests cover only the newest."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import evaluate
from suite import backend


def rand(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def make(op, inputs, opset, **attributes):
    names = [f"i{k}" for k in range(len(inputs))]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["o"], name="n", **attributes)],
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in zip(names, inputs)],
        [helper.make_tensor_value_info("o", onnx.TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def check(folder, model, inputs, expected):
    """Evaluates the model, and compiles it for one device and for two."""
    case = evaluate.evaluate(folder, model, inputs)
    assert case.error is None, case.error
    outcomes = [case.imported, case.simplified]
    for mesh, strategy in [("", None), ("x=2", "random:3")]:
        program = backend.prepare(model, mesh=mesh, strategy=strategy, base=folder)
        outcomes.append(program.run(inputs))
        program.close()
    for (actual,) in outcomes:
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [18, 20, 21])
def test_group_normalization(tmp_path, opset):
    # Scale and bias have one element per group before version 21, one per channel since.
    channels, groups = 6, 3
    each = channels if opset >= 21 else groups
    x, scale, bias = rand(2, channels, 3, 4), rand(each, seed=1), rand(each, seed=2)
    rows = x.reshape(2, groups, -1)
    normal = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    per_channel = [np.repeat(v, channels // each).reshape(1, channels, 1, 1) for v in (scale, bias)]
    expected = normal.reshape(x.shape) * per_channel[0] + per_channel[1]
    model = make("GroupNormalization", [x, scale, bias], opset, num_groups=groups)
    np.testing.assert_allclose(ReferenceEvaluator(model).run(None, {"i0": x, "i1": scale, "i2": bias})[0], expected, 1e-4, 1e-5)
    check(tmp_path, model, [x, scale, bias], expected)


def test_group_normalization_checks_its_vectors(tmp_path):
    inputs = [rand(2, 6, 3), rand(6), rand(6)]
    case = evaluate.evaluate(tmp_path, make("GroupNormalization", inputs, 18, num_groups=3), inputs)
    assert case.error == "GroupNormalization 'n': input 1 is [6] for 3 groups"
