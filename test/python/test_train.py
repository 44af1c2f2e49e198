"""gridloom train: the command with a model, data and an optimizer. TrainerTest.cpp tests the loop itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save
from training_models import read_checkpoint, read_log

CLASSES, FEATURES, HIDDEN, BATCH = 10, 64, 24, 32
MESHES = ["", "data=2", "model=2"]


def draw(seed: int, count: int) -> dict[str, np.ndarray]:
    """Noisy copies of ten patterns, with the pattern's number as label."""
    patterns = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    noise = random.normal(size=(count, FEATURES)) * 1.2
    return {"x": (patterns[labels] + noise).astype(np.float32), "labels": labels.astype(np.int64)}


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    return {
        "w1": (random.normal(size=(FEATURES, HIDDEN)) / 8).astype(np.float32),
        "b1": np.full(HIDDEN, 0.1, np.float32),
        "w2": (random.normal(size=(HIDDEN, CLASSES)) / 5).astype(np.float32),
        "b2": np.zeros(CLASSES, np.float32),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model, and data of 500 samples, which the batch size does not divide."""
    folder = tmp_path_factory.mktemp("train")
    make = helper.make_node
    nodes = [
        make("MatMul", ["x", "w1"], ["m1"]),
        make("Add", ["m1", "b1"], ["a1"]),
        make("Relu", ["a1"], ["h"]),
        make("MatMul", ["h", "w2"], ["m2"]),
        make("Add", ["m2", "b2"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", FEATURES])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(array, name) for name, array in weights().items()],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "mlp.onnx")
    for name, seed, count in (("data", 1, 500), ("test", 2, 320)):
        (folder / name).mkdir()
        for file, array in draw(seed, count).items():
            np.save(folder / name / f"{file}.npy", array)
    return folder


@pytest.fixture(scope="module")
def plans(tools, folder):
    """Compiles plans, each once."""

    def get(mesh: str = "", optimizer: str = "adamw(lr=1e-2)", batch: int = BATCH) -> Path:
        name = re.sub(r"\W+", "-", f"{mesh}-{optimizer}-{batch}")
        if not (folder / f"{name}.plan").exists():
            options = ["--mesh", mesh] if mesh else []
            tools.compile(
                folder / "mlp.onnx", folder / f"{name}.plan", "--train", "--loss", "cross_entropy(logits, labels)",
                "--metric", "accuracy(logits, labels)", "--optimizer", optimizer, "--dim", f"batch={batch}", *options,
            )  # fmt: skip
        return folder / f"{name}.plan"

    return get


def assert_equal(states: dict[str, np.ndarray], others: dict[str, np.ndarray]) -> None:
    assert states.keys() == others.keys()
    for name, array in states.items():
        assert array.tobytes() == others[name].tobytes(), name


@pytest.mark.parametrize("mesh", MESHES)
def test_a_model_learns(tools, folder, plans, tmp_path, mesh):
    log = tmp_path / "log.csv"
    options = ["--epochs", 8, "--eval-data", folder / "test", "--log", log, "--checkpoint-dir", tmp_path / "run"]
    text = tools.call("train", plans(mesh), "--data", folder / "data", *options).stdout
    rows = read_log(log)
    assert len(rows) == 125  # 4000 samples
    assert float(rows[0]["loss"]) > 2 and float(rows[-1]["loss"]) < 0.5
    assert [row["committed"] for row in rows] == ["1"] * 125
    evaluations = [row for row in rows if row["eval_loss"]]
    assert [row["epoch"] for row in evaluations] == [str(i) for i in range(1, 9)]
    assert float(evaluations[-1]["eval_accuracy"]) > 0.98
    assert float(evaluations[-1]["eval_loss"]) < 0.5 * float(evaluations[0]["eval_loss"])
    assert re.search(r"\n125 steps, 4000 samples in .* \| loss \S+ \| evaluation loss \S+ \| checkpoint .*125\n$", text)
    states = read_checkpoint(tmp_path / "run")
    assert states["train/step"] == 125 and {"w1", "b1", "w2", "b2"} < states.keys()
    assert states["w1"].shape == (FEATURES, HIDDEN)


def test_the_summary_names_weights_that_no_loss_depends_on(tools, tmp_path):
    make, value = helper.make_node, helper.make_tensor_value_info
    nodes = [make("MatMul", ["x", "w"], ["y"]), make("MatMul", ["x", "other"], ["z"]), make("Mul", ["z", "frozen"], ["v"])]
    arrays = {"w": np.ones((4, 2)), "other": np.ones((4, 2)), "frozen": np.ones(2)}
    graph = helper.make_graph(
        nodes, "two", [value("x", TensorProto.FLOAT, ["batch", 4])], [value(n, TensorProto.FLOAT, ["batch", 2]) for n in "yv"],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )  # fmt: skip
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "two.onnx")
    text = tools.compile(
        tmp_path / "two.onnx", tmp_path / "two.plan", "--train", "--loss", "mse(y, target)", "--optimizer", "sgd(lr=0.5)",
        "--param", "frozen: frozen", "--dim", "batch=2",
    ).stdout  # fmt: skip
    assert "\n  trains          1 weight, 8 elements, by sgd(lr=0.5)\n    not           'other': no loss depends on it\n" in text, text


def softmax_step(values: dict[str, np.ndarray], data: dict[str, np.ndarray], rate: float) -> float:
    """Takes one step of gradient descent in f64, by formula; returns the loss before it."""
    x, labels = data["x"].astype(np.float64), data["labels"]
    a = x @ values["w1"] + values["b1"]
    h = np.maximum(a, 0)
    logits = h @ values["w2"] + values["b2"]
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(shares[rows, labels]).mean()
    shares[rows, labels] -= 1
    dlogits = shares / len(labels)
    da = (dlogits @ values["w2"].T) * (a > 0)
    gradients = {"w1": x.T @ da, "b1": da.sum(axis=0), "w2": h.T @ dlogits, "b2": dlogits.sum(axis=0)}
    for name, gradient in gradients.items():
        values[name] = values[name] - rate * gradient
    return loss


@pytest.mark.parametrize("mesh", MESHES)
def test_steps_are_those_of_float64(tools, folder, plans, tmp_path, mesh):
    """All samples are one batch, so that their order does not matter; the schedule changes the rate at each step."""
    plan, log, run = plans(mesh, "sgd(lr=0.5)", 500), tmp_path / "log.csv", tmp_path / "run"
    schedule = ["--steps", 12, "--lr", 0.4, "--lr-schedule", "linear(warmup=4, min=0.5)"]
    tools.call("train", plan, "--data", folder / "data", *schedule, "--log", log, "--checkpoint-dir", run)
    rates = [0.1, 0.2, 0.3, *(0.4 * (0.5 + 0.5 * (1 - i / 8)) for i in range(8))]
    rates.insert(3, 0.4)
    values, data = {name: array.astype(np.float64) for name, array in weights().items()}, draw(1, 500)
    for row, rate in zip(read_log(log), rates, strict=True):
        assert float(row["learning_rate"]) == pytest.approx(rate, rel=1e-6)
        assert float(row["loss"]) == pytest.approx(softmax_step(values, data, rate), rel=1e-5)
        assert float(row["count"]) == 500
    for name, array in values.items():  # near a ReLU's corner, f32 may take the other side for some samples
        moved = np.linalg.norm(array - weights()[name])
        assert np.linalg.norm(read_checkpoint(run)[name] - array) < 1e-3 * moved


@pytest.mark.parametrize("mesh", MESHES)
def test_a_resumed_run_equals_one_without_an_interruption(tools, folder, plans, tmp_path, mesh):
    plan, data = plans(mesh), folder / "data"
    common = ["--data", data, "--seed", 7, "--lr-schedule", "cosine(total=40, warmup=5)"]
    tools.call("train", plan, *common, "--steps", 40, "--checkpoint-dir", tmp_path / "whole", "--log", tmp_path / "a")
    for steps in (17, 18, 40):  # stops in the middle of the second epoch, and once more
        options = ["--steps", steps, "--checkpoint-dir", tmp_path / "parts", "--resume", "--log", tmp_path / "b"]
        tools.call("train", plan, *common, *options)
    assert_equal(read_checkpoint(tmp_path / "whole"), read_checkpoint(tmp_path / "parts"))
    drop = lambda rows: [{k: v for k, v in row.items() if k != "ms"} for row in rows]  # noqa: E731
    assert drop(read_log(tmp_path / "a")) == drop(read_log(tmp_path / "b"))


def test_a_checkpoint_goes_to_another_mesh(tools, folder, plans, tmp_path):
    run, data = tmp_path / "run", folder / "data"
    tools.call("train", plans("data=2"), "--data", data, "--steps", 10, "--checkpoint-dir", run)
    before = read_checkpoint(run)
    losses = []
    for mesh in MESHES:
        log, rest = tmp_path / f"log-{mesh}", tmp_path / f"rest-{mesh}"
        options = ["--steps", 13, "--resume", run, "--log", log, "--checkpoint-dir", rest]
        tools.call("train", plans(mesh), "--data", data, *options)
        losses.append([float(row["loss"]) for row in read_log(log)])
        assert read_checkpoint(rest)["train/step"] == 13
    assert_equal(before, read_checkpoint(run))
    assert len(losses[0]) == 3
    np.testing.assert_allclose(losses, [losses[0]] * len(MESHES), rtol=1e-5)


def test_an_interrupted_run_saves_and_reads_each_sample_once(tools, folder, plans, tmp_path):
    plan, log, run = plans("data=2"), tmp_path / "log.csv", tmp_path / "run"
    command = [tools.path("gridloom"), "train", plan, "--data", folder / "data", "--log", log, "--checkpoint-dir", run]
    restore = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731: the background ignores it
    process = subprocess.Popen([*command, "--epochs", "100000"], stdout=subprocess.PIPE, text=True, preexec_fn=restore)
    deadline = time.monotonic() + 60
    while (not log.exists() or log.stat().st_size < 3000) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.search(r"interrupted by signal 2 .* after step \d+ of \d+; the same command with --resume continues", text)
    steps = read_checkpoint(run)["train/step"]
    assert steps == len(read_log(log))
    tools.call(*command[1:], "--steps", steps + 9, "--resume")
    cursors = [int(row["first_sample"]) for row in read_log(log)]
    assert cursors == [i * BATCH for i in range(steps + 9)]


def test_archives_and_patience(tools, folder, plans, tmp_path):
    np.savez(tmp_path / "data.npz", **draw(1, 500))
    np.savez_compressed(tmp_path / "small.npz", **draw(1, 500))
    states = []
    for data in (folder / "data", tmp_path / "data.npz"):
        run = tmp_path / f"run{len(states)}"
        tools.call("train", plans(), "--data", data, "--steps", 5, "--checkpoint-dir", run)
        states.append(read_checkpoint(run))
    assert_equal(*states)
    result = tools.call("train", plans(), "--data", tmp_path / "small.npz", check=False)
    assert result.returncode == 1 and "is compressed, as numpy.savez_compressed does" in result.stderr
    # At a rate of 0 the loss does not fall.
    options = ["--lr", 0, "--epochs", 50, "--eval-data", folder / "test", "--patience", 2]
    text = tools.call("train", plans(), "--data", folder / "data", *options).stdout
    assert "stopped early: 2 evaluations without a lower loss" in text and "47 steps, " in text


def refuse(tools, plan, data: Path, *options) -> str:
    result = tools.call("train", plan, "--data", data, *options, check=False)
    assert result.returncode == 1 and result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def test_data_that_do_not_fit(tools, folder, plans, tmp_path):
    arrays = draw(1, 500)
    write = lambda **files: [np.save(tmp_path / f"{name}.npy", array) for name, array in files.items()]  # noqa: E731
    assert "is neither a folder of .npy files nor a .npz file" in refuse(tools, plans(), tmp_path / "none")
    write(x=arrays["x"])
    assert "there is no labels.npy, which the plan takes as i64 [samples]" in refuse(tools, plans(), tmp_path)
    write(labels=arrays["labels"].astype(np.int32))
    assert "labels.npy holds i32 [500], but the plan takes i64 [samples]" in refuse(tools, plans(), tmp_path)
    write(labels=arrays["labels"][:499])
    assert re.search("(x|labels).npy has (499|500) samples", refuse(tools, plans(), tmp_path))
    write(x=arrays["x"][:9], labels=arrays["labels"][:9])
    assert "has 9 samples, fewer than the plan's batch of 32" in refuse(tools, plans(), tmp_path)
    x = arrays["x"].copy()
    x[77, 5] = np.nan
    write(x=x, labels=arrays["labels"])
    error = refuse(tools, plans("data=2"), tmp_path, "--checkpoint-dir", tmp_path / "run")
    assert re.search(r"step \d+ \(samples \d+ to \d+ of epoch 1\) is not taken: the loss is nan", error)
    assert "x.npy holds nan in sample 77" in error
    log = tmp_path / "log.csv"
    result = tools.call("train", plans("data=2"), "--data", tmp_path, "--on-nan", "skip", "--epochs", 2, "--log", log)
    assert result.stderr.count("x.npy holds nan in sample 77") == 2
    assert "2 steps not taken" in result.stdout
    rows = read_log(log)
    losses = [float(row["loss"]) for row in rows if row["committed"] == "1"]
    assert len(losses) == len(rows) - 2 and losses[-1] < 0.5 * losses[0]


def test_a_plan_that_does_not_train(tools, folder, tmp_path):
    tools.compile(folder / "mlp.onnx", tmp_path / "plain.plan", "--dim", "batch=32")
    assert "was compiled without --train; compile" in refuse(tools, tmp_path / "plain.plan", folder / "data")


def test_checkpoints_of_others(tools, folder, plans, tmp_path):
    run, data = tmp_path / "run", folder / "data"
    tools.call("train", plans(), "--data", data, "--steps", 2, "--checkpoint-dir", run, "--seed", 1)
    resume = ["--resume", run]
    assert "is of a run with seed 1, not 2" in refuse(tools, plans(), data, *resume, "--seed", 2)
    assert "is of a run over 500 samples, but" in refuse(tools, plans(), folder / "test", *resume)
    other = plans("", "sgd(lr=0.5)", 500)
    assert "that the plan lacks; the checkpoint is of another model or optimizer" in refuse(tools, other, data, *resume)
    step = run / "step-0000000002"
    manifest = json.loads((step / "manifest.json").read_text())
    (step / "manifest.json").write_text(json.dumps({**manifest, "version": 99}))
    assert "has version 99; this program reads version 1" in refuse(tools, plans(), data, *resume)
    (step / "manifest.json").write_text(json.dumps(manifest))
    os.truncate(step / "states.safetensors", 100)
    assert "has 100 bytes; it was saved with" in refuse(tools, plans(), data, *resume)
