"""What a training run writes for TensorBoard, read by TensorBoard's own reader."""

from __future__ import annotations

import csv
import shutil

import gridloom
import numpy as np
import pytest
from conftest import Tools
from tensorboard.backend.event_processing import event_accumulator, io_wrapper
from training_models import Mlp

from gridloom._tools import native

BATCH, SAMPLES = 8, 48
LOSS = ["--train", "--loss", "mse(y, t)", "--optimizer", "adam(lr=1e-2)", "--dim", f"batch={BATCH}"]


class Read:
    """What TensorBoard has of a folder: scalars by tag as lists of (step, value)."""

    def __init__(self, folder):
        self.reader = event_accumulator.EventAccumulator(str(folder), {"scalars": 0, "histograms": 0})
        self.reader.Reload()
        tags = self.reader.Tags()
        self.scalars = {tag: [(event.step, event.value) for event in self.reader.Scalars(tag)] for tag in tags["scalars"]}
        self.histograms = {tag: self.reader.Histograms(tag) for tag in tags["histograms"]}


@pytest.fixture(scope="module")
def model(tools: Tools, tmp_path_factory):
    """A folder with a model, plans of it on one device and two, and data."""
    folder = tmp_path_factory.mktemp("events")
    random = np.random.default_rng(0)
    path = Mlp(lambda *shape: random.standard_normal(shape).astype(np.float32)).save(folder / "m.onnx")
    for name, options in (("one", []), ("two", ["--mesh", "data=2", "--zero", "3"])):
        tools.compile(path, folder / f"{name}.plan", *LOSS, *options)
    plan = gridloom.Plan.read(folder / "one.plan")
    (program,) = (entry for entry in plan.entries if entry.name == "train_step")
    arrays = {
        binding.name: random.standard_normal((SAMPLES, *binding.shape[1:])).astype(binding.dtype)
        for binding in program.specialisations[0].inputs
        if binding.name != "learning_rate"
    }
    np.savez(folder / "data.npz", **arrays)
    return folder


