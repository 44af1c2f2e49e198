"""ONNX's own node tests, imported and evaluated, before and after the simplify phase.

Every case whose operators and types the importer knows must pass. Operands that give shapes are
inputs in these models; they become initializers here, as exporters write them.
"""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import evaluate
import suite
from suite import backend

T = onnx.TensorProto
TYPES = {T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16, T.BOOL, T.INT8, T.INT16, T.INT32, T.INT64, T.UINT8, T.UINT16}
TYPES |= {T.UINT32, T.UINT64, T.FLOAT8E4M3FN, T.FLOAT8E5M2, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2FNUZ}
TYPES |= {T.INT4, T.UINT4, T.INT2, T.UINT2, T.FLOAT4E2M1}


def is_known(test, operators: set[str]) -> bool:
    """Whether the importer claims all operators, attributes and types of the case."""
    graph = test.model.graph
    opset = next((o.version for o in test.model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if not 1 <= opset <= 28 or not test.data_sets:
        return False
    for node in graph.node:
        prefix = "" if node.domain in ("", "ai.onnx") else f"{node.domain}."
        if prefix + node.op_type not in operators:
            return False
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i not in TYPES:
                return False
            if attribute.name == "value" and attribute.t.data_type not in TYPES:
                return False
    return all(
        value.type.HasField("tensor_type") and value.type.tensor_type.elem_type in TYPES
        for value in [*graph.input, *graph.output]
    )


def to_array(value) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def fix_operands(test) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """The model with shape-giving inputs as initializers, and the remaining inputs."""
    model = onnx.ModelProto()
    model.CopyFrom(test.model)
    values = {i.name: to_array(value) for i, value in zip(model.graph.input, test.data_sets[0][0])}
    fixed = backend.fixed_inputs(model) & values.keys()
    inputs = [i for i in model.graph.input if i.name not in fixed]
    for name in sorted(fixed):
        model.graph.initializer.append(numpy_helper.from_array(values[name], name))
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return model, [values[i.name] for i in inputs]


def load():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        operators = evaluate.operators()
        return [test for test in load_model_tests(kind="node") if is_known(test, operators)]


TESTS = load()


@pytest.fixture(scope="session")
def cases(tmp_path_factory) -> dict[str, evaluate.Case]:
    folder = tmp_path_factory.mktemp("node")
    cases = {test.name: evaluate.Case(folder / test.name, *fix_operands(test)) for test in TESTS}
    evaluate.run(list(cases.values()))
    return cases


def test_there_are_many():
    assert len(TESTS) > 750


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
def test_node(test, cases):
    case = cases[test.name]
    assert case.error is None, case.error
    expected = [to_array(value) for value in test.data_sets[0][1]]
    names = [output.name for output in test.model.graph.output]
    for outputs in (case.imported, case.simplified):
        outputs = list(backend.trim(dict(zip(case.names, outputs, strict=True)), names).values())
        assert len(outputs) == len(expected)
        for actual, want in zip(outputs, map(evaluate.carry, expected)):
            assert actual.dtype == want.dtype and actual.shape == want.shape
            if test.name in suite.DRAWN:
                continue  # test_training.py compares the numbers
            rtol = test.rtol
            if actual.dtype.name == "bfloat16":
                # Intermediate results are rounded as well: allow a few units in the last of 8 bits.
                actual, want, rtol = actual.astype(np.float32), want.astype(np.float32), 2**-6
            elif actual.dtype.name.startswith("float8"):
                actual, want = actual.astype(np.float32), want.astype(np.float32)
            elif actual.dtype == np.float16 and "expanded" in test.name:
                # The same for 11 bits, where every node of a function's body rounds.
                rtol = 2**-9
            np.testing.assert_allclose(actual, want, rtol=rtol, atol=max(test.atol, 1e-6))
