"""MiniLM, with the weights that its package ships, is trained on four ranks to classify families of licences by 16 tokens, and must beat a
linear classifier of its untrained features.

The spans are short because whole paragraphs often name their licence."""

from __future__ import annotations

import csv
from pathlib import Path

import gridloom
import numpy as np
import onnx
import pytest
from conftest import onnxruntime_session
from licence_families import FAMILIES, SPAN, load_spans, probe_accuracy
from onnx import TensorProto, helper, numpy_helper

from gridloom import zoo

BATCH = 32
LENGTH = SPAN + 2
MASKS = {"attention_mask": np.ones((BATCH, LENGTH), np.int64), "token_type_ids": np.zeros((BATCH, LENGTH), np.int64)}


def save_classifier(path: Path, **options) -> Path:
    """MiniLM with the mean over tokens as the output `features`, and a linear layer over it as `logits`. No token is padding."""
    model = zoo.minilm(head="hidden", **options)
    width = model.graph.output[0].type.tensor_type.shape.dim[2].dim_value
    random = np.random.default_rng(0).standard_normal((width, len(FAMILIES))) * 0.02
    model.graph.initializer.extend(
        [
            numpy_helper.from_array(random.astype(np.float32), "classifier.weight"),
            numpy_helper.from_array(np.zeros(len(FAMILIES), np.float32), "classifier.bias"),
        ]
    )
    model.graph.node.extend(
        [
            helper.make_node("ReduceMean", [model.graph.output[0].name], ["features"], name="features", axes=[1], keepdims=0),
            helper.make_node("Gemm", ["features", "classifier.weight", "classifier.bias"], ["logits"], name="classifier"),
        ]
    )
    del model.graph.output[:]
    for name, size in (("features", width), ("logits", len(FAMILIES))):
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size]))
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def spans() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Only whole batches are evaluated, so the held-out part has no others."""
    train, held_out = load_spans()
    rows = len(held_out["labels"]) // BATCH * BATCH
    return train, {name: array[:rows] for name, array in held_out.items()}


def run_batches(path: Path, ids: np.ndarray, output: str) -> np.ndarray:
    session = onnxruntime_session(path, threads=2)
    found = []
    for first in range(0, len(ids), BATCH):
        part = ids[first : first + BATCH]
        found.append(session.run([output], {"input_ids": part, **{name: mask[: len(part)] for name, mask in MASKS.items()}})[0])
    return np.concatenate(found)


def train(tools, folder: Path, data, held_out, steps: int) -> float:
    """Trains `folder`/model.onnx; returns the accuracy on held-out spans."""
    np.savez(folder / "train.npz", **data)
    np.savez(folder / "held-out.npz", **held_out)
    tools.compile(
        folder / "model.onnx", folder / "model.plan", "--train", "--loss", "cross_entropy(logits, labels, label_smoothing=0.1)",
        "--metric", "accuracy(logits, labels)", "--optimizer", "adamw(lr=2e-4)", "--clip", "norm(1.0)",
        "--param", "rank<=1: weight_decay=0", "--param", "embeddings.*: frozen", "--param", "classifier.*: lr*10",
        "--dim", f"batch={BATCH}", "--dim", f"sequence={LENGTH}", "--mesh", "data=2,model=2",
    )  # fmt: skip
    tools.call(
        "train", folder / "model.plan", "--in-process", "--threads", 1, "--data", folder / "train.npz", "--steps", steps,
        "--input", "attention_mask=ones", "--input", "token_type_ids=zeros", "--lr-schedule", "cosine(warmup=10)",
        "--eval-data", folder / "held-out.npz", "--eval-every", steps, "--checkpoint-dir", folder / "run",
        "--log", folder / "log.csv", timeout=7200,
    )  # fmt: skip
    with open(folder / "log.csv", newline="") as file:
        return float(list(csv.DictReader(file))[-1]["eval_accuracy"])


def check_export(tools, folder: Path, held_out, accuracy: float) -> None:
    """In ONNX Runtime the exported model has the plan's logits and the accuracy that training reported."""
    tools.call("checkpoint", "export", folder / "run", "--model", folder / "model.onnx", "-o", folder / "trained.onnx")
    logits = run_batches(folder / "trained.onnx", held_out["input_ids"], "logits")
    with gridloom.Trainer(folder / "model.plan", threads=1) as trainer:
        trainer.load(folder / "run")
        main = trainer.session.run({"input_ids": held_out["input_ids"][:BATCH], **MASKS}, entry="main")["logits"]
    np.testing.assert_allclose(logits[:BATCH], main, rtol=1e-3, atol=1e-3)
    assert np.mean(logits.argmax(axis=1) == held_out["labels"]) == pytest.approx(accuracy, abs=2 / len(logits))


def test_a_small_encoder_learns(tools, tmp_path, spans):
    """Two layers of random weights: the batches' loss falls within few steps."""
    small = zoo.Random(0)
    save_classifier(tmp_path / "model.onnx", weights=small, layers=2, hidden=64, heads=4, intermediate=128)
    data, held_out = ({name: array[:512] for name, array in part.items()} for part in spans)
    accuracy = train(tools, tmp_path, data, held_out, steps=60)
    with open(tmp_path / "log.csv", newline="") as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file)]
    assert np.mean(losses[-10:]) < np.mean(losses[:5]) - 0.1
    check_export(tools, tmp_path, held_out, accuracy)


@pytest.mark.full
def test_trained_minilm_is_better_than_a_linear_probe(tools, tmp_path, spans):
    data, held_out = spans
    path = save_classifier(tmp_path / "model.onnx")
    features = [run_batches(path, part["input_ids"], "features") for part in spans]
    probe = probe_accuracy(features[0], data["labels"], features[1], held_out["labels"])
    accuracy = train(tools, tmp_path, data, held_out, steps=400)
    print(f"{len(data['labels'])} spans, {len(held_out['labels'])} held out: probe {probe:.4f}, trained {accuracy:.4f}")
    assert probe < 0.9
    assert accuracy >= probe + 0.05
    check_export(tools, tmp_path, held_out, accuracy)
