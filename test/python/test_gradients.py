"""--gradients-of: gradients as outputs of a compiled plan, on meshes, compared with float64 formulas and with differences."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gridloom import zoo

BATCH, FEATURES, HIDDEN, CLASSES = 8, 12, 16, 6
MESHES = ["data=1", "data=2", "data=3", "model=2", "data=2,model=2"]


def make_classifier(path, rng):
    """relu(x W1 + b1) W2, and the sum of its rows' cross entropies. Some hidden values are exactly 0."""
    weights = {
        "W1": rng.standard_normal((FEATURES, HIDDEN)),
        "b1": rng.standard_normal(HIDDEN),
        "W2": rng.standard_normal((HIDDEN, CLASSES)),
    }
    weights["W1"][:, 0] = weights["b1"][0] = 0
    nodes = [
        helper.make_node("MatMul", ["x", "W1"], ["product"], name="MatMul_1"),
        helper.make_node("Add", ["product", "b1"], ["sum"], name="Add_1"),
        helper.make_node("Relu", ["sum"], ["hidden"], name="Relu_1"),
        helper.make_node("MatMul", ["hidden", "W2"], ["logits"], name="MatMul_2"),
        helper.make_node("SoftmaxCrossEntropyLoss", ["logits", "labels"], ["loss"], name="Loss", reduction="sum"),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", FEATURES]),
            helper.make_tensor_value_info("labels", TensorProto.INT64, ["batch"]),
        ],
        [
            helper.make_tensor_value_info("loss", TensorProto.FLOAT, []),
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES]),
        ],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return {name: value.astype(np.float32).astype(np.float64) for name, value in weights.items()}


def differentiate_classifier(weights, x, labels):
    """The derivatives of softmax cross entropy and of a hidden layer, in float64; Relu's derivative at 0 is 0."""
    total = x @ weights["W1"] + weights["b1"]
    hidden = np.maximum(total, 0)
    logits = hidden @ weights["W2"]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    by_logits = shares - np.eye(CLASSES)[labels]
    by_total = (by_logits @ weights["W2"].T) * (total > 0)
    return {
        "loss": -np.log(shares[np.arange(len(x)), labels]).sum(),
        "W1.grad": x.T @ by_total,
        "b1.grad": by_total.sum(0),
        "W2.grad": hidden.T @ by_logits,
        "x.grad": by_total @ weights["W1"].T,
    }


def assert_near(actual, expected, name):
    assert actual.shape == expected.shape, name
    assert np.abs(actual - expected).max() <= 1e-5 * np.abs(expected).max(), name


@pytest.mark.parametrize("mesh", MESHES)
def test_gradients_are_those_of_the_formulas(tools, tmp_path, mesh):
    rng = np.random.default_rng(0)
    weights = make_classifier(tmp_path / "m.onnx", rng)
    x, labels = rng.standard_normal((BATCH, FEATURES)).astype(np.float32), rng.integers(0, CLASSES, BATCH)
    tools.compile(tmp_path / "m.onnx", tmp_path / "m.plan", "--dim", f"batch={BATCH}", "--mesh", mesh, "--gradients-of", "loss")
    outputs = tools.run(tmp_path / "m.plan", {"x": x, "labels": labels}, tmp_path / "run").outputs
    expected = differentiate_classifier(weights, x.astype(np.float64), labels)
    del expected["x.grad"]
    assert set(outputs) == {*expected, "logits"}
    for name, value in expected.items():
        assert_near(outputs[name], np.asarray(value), name)


def test_inputs_have_gradients_where_they_are_named(tools, tmp_path):
    rng = np.random.default_rng(1)
    weights = make_classifier(tmp_path / "m.onnx", rng)
    x, labels = rng.standard_normal((BATCH, FEATURES)).astype(np.float32), rng.integers(0, CLASSES, BATCH)
    chosen = ["--gradients-of", "loss", "--with-respect-to", "x", "--with-respect-to", "b*"]
    tools.compile(tmp_path / "m.onnx", tmp_path / "m.plan", "--dim", f"batch={BATCH}", "--mesh", "data=2", *chosen)
    outputs = tools.run(tmp_path / "m.plan", {"x": x, "labels": labels}, tmp_path / "run").outputs
    expected = differentiate_classifier(weights, x.astype(np.float64), labels)
    assert set(outputs) == {"loss", "logits", "x.grad", "b1.grad"}
    for name in ("x.grad", "b1.grad"):
        assert_near(outputs[name], expected[name], name)


