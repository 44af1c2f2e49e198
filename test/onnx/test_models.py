"""Whole models against ONNX Runtime, before and after the simplify phase."""

from __future__ import annotations

import re
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

import evaluate

sys.path.insert(0, str(evaluate.ROOT / "python"))

from gridloom import zoo  # noqa: E402

TINY = dict(layers=2, hidden=32, heads=4, intermediate=64, vocabulary=100, positions=24)


def reference(path, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    onnxruntime.set_default_logger_severity(3)
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)


def bert_inputs(batch: int, sequence: int, vocabulary: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    mask = np.ones((batch, sequence), np.int64)
    mask[0, sequence // 2 :] = 0
    return {
        "input_ids": random.integers(0, vocabulary, (batch, sequence)),
        "attention_mask": mask,
        "token_type_ids": random.integers(0, 2, (batch, sequence)),
    }


def check(case: evaluate.Case, expected: list[np.ndarray], atol: float) -> None:
    assert case.error is None, case.error
    for outputs in (case.imported, case.simplified):
        assert len(outputs) == len(expected)
        for actual, want in zip(outputs, expected):
            np.testing.assert_allclose(actual, want, rtol=1e-4, atol=atol)


def count(case: evaluate.Case) -> dict[str, int]:
    """Counts operations after the simplify phase."""
    names = re.findall(r"\bloom\.(\w+) ", (case.folder / "simplified.mlir").read_text())
    return {name: names.count(name) for name in set(names)}


@pytest.mark.parametrize("head", ["hidden", "embedding"])
@pytest.mark.parametrize("gelu", ["erf", "tanh", "op"])
@pytest.mark.parametrize("layer_norm, opset", [("fused", 17), ("decomposed", 17), ("decomposed", 13)])
def test_bert(tmp_path, head, gelu, layer_norm, opset):
    if gelu == "op":
        opset = 20
    config = zoo.BertConfig(**TINY, head=head, gelu=gelu, layer_norm=layer_norm, opset=opset)
    model = zoo.bert(config, zoo.Random(3, scale=0.3))
    inputs = bert_inputs(3, 8, 100)
    case = evaluate.evaluate(tmp_path, model, list(inputs.values()), "batch=3\nsequence=8")
    check(case, reference(tmp_path / "model.onnx", inputs), 2e-5)
    # Whatever the exporter wrote, the program has the composite operations and few others.
    operations = count(case)
    assert operations["layer_norm"] == 5 and operations["gelu"] == 2 and operations["softmax"] == 2
    assert operations["derived"] == 1
    assert not operations.keys() & {"erf", "tanh", "exp", "power"}


def test_minilm(tmp_path):
    model = zoo.minilm()
    inputs = bert_inputs(2, 6, 30522)
    case = evaluate.evaluate(tmp_path, model, list(inputs.values()), "batch=2\nsequence=6")
    check(case, reference(tmp_path / "model.onnx", inputs), 1e-6)


def test_external_data(tmp_path):
    model = zoo.mlp([24, 40, 8], zoo.Random(1, scale=0.5), activation="gelu")
    zoo.save(model, tmp_path / "model.onnx", external_data=True)
    assert (tmp_path / "model.onnx.data").stat().st_size > 4000
    inputs = {"x": np.random.default_rng(2).standard_normal((4, 24)).astype(np.float32)}
    case = evaluate.evaluate(tmp_path, (tmp_path / "model.onnx").read_bytes(), list(inputs.values()), "batch=4")
    check(case, reference(tmp_path / "model.onnx", inputs), 1e-5)


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "gelu"])
def test_mlp(tmp_path, activation):
    model = zoo.mlp([24, 40, 8], zoo.Random(1, scale=0.5), activation=activation)
    inputs = {"x": np.random.default_rng(2).standard_normal((4, 24)).astype(np.float32)}
    case = evaluate.evaluate(tmp_path, model, list(inputs.values()), "batch=4")
    check(case, reference(tmp_path / "model.onnx", inputs), 1e-5)


def test_memory_is_that_of_the_graph(tmp_path):
    """A model of 8 GB, sparse on disk, is imported without reading its weights."""
    rows = 1 << 20
    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[rows, 2048])
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in [("location", "big.data"), ("offset", "0"), ("length", str(rows * 2048 * 4))]:
        weight.external_data.add(key=key, value=value)
    with open(tmp_path / "big.data", "wb") as file:
        file.truncate(rows * 2048 * 4)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gather", ["w", "ids"], ["y"])],
        "big",
        [onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["n"])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 2048])],
        [weight],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    # Without inputs, the case stops after the import, before the interpreter reads the weight.
    case = evaluate.Case(tmp_path, model, [], "n=3")
    evaluate.run([case], memory=64 << 20)
    assert case.error == "input 0 is missing or not of type 'tensor<3xi64>'"
