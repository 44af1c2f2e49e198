"""Samples of several lengths: a plan has a training step for each of some sizes, and a batch uses the smallest one that fits."""

from __future__ import annotations

import re

import gridloom
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from training_models import read_log

from gridloom._tools import native

BATCH, SAMPLES, LONGEST, IGNORED = 4, 22, 9, -100
WORDS, WIDTH, CLASSES = 11, 6, 5
RANDOM = np.random.default_rng(0)
WEIGHTS = {"e": RANDOM.standard_normal((WORDS, WIDTH)), "w": RANDOM.standard_normal((WIDTH, CLASSES))}
LOSS = f"cross_entropy(logits, labels, ignore_index={IGNORED})"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Logits of each word that depend on the mean of all words, padding included: the loss shows the size that was used."""
    nodes = [
        helper.make_node("Gather", ["e", "ids"], ["h"]),
        helper.make_node("ReduceMean", ["h", "axes"], ["m"]),
        helper.make_node("Add", ["h", "m"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["logits"]),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "sequence"])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "sequence", CLASSES])
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in WEIGHTS.items()]
    tensors.append(numpy_helper.from_array(np.array([1]), "axes"))
    graph = helper.make_graph(nodes, "words", [ids], [logits], tensors)
    path = tmp_path_factory.mktemp("lengths") / "m.onnx"
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]), path)
    return path


@pytest.fixture(scope="module")
def plan(tools, model):
    """Compiles plans, each once."""

    def get(mesh: str = "", loss: str = LOSS, metric: str = LOSS.replace("cross_entropy", "accuracy")):
        path = model.parent / (re.sub(r"\W+", "-", mesh + loss + metric) + ".plan")
        if not path.exists():
            options = ["--dim", f"batch={BATCH}", "--dim", "sequence=3,6,12", *(["--mesh", mesh] if mesh else [])]
            tools.compile(model, path, "--train", "--loss", loss, "--metric", metric, "--optimizer", "sgd(lr=0.1)", *options)
        return path

    return get


@pytest.fixture(scope="module")
def data(model):
    """Samples of 1 to 9 words, most of them short. The files' values after a sample's end are never read."""
    random, folder = np.random.default_rng(1), model.parent / "data"
    lengths = np.concatenate([random.integers(1, 4, SAMPLES - 4), [5, 6, 9, 8]])
    arrays = {"ids": random.integers(0, WORDS, (SAMPLES, LONGEST)), "labels": random.integers(0, CLASSES, (SAMPLES, LONGEST))}
    behind = np.arange(LONGEST) >= lengths[:, None]
    for array in arrays.values():
        array[behind] = 1 << 40
    folder.mkdir()
    for name, array in (*arrays.items(), ("sequence", lengths)):
        np.save(folder / f"{name}.npy", array)
    return arrays | {"sequence": lengths}


def pad(data: dict[str, np.ndarray], samples: np.ndarray, size: int) -> dict[str, np.ndarray]:
    ids, labels = np.zeros((len(samples), size), np.int64), np.full((len(samples), size), IGNORED)
    for row, sample in enumerate(samples):
        length = data["sequence"][sample]
        ids[row, :length], labels[row, :length] = (data[name][sample, :length] for name in ("ids", "labels"))
    return {"ids": ids, "labels": labels}


def fit(data, samples) -> int:
    return next(size for size in (3, 6, 12) if size >= data["sequence"][samples].max())


def evaluate(batch: dict[str, np.ndarray]) -> tuple[float, float, int]:
    """Loss, accuracy and count, in float64."""
    h = WEIGHTS["e"].astype(np.float32).astype(np.float64)[batch["ids"]]
    logits = (h + h.mean(axis=1, keepdims=True)) @ WEIGHTS["w"].astype(np.float32)
    kept = batch["labels"] != IGNORED
    logits, labels = logits[kept], batch["labels"][kept]
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return -logs[np.arange(len(labels)), labels].mean(), np.mean(logits.argmax(axis=1) == labels), len(labels)


@pytest.mark.parametrize("mesh", ["", "data=2"])
def test_batches_take_the_smallest_size_that_holds_them(tools, model, plan, data, tmp_path, mesh):
    folder = model.parent / "data"
    options = ["--pad-to", "sequence", "--steps", 11, "--lr", 0, "--seed", 5, "--log", tmp_path / "log.csv"]
    tools.call("train", plan(mesh), "--data", folder, "--eval-data", folder, *options)
    rows, sizes = read_log(tmp_path / "log.csv"), []
    for step, row in enumerate(rows):
        samples = np.array(native().sample_order(SAMPLES, 5, step * BATCH, BATCH))
        sizes.append(fit(data, samples))
        loss, accuracy, count = evaluate(pad(data, samples, sizes[-1]))
        assert int(row["first_sample"]) == step * BATCH and float(row["count"]) == count
        assert (float(row["loss"]), float(row["accuracy"])) == (pytest.approx(loss, rel=1e-5), pytest.approx(accuracy))
    assert set(sizes) == {3, 6, 12}
    batches = [np.arange(first, first + BATCH) for first in range(0, SAMPLES - BATCH + 1, BATCH)]
    found = np.array([evaluate(pad(data, samples, fit(data, samples))) for samples in batches])
    loss, accuracy = (found[:, i] @ found[:, 2] / found[:, 2].sum() for i in (0, 1))
    assert float(rows[-1]["eval_loss"]) == pytest.approx(loss, rel=1e-5)
    assert float(rows[-1]["eval_accuracy"]) == pytest.approx(accuracy)


def test_labels_are_padded_with_the_least_integer(tools, model, plan, data, tmp_path):
    loss = LOSS.replace(str(IGNORED), str(-(2**63)))
    least = plan("", loss, loss.replace("cross_entropy", "accuracy"))
    for name, which in (("least", least), ("usual", plan())):
        train = ["train", which, "--data", model.parent / "data", "--pad-to", "sequence", "--steps", 2]
        tools.call(*train, "--log", tmp_path / f"{name}.csv")
    rows = [read_log(tmp_path / f"{name}.csv") for name in ("least", "usual")]
    assert [row["loss"] for row in rows[0]] == [row["loss"] for row in rows[1]]


def test_a_resumed_run_is_the_whole_run(tools, model, plan, tmp_path):
    common = ["train", plan("data=2"), "--data", model.parent / "data", "--pad-to", "sequence", "--seed", 3]
    tools.call(*common, "--steps", 9, "--checkpoint-dir", tmp_path / "whole")
    for steps in (4, 9):
        tools.call(*common, "--steps", steps, "--checkpoint-dir", tmp_path / "parts", "--resume")
    states = [(tmp_path / run / "step-0000000009" / "states.safetensors").read_bytes() for run in ("whole", "parts")]
    assert states[0] == states[1]


def test_the_trainer_chooses_by_shapes(plan, data):
    with gridloom.Trainer(plan(), lr=0) as trainer:
        for size in (3, 12, 6):
            batch = pad(data, np.flatnonzero(data["sequence"] <= 3)[:BATCH], size)
            assert trainer.step(batch)["loss"] == pytest.approx(evaluate(batch)[0], rel=1e-5)
        with pytest.raises(gridloom.Error, match=r"ids.*\[4, 5\]"):
            trainer.step(pad(data, np.arange(BATCH), 5))
        # Batches of several sizes must come from an iterable.
        groups = [np.arange(i, i + BATCH) for i in (0, 4, SAMPLES - BATCH)]
        batches = [pad(data, samples, fit(data, samples)) for samples in groups]
        history = trainer.fit(batches, epochs=1)
        for batch, results in zip(batches, history, strict=True):
            assert results["loss"] == pytest.approx(evaluate(batch)[0], rel=1e-5)


def test_what_cannot_be_padded(tools, model, plan, data, tmp_path):
    def refuse(which, *options, folder=model.parent / "data") -> str:
        result = tools.call("train", which, "--data", folder, *options, check=False)
        assert result.returncode == 1 and result.stderr.count("\n") == 1, result.stderr
        return result.stderr

    assert "has several specialisations; choose with --dim among: " in refuse(plan())
    assert "--pad-to NAME takes several of one dimension" in refuse(plan())
    assert "--pad-to words: entry 'train_step' has no such dimension" in refuse(plan(), "--pad-to", "words")
    assert "--pad-to batch: it is what counts the samples of input" in refuse(plan(), "--pad-to", "batch", "--dim", "sequence=3")
    for loss, metric in (("cross_entropy(logits, labels)", "accuracy(logits, labels)"), (LOSS, "accuracy(logits, labels)")):
        words = refuse(plan("", loss, metric), "--pad-to", "sequence")
        assert "'labels' cannot be padded, since no label of it counts for nothing; compile the model with the same ignore_index=" in words
    narrow = onnx.load(model)  # padding would be a label of its own, 156
    narrow.graph.input.append(helper.make_tensor_value_info("labels", TensorProto.UINT8, ["batch", "sequence"]))
    onnx.save(narrow, tmp_path / "narrow.onnx")
    options = ["--train", "--loss", LOSS, "--dim", f"batch={BATCH}", "--dim", "sequence=3,6,12"]
    tools.compile(tmp_path / "narrow.onnx", tmp_path / "narrow.plan", *options)
    words = refuse(tmp_path / "narrow.plan", "--pad-to", "sequence")
    assert "'labels' cannot be padded, since u8 does not hold the ignored label -100; compile the model with an ignore_index=" in words
    for name in ("ids", "labels"):
        np.save(tmp_path / f"{name}.npy", data[name])
    assert "there is no sequence.npy, which says how long each sample is" in refuse(plan(), "--pad-to", "sequence", folder=tmp_path)
    lengths = data["sequence"].copy()
    lengths[7] = 10
    np.save(tmp_path / "sequence.npy", lengths)
    assert re.search(r"sample 7 is 10 long; \w+.npy has only 9", refuse(plan(), "--pad-to", "sequence", folder=tmp_path))
