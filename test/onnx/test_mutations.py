"""Models with one or two faults: the importer makes a program that verifies, or reports the fault in one line, and never crashes. The
models come from ONNX's node tests and from this folder's tests of com.microsoft operators."""

from __future__ import annotations

import random
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import evaluate
import test_contrib
import test_node_cases

COUNT = 20000 if "--full" in sys.argv else 1000
NUMBERS = [0, 1, 2, 3, 5, 7, 64, -1, -2, -3, 1 << 31, (1 << 31) + 1, 1 << 40, 1 << 62, (1 << 63) - 1, -(1 << 63)]
TYPES = [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.INT32, TensorProto.UINT8, TensorProto.BOOL]


def seeds() -> list[onnx.ModelProto]:
    models = [test_node_cases.fix_operands(test)[0] for test in test_node_cases.TESTS]
    # One model for each combination of operator, attributes and ranks suffices.
    found = {}
    for model in models:
        node = model.graph.node[0]
        ranks = tuple(len(i.type.tensor_type.shape.dim) for i in model.graph.input)
        found[node.op_type, tuple(a.name for a in node.attribute), ranks, len(model.graph.node)] = model
    for op, (inputs, attributes, _) in test_contrib.REFUSALS.items():
        names = [f"i{k}" if value is not None else "" for k, value in enumerate(inputs)]
        given = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in zip(names, inputs)
            if n
        ]
        node = helper.make_node(op, names, ["y"], name="n", domain="com.microsoft", **attributes)
        graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        found[op, "contributed"] = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return list(found.values())


def mutate_attribute(model, rng):
    node = rng.choice(model.graph.node)
    if not node.attribute:
        return
    attribute = rng.choice(node.attribute)
    kind = rng.random()
    if kind < 0.15:
        node.attribute.remove(attribute)
    elif kind < 0.25:
        attribute.CopyFrom(helper.make_attribute(attribute.name, rng.choice([1, 0.5, "x", [1, 2], [0.5]])))
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = rng.choice(NUMBERS)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = rng.choice([0, -1, 1e38, float("nan"), float("inf")])
    elif attribute.type == onnx.AttributeProto.INTS and attribute.ints:
        if rng.random() < 0.5:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(NUMBERS)
        else:
            del attribute.ints[rng.randrange(len(attribute.ints))]
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = rng.choice([b"", b"x", b"gated", b"reverse", b"\xff"])


def mutate_shape(model, rng):
    if not model.graph.input:
        return
    value = rng.choice(model.graph.input).type.tensor_type
    dims = value.shape.dim
    kind = rng.random()
    if kind < 0.2:
        value.elem_type = rng.choice(TYPES)
    elif kind < 0.35 and dims:
        del dims[rng.randrange(len(dims))]
    elif kind < 0.5:
        dims.add().dim_value = rng.choice([1, 2, 3])
    elif dims:
        rng.choice(dims).dim_value = rng.choice([0, 1, 2, 3, 4, 5, 8, 16, 1 << 31, 1 << 62])


def mutate_operands(model, rng):
    node = rng.choice(model.graph.node)
    names = [i.name for i in model.graph.input] + [i.name for i in model.graph.initializer]
    if node.input and rng.random() < 0.7:
        node.input[rng.randrange(len(node.input))] = rng.choice([*names, ""])
    elif node.input:
        del node.input[rng.randrange(len(node.input)) :]
    else:
        node.input.append(rng.choice([*names, ""]))


def mutate_initializer(model, rng):
    if not model.graph.initializer:
        return
    tensor = rng.choice(model.graph.initializer)
    array = onnx.numpy_helper.to_array(tensor)
    if array.dtype.kind not in "iu" or array.size == 0:
        return
    flat = array.flatten()
    info = np.iinfo(array.dtype)
    flat[rng.randrange(flat.size)] = min(max(rng.choice(NUMBERS), info.min), info.max)
    tensor.CopyFrom(onnx.numpy_helper.from_array(flat.reshape(array.shape), tensor.name))


MUTATIONS = [mutate_attribute, mutate_shape, mutate_operands, mutate_initializer]


@pytest.fixture(scope="module")
def cases(tmp_path_factory) -> list[evaluate.Case]:
    folder = tmp_path_factory.mktemp("mutations")
    rng = random.Random(7)
    models = seeds()
    assert len(models) > 300
    cases = []
    for i in range(COUNT):
        model = onnx.ModelProto()
        model.CopyFrom(rng.choice(models))
        for _ in range(rng.choice([1, 1, 2])):
            rng.choice(MUTATIONS)(model, rng)
        # An input without a value stops the evaluation after the import.
        model.graph.input.append(helper.make_tensor_value_info("stop", TensorProto.FLOAT, [1]))
        cases.append(evaluate.Case(folder / str(i), model, []))
    evaluate.run(cases, memory=8 << 30)
    return cases


def test_no_crash_and_one_line(cases):
    for case in cases:
        error = case.error or ""
        assert not error.startswith("exit "), f"{case.folder}: {error}"
        assert "\n" not in error and not error.endswith("."), f"{case.folder}: {error}"


def test_one_error_each(cases):
    """An error is reported only once, where it arises."""
    for case in cases:
        parts = (case.error or "").split("; ")
        assert len(parts) == len(set(parts)), f"{case.folder}: {case.error}"


def test_most_are_refused_and_some_are_not(cases):
    imported = sum(case.error is None or " is missing or not of type" in case.error for case in cases)
    assert COUNT // 10 < imported < COUNT * 9 // 10
