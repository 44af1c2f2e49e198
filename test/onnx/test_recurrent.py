"""RNN, GRU and LSTM in every form, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import evaluate

onnxruntime.set_default_logger_severity(4)
STEPS, BATCH, INPUTS, SIZE = 4, 3, 5, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def rand(seed, *shape):
    return (np.random.default_rng(seed).standard_normal(shape) * 0.6).astype(np.float32)


def build(op, direction="forward", bias=True, state=False, lengths=None, peephole=False, known=True, **attributes):
    """A model, its inputs and its number of outputs."""
    ways, rows = (2 if direction == "bidirectional" else 1), GATES[op] * SIZE
    values = {
        "X": rand(1, STEPS, BATCH, INPUTS),
        "W": rand(2, ways, rows, INPUTS),
        "R": rand(3, ways, rows, SIZE),
        "B": rand(4, ways, 2 * rows) if bias else None,
        "L": None if lengths is None else np.array(lengths, np.int32),
        "H": rand(5, ways, BATCH, SIZE) if state else None,
    }
    if op == "LSTM":
        values["C"] = rand(6, ways, BATCH, SIZE) if state else None
        values["P"] = rand(7, ways, 3 * SIZE) if peephole else None
    weights = {"W", "R", "B", "P"} | ({"L"} if known else set())
    given = {k: v for k, v in values.items() if v is not None and k not in weights}
    outputs = ["Y", "Y_h", "Y_c"][: 3 if op == "LSTM" else 2]
    names = [k if v is not None else "" for k, v in values.items()]
    node = helper.make_node(op, names, outputs, name="n", hidden_size=SIZE, direction=direction, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in given.items()],
        [helper.make_tensor_value_info(k, 1, None) for k in outputs],
        [numpy_helper.from_array(v, k) for k, v in values.items() if v is not None and k in weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), given


FORMS = {
    "plain": {},
    "no-bias": dict(bias=False),
    "state": dict(state=True),
    "reverse": dict(direction="reverse", state=True),
    "both": dict(direction="bidirectional", state=True),
    "lengths": dict(lengths=[4, 2, 3], state=True),
    "lengths-backwards": dict(direction="bidirectional", lengths=[1, 4, 2], state=True),
    "lengths-at-run-time": dict(direction="bidirectional", lengths=[1, 4, 2], known=False),
    "clip": dict(clip=0.4, state=True),
}


def activations(op, *names):
    return list(names[: {"RNN": 1, "GRU": 2, "LSTM": 3}[op]])


def check(folder, model, given):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, given)
    case = evaluate.evaluate(folder, model, list(given.values()))
    assert case.error is None, case.error
    for outputs in (case.imported, case.simplified):
        for actual, want in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(actual, want, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op", GATES)
def test_forms(tmp_path, op, form):
    check(tmp_path, *build(op, **FORMS[form]))


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize(
    "names, alpha, beta",
    [
        (("Relu", "Softsign", "Softplus"), [], []),
        (("HardSigmoid", "LeakyRelu", "Tanh"), [0.3, 0.2], [0.4]),
        (("Affine", "ScaledTanh", "Elu"), [0.5, 0.7, 0.9], [0.1, 0.8]),
        (("ThresholdedRelu", "tanh", "relu"), [0.1], []),
    ],
    ids=lambda value: "-".join(map(str, value)),
)
def test_activations(tmp_path, op, names, alpha, beta):
    numbers = {k: v for k, v in [("activation_alpha", alpha), ("activation_beta", beta)] if v}
    check(tmp_path, *build(op, activations=activations(op, *names), **numbers))


@pytest.mark.parametrize("first", [0, 1])
def test_gru_linear_before_reset(tmp_path, first):
    check(tmp_path, *build("GRU", direction="bidirectional", state=True, linear_before_reset=first))


@pytest.mark.parametrize("coupled", [0, 1])
def test_lstm_peepholes_and_coupling(tmp_path, coupled):
    check(tmp_path, *build("LSTM", direction="bidirectional", state=True, peephole=True, input_forget=coupled))


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(direction="sideways"), "direction 'sideways' is not one of forward, reverse, bidirectional"),
        (dict(activations=["Sigmoid"]), "has 1 activations, expected 3"),
        (dict(activations=["Sigmoid", "Gauss", "Tanh"]), "activation 'Gauss' is not supported"),
    ],
)
def test_refused(tmp_path, change, message):
    model, given = build("LSTM", **change)
    case = evaluate.evaluate(tmp_path, model, list(given.values()))
    assert case.error == f"LSTM 'n': {message}"


def test_sequence_too_long(tmp_path):
    model, given = build("RNN")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 100000
    case = evaluate.evaluate(tmp_path, model, list(given.values()))
    assert "a sequence of 100000 steps is longer than the 1024 that can be unrolled" in (case.error or "")