def test_corners_have_the_slopes_of_activation_functions(tools, tmp_path):
    """At the corners: Relu 0, also in an RNN, Clip 1 at both bounds, HardSigmoid 0, Elu alpha, and Softplus a half."""
    x = np.array([-1, 0, 1], np.float32)
    nodes = [
        helper.make_node("Relu", ["x"], ["relu"]),
        helper.make_node("Clip", ["x", "low", "high"], ["clip"]),
        helper.make_node("Elu", ["x"], ["elu"], alpha=2.0),
        helper.make_node("Softplus", ["x"], ["softplus"]),
        helper.make_node("HardSigmoid", ["x"], ["hard_sigmoid"], alpha=0.5, beta=0.5),
        helper.make_node("Reshape", ["x", "sequence"], ["steps"]),
        helper.make_node("RNN", ["steps", "w", "r"], ["states"], hidden_size=1, activations=["Relu"]),
        helper.make_node("Reshape", ["states", "flat"], ["rnn"]),
    ]
    constants = {
        "low": np.float32(0), "high": np.float32(1), "w": np.ones((1, 1, 1), np.float32), "r": np.zeros((1, 1, 1), np.float32),
        "sequence": np.array([1, 3, 1]), "flat": np.array([3]),
    }  # fmt: skip
    expected = {"relu": [0, 0, 1], "clip": [0, 1, 1], "elu": [2 * np.exp(-1), 2, 1]}
    expected |= {"hard_sigmoid": [0, 0.5, 0], "rnn": [0, 0, 1]}
    expected["softplus"] = 1 / (1 + np.exp(-x.astype(np.float64)))
    graph = helper.make_graph(
        nodes,
        "corners",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in expected],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    for name, value in expected.items():
        options = ["--gradients-of", name, "--with-respect-to", "x", "--mesh", "x=1"]
        tools.compile(tmp_path / "m.onnx", tmp_path / f"{name}.plan", *options)
        outputs = tools.run(tmp_path / f"{name}.plan", {"x": x}, tmp_path / name).outputs
        np.testing.assert_allclose(outputs["x.grad"], value, rtol=1e-6, err_msg=name)


def test_dumps_without_ties_are_refused(tools, tmp_path):
    make_classifier(tmp_path / "m.onnx", np.random.default_rng(0))
    tools.compile(tmp_path / "m.onnx", tmp_path / "m.plan", "--dim", "batch=4", "--dump-ir", tmp_path / "dumps")
    dump = tmp_path / "dumps" / "01-import.mlir"
    result = tools.call(
        "compile", dump, "-o", tmp_path / "n.plan", "--start-from", "simplify", "--gradients-of", "loss", check=False
    )
    assert result.returncode == 1 and "was imported without --gradients-of" in result.stderr


SIZES = {"layers": 2, "hidden": 32, "heads": 4, "vocabulary": 40, "positions": 16}
TOKENS = ["--dim", "batch=2", "--dim", "sequence=8"]
MODELS = {
    "gpt2": (lambda: zoo.gpt2(zoo.Gpt2Config(**SIZES), zoo.Random(0)), TOKENS),
    "bert": (lambda: zoo.bert(zoo.BertConfig(intermediate=64, head="embedding", **SIZES), zoo.Random(0)), TOKENS),
    "mlp": (lambda: zoo.mlp((16, 32, 8), zoo.Random(0)), ["--dim", "batch=4"]),
}


@pytest.mark.parametrize("options", [["--mesh", "data=2"], ["--mesh", "model=2"], ["--mesh", "x=2,y=2", "--strategy", "random:3"]])
@pytest.mark.parametrize("name", MODELS)
def test_split_gradients_are_unsplit_ones(tools, tmp_path, name, options):
    """Equal to the interpreter's results for the unsplit program: bit by bit in exact mode, phase by phase, and within 1e-4 when
    compiled, for sums up to 30 whose terms cancel."""
    make, dims = MODELS[name]
    path = zoo.save(make(), tmp_path / "m.onnx")
    output = onnx.load(path).graph.output[0].name
    tools.compile(path, tmp_path / "m.plan", *dims, *options, "--gradients-of", output)
    result = tools.call("check", tmp_path / "m.plan", "--exact", "--atol", "1e-4")
    compiled = r"compiled, \d ranks, against 01-import and 02-simplify: output '.*\.grad'"
    assert "PASS" in result.stdout and re.search(compiled, result.stdout)


def test_what_cannot_be_differentiated_is_refused(tools, tmp_path):
    make_classifier(tmp_path / "m.onnx", np.random.default_rng(0))

    def refuse(*options):
        result = tools.call(
            "compile", tmp_path / "m.onnx", "-o", tmp_path / "m.plan", "--dim", "batch=4", *options, check=False
        )
        assert result.returncode == 1 and not (tmp_path / "m.plan").exists()
        return result.stderr

    assert "'los' is not an output of the model; its outputs are 'loss', 'logits'" in refuse("--gradients-of", "los")
    assert "no float weight or input is called 'W3'" in refuse(
        "--gradients-of", "loss", "--with-respect-to", "W1", "--with-respect-to", "W3"
    )
    assert "--precision f16, where gradients overflow" in refuse("--gradients-of", "loss", "--precision", "f16")
    assert "--with-respect-to goes with --gradients-of OUTPUT" in refuse("--with-respect-to", "W1")