@pytest.mark.parametrize("plan", ["one", "two"])
def test_curves_are_the_logs(tools, model, tmp_path, plan):
    evaluation = ["--eval-data", model / "data.npz", "--eval-every", 5, "--lr-schedule", "cosine(warmup=3)"]
    files = ["--log", tmp_path / "log.csv", "--log-dir", tmp_path / "events", "--histograms-every", 5, "--checkpoint-dir", tmp_path / "c"]
    tools.call("train", model / f"{plan}.plan", "--data", model / "data.npz", "--steps", 10, *evaluation, *files)
    with open(tmp_path / "log.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    read = Read(tmp_path / "events")
    assert read.scalars.keys() == {"loss", "learning_rate", "gradient_norm", "samples_per_second", "eval_loss"}
    for tag in ("loss", "learning_rate", "gradient_norm"):
        assert read.scalars[tag] == [(int(row["step"]), float(np.float32(row[tag]))) for row in rows]
    assert read.scalars["eval_loss"] == [(int(row["step"]), float(np.float32(row["eval_loss"]))) for row in rows if row["eval_loss"]]
    for row, (_, rate) in zip(rows, read.scalars["samples_per_second"], strict=True):
        assert BATCH / rate * 1e3 == pytest.approx(float(row["ms"]), rel=1e-6, abs=6e-4)  # logged to the microsecond
    # Weights once, whatever the mesh splits or repeats.
    checkpoint = gridloom.Trainer(model / "one.plan")
    checkpoint.load(tmp_path / "c")
    weights = {name: checkpoint.session.get_state(name) for name, state in checkpoint.session.states.items() if state.role == "parameter"}
    checkpoint.close()
    assert read.histograms.keys() == {f"parameters/{name}" for name in weights} and weights
    for name, weight in weights.items():
        events = read.histograms[f"parameters/{name}"]
        assert [event.step for event in events] == [5, 10]
        found = events[-1].histogram_value
        assert (found.num, found.min, found.max) == (weight.size, weight.min(), weight.max())
        assert found.sum == pytest.approx(weight.sum(dtype=np.float64), abs=1e-9 * weight.size)
        limits = np.array(found.bucket_limit)
        counts = np.bincount(np.searchsorted(limits, weight.ravel().astype(np.float64), side="right"), minlength=len(limits))
        np.testing.assert_array_equal(found.bucket, counts)


def test_a_run_that_goes_on_has_each_step_once(tools, model, tmp_path):
    """Killed after its last checkpoint, also for a reader that does not know of the restart."""
    train = ["train", model / "one.plan", "--data", model / "data.npz", "--checkpoint-dir", tmp_path / "c", "--log-dir", tmp_path / "e"]
    tools.call(*train, "--steps", 9, "--checkpoint-every", 3, "--keep", 9)
    for step in (6, 9):  # as if it had been killed between 6 and 9
        shutil.rmtree(tmp_path / "c" / f"step-{step:010d}")
    result = tools.call(*train, "--steps", 12, check=False)
    assert result.returncode == 1 and "continue it with --resume" in result.stderr
    tools.call(*train, "--steps", 12, "--resume")
    assert [step for step, _ in Read(tmp_path / "e").scalars["loss"]] == list(range(1, 13))
    alone = [Read(path).scalars["loss"] for path in sorted((tmp_path / "e").iterdir())]
    assert [[step for step, _ in scalars] for scalars in alone] == [[1, 2, 3], list(range(4, 13))]
    # Without a checkpoint it is another run.
    shutil.rmtree(tmp_path / "c")
    assert "they are kept in" in tools.call(*train, "--steps", 2, "--resume").stderr
    assert [step for step, _ in Read(tmp_path / "e").scalars["loss"]] == [1, 2]
    assert len(Read(tmp_path / "e" / "earlier.1").scalars["loss"]) == 12


def test_histograms_of_a_checkpoints_step_are_there_once(tools, model, tmp_path):
    """The first step after it is not taken, so that their number is the same again."""
    data = dict(np.load(model / "data.npz"))
    data["t"][native().sample_order(SAMPLES, 0, 3 * BATCH, BATCH)] = np.nan
    np.savez(tmp_path / "data.npz", **data)
    train = ["train", model / "one.plan", "--data", tmp_path / "data.npz", "--checkpoint-dir", tmp_path / "c", "--log-dir", tmp_path / "e"]
    tools.call(*train, "--histograms-every", 3, "--steps", 3)
    result = tools.call(*train, "--histograms-every", 3, "--steps", 6, "--resume", "--on-nan", "skip")
    assert "step 4 (samples 24 to 31 of epoch 1) is not taken" in result.stderr
    histograms = Read(tmp_path / "e").histograms
    assert histograms and all([event.step for event in events] == [3] for events in histograms.values())


def test_files_can_be_told_from_their_names(tools, model, tmp_path):
    tools.call("train", model / "one.plan", "--data", model / "data.npz", "--steps", 1, "--log-dir", tmp_path)
    files = list(tmp_path.iterdir())
    assert files and all(io_wrapper.IsTensorFlowEventsFile(str(path)) for path in files)


def test_events_in_the_plan_are_refused(tools, model):
    plan = model / "one.plan"
    result = tools.call("train", plan, "--data", model / "data.npz", "--steps", 1, "--log-dir", plan / "events", check=False)
    assert result.returncode == 1 and f"--log-dir {plan / 'events'} is inside the plan {plan}; name a place" in result.stderr
    assert not (plan / "events").exists()


def test_the_trainer_writes_them_too(model, tmp_path):
    with np.load(model / "data.npz") as data:
        arrays = dict(data)
    run = {"checkpoint_dir": tmp_path / "c", "checkpoint_every": 4, "log_dir": tmp_path / "e", "histograms_every": 4}
    with gridloom.Trainer(model / "two.plan") as trainer:
        history = trainer.fit(arrays, steps=6, eval_data=arrays, **run)
        weight = trainer.session.get_state("w1")
        shutil.rmtree(tmp_path / "c" / "step-0000000006")
    read = Read(tmp_path / "e")
    assert read.scalars["loss"] == [(results["step"], np.float32(results["loss"])) for results in history]
    assert read.scalars["learning_rate"] == [(step, np.float32(1e-2)) for step in range(1, 7)]
    assert read.scalars["eval_loss"] == [(6, np.float32(history[-1]["eval_loss"]))]
    assert read.histograms.keys() >= {"parameters/w1"} and not any("/m" in tag for tag in read.histograms)
    assert read.histograms["parameters/w1"][0].histogram_value.num == weight.size
    with gridloom.Trainer(model / "two.plan") as trainer:
        with pytest.raises(gridloom.Error, match="has events of another run"):
            trainer.fit(arrays, steps=1, log_dir=tmp_path / "e")
        trainer.fit(arrays, steps=8, resume=True, **run)
    assert [step for step, _ in Read(tmp_path / "e").scalars["loss"]] == list(range(1, 9))
    with pytest.raises(ValueError, match="histograms_every needs log_dir"), gridloom.Trainer(model / "one.plan") as trainer:
        trainer.fit(arrays, steps=1, histograms_every=1)
