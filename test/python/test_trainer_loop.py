"""gridloom.Trainer's loop: what it reads, in which order, and when it stops. A numpy session replaces a plan's, so that every number is
known."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import gridloom
import numpy as np
import pytest
from conftest import OnlyDlpack

from gridloom import plan as plans

BATCH = 4


def binding(name: str, dtype: str, *shape: int) -> plans.Binding:
    return plans.Binding(name, np.dtype(dtype), shape, ("",) * len(shape), (0,))


class Regression(gridloom.Session):
    """Least squares of x @ w and y by gradient descent, in place of a trained plan's entries."""

    def __init__(self, sizes=(BATCH,)):
        self.values = {"w": np.zeros(3), "w/m": np.zeros(3), "train/step": np.array(0)}
        self.sizes = sizes
        self.rates: list[float] = []
        self.batches: list[np.ndarray] = []
        self.is_closed = False

    @property
    def plan(self) -> gridloom.Plan:
        data = lambda n: (binding("x", "float32", n, 3), binding("y", "float32", n))  # noqa: E731
        rate = binding("learning_rate", "float32")
        entry = lambda name, *extra: gridloom.Entry(  # noqa: E731
            name, tuple(gridloom.Specialisation({"batch": n}, (*data(n), *extra), ()) for n in self.sizes)
        )
        entries = (entry("train_step", rate), entry("eval"), entry("main"))
        training = {"learning_rate": 0.25, "losses": ["mse(p, y)"], "optimizer": "sgd(lr=0.25)"}
        return gridloom.Plan(Path("r.plan"), {}, 1, 1, {}, entries, (), training=training)

    @property
    def states(self):
        return {name: gridloom.State(value.dtype, value.shape) for name, value in self.values.items()}

    def get_state(self, name):
        return self.values[name].copy()

    def set_state(self, name, array):
        self.values[name] = array.copy()

    def run(self, inputs, *, entry="main", dims=None):
        assert inputs["x"].dtype == inputs["y"].dtype == np.float32 and inputs["x"].shape[0] in self.sizes
        errors = inputs["x"] @ self.values["w"] - inputs["y"]
        loss, count = np.mean(errors**2), errors.size
        outputs = {"loss": loss, "count": np.array(float(count)), "bias": np.mean(errors)}
        if entry == "eval":
            return outputs
        assert inputs["learning_rate"].dtype == np.float32 and inputs["learning_rate"].shape == ()
        self.rates.append(float(inputs["learning_rate"]))
        self.batches.append(inputs["x"][:, 0].copy())
        gradient = 2 / count * errors @ inputs["x"]
        is_finite = np.isfinite(loss)
        if is_finite:
            self.values["w"] = self.values["w"] - self.rates[-1] * gradient
            self.values["train/step"] = self.values["train/step"] + 1
        return outputs | {"gradient_norm": np.linalg.norm(gradient), "committed": np.array(float(is_finite))}

    def save(self, path, progress=None):
        Path(path).mkdir(parents=True, exist_ok=True)
        np.savez(Path(path) / "states.npz", **{name.replace("/", "|"): value for name, value in self.values.items()})
        (Path(path) / "manifest.json").write_text(repr(progress))

    def restore(self, path):
        path = Path(path) if (Path(path) / "manifest.json").exists() else max(Path(path).glob("step-*"))
        with np.load(path / "states.npz") as saved:
            self.values = {name.replace("|", "/"): saved[name] for name in saved}
        return eval((path / "manifest.json").read_text(), {"Progress": gridloom.Progress})

    def close(self):
        self.is_closed = True


def table(samples: int = 12) -> dict[str, np.ndarray]:
    """x's first column numbers the samples."""
    random = np.random.default_rng(0)
    x = random.standard_normal((samples, 3)).astype(np.float32)
    x[:, 0] = np.arange(samples) / samples
    return {"x": x, "y": (x @ [1, -2, 0.5]).astype(np.float32)}


def batches(data: dict[str, np.ndarray], size: int = BATCH) -> list[tuple]:
    return [tuple(array[i : i + size] for array in data.values()) for i in range(0, len(data["x"]), size)]


def read(session: Regression, samples: int = 12) -> list[list[int]]:
    return [np.round(batch * samples).astype(int).tolist() for batch in session.batches]


def test_a_step_says_what_it_did():
    trainer = gridloom.Trainer(Regression())
    results = trainer.step(batches(table())[0])
    want = {"loss", "count", "gradient_norm", "committed", "bias", "lr", "step"}
    assert results.keys() == want and results["committed"] is True and results["lr"] == 0.25 and results["step"] == 1
    assert (trainer.step_count, trainer.cursor) == (1, BATCH)


def test_the_loss_falls():
    trainer = gridloom.Trainer(Regression(), lr=0.1)
    history = trainer.fit(table(), steps=200)
    assert len(history) == 200 and history[-1]["loss"] < 1e-3 * history[0]["loss"]
    np.testing.assert_allclose(trainer.state_dict()["w"], [1, -2, 0.5], atol=0.1)


@pytest.mark.parametrize(
    "spell",
    [
        tuple,
        list,
        lambda batch: {"y": batch[1], "x": batch[0]},
        lambda batch: tuple(map(OnlyDlpack, batch)),
        lambda batch: (batch[0].astype(np.float64), batch[1].astype(np.float16)),
        lambda batch: (batch[0].tolist(), batch[1].tolist()),
    ],
    ids=["tuple", "list", "mapping", "dlpack", "other widths", "python"],
)
def test_batches_come_in_many_forms(spell):
    expected, found = gridloom.Trainer(Regression()), gridloom.Trainer(Regression())
    for batch in batches(table()):
        want, have = expected.step(batch), found.step(spell(batch))
        assert have["loss"] == pytest.approx(want["loss"], rel=1e-2)
    assert read(found.session) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_arrays_are_read_once_an_epoch_in_the_seeds_order():
    trainers = [gridloom.Trainer(Regression(), seed=seed) for seed in (1, 1, 2)]
    for trainer in trainers:
        trainer.fit(table(), epochs=2)
    orders = [sum(read(trainer.session), []) for trainer in trainers]
    assert all(sorted(order[:12]) == sorted(order[12:]) == list(range(12)) for order in orders)
    assert orders[0] == orders[1] != orders[2] and orders[0][:12] != orders[0][12:]


def test_batches_go_on_into_the_next_epoch():
    trainer = gridloom.Trainer(Regression())
    trainer.fit(table(10), epochs=2)  # five batches of four
    counts = np.bincount(sum(read(trainer.session, 10), []))
    assert counts.tolist() == [2] * 10 and trainer.step_count == 5


@pytest.mark.parametrize("make", [batches, lambda data: lambda: iter(batches(data))], ids=["list", "function"])
def test_iterables_are_read_again_for_each_epoch(make):
    trainer = gridloom.Trainer(Regression())
    trainer.fit(make(table()), epochs=2)
    assert read(trainer.session) == 2 * [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    trainer.fit(make(table()), steps=2)  # a run of its own
    assert trainer.step_count == 8


def test_short_batches_are_left_out():
    trainer = gridloom.Trainer(Regression())
    trainer.fit(batches(table(11)), epochs=1)
    assert trainer.step_count == 2
    with pytest.raises(ValueError, match="no batch of the plan's 4 samples left"):
        trainer.fit(batches(table(3)), steps=1)


def test_a_generator_that_has_ended_is_no_endless_loop():
    trainer = gridloom.Trainer(Regression())
    with pytest.raises(ValueError, match="a generator ends once"):
        trainer.fit((batch for batch in batches(table())), steps=10)
    assert trainer.step_count == 3


def test_several_batch_sizes():
    trainer = gridloom.Trainer(Regression(sizes=(2, 4)))
    trainer.fit(table(), epochs=1)
    trainer.fit(table(), epochs=1, batch_size=2)
    assert [len(batch) for batch in read(trainer.session)] == [4] * 3 + [2] * 6
    with pytest.raises(ValueError, match="batch_size is 3; the plan has 2, 4"):
        trainer.fit(table(), epochs=1, batch_size=3)


class Loader:
    """As torch's DataLoader says what its batches are."""

    batch_size = BATCH

    def __init__(self, given: list, drop_last: bool):
        self.drop_last, self.batches = drop_last, given[:-1] if drop_last else given
        self.sampler = range(sum(len(x) for x, _ in given))

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.batches)


@pytest.mark.parametrize("kind", ["list", "loader", "dropping loader"])
def test_schedules_count_no_batches_that_are_skipped(kind):
    data = batches(table(2 * BATCH + 1))
    if kind != "list":
        data = Loader(data, drop_last=kind == "dropping loader")
    trainer = gridloom.Trainer(Regression(), lr=1, schedule="linear")
    trainer.fit(data, epochs=2)
    assert trainer.session.rates == pytest.approx([1, 0.75, 0.5, 0.25])


def test_schedules_multiply_the_rate():
    trainer = gridloom.Trainer(Regression(), lr=0.5, schedule="linear(warmup=2)")
    trainer.fit(table(), steps=4)  # also the schedule's total
    assert trainer.session.rates == [0.25, 0.5, 0.5, 0.25]
    trainer = gridloom.Trainer(Regression(), schedule=lambda step: 1 / (1 + step))
    trainer.fit(table(), steps=3)
    assert trainer.session.rates == pytest.approx([0.25, 0.125, 0.25 / 3])
    trainer = gridloom.Trainer(Regression(), lr=1, schedule="linear")
    trainer.fit(table(), epochs=1)
    assert trainer.session.rates == pytest.approx([1, 2 / 3, 1 / 3])
    with pytest.raises(gridloom.Error, match="total"):
        gridloom.Trainer(Regression(), schedule="linear").step(batches(table())[0])
    with pytest.raises(gridloom.Error, match="liner"):
        gridloom.Trainer(Regression(), schedule="liner")


@pytest.mark.parametrize("data", [table, lambda: batches(table())], ids=["arrays", "batches"])
@pytest.mark.parametrize("killed", range(1, 8))
def test_a_resumed_run_is_the_whole_run(tmp_path, data, killed):
    whole = gridloom.Trainer(Regression(), schedule="cosine(warmup=3)", seed=5)
    whole.fit(data(), steps=8)

    def kill(trainer, step, results):
        if step == killed:
            raise KeyboardInterrupt

    options = {"steps": 8, "checkpoint_dir": tmp_path, "checkpoint_every": 2, "resume": True}
    first = gridloom.Trainer(Regression(), schedule="cosine(warmup=3)", seed=5, callbacks=[kill])
    with pytest.raises(KeyboardInterrupt):
        first.fit(data(), **options)
    second = gridloom.Trainer(Regression(), schedule="cosine(warmup=3)", seed=5 if killed <= 2 else 77)
    history = second.fit(data(), **options)
    saved = (killed - 1) // 2 * 2  # the callback runs before the checkpoint
    assert len(history) == 8 - saved and second.step_count == 8
    assert read(first.session)[:saved] + read(second.session) == read(whole.session)
    for name, value in whole.state_dict().items():
        np.testing.assert_array_equal(second.state_dict()[name], value)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", *(f"step-{step:010d}" for step in (2, 4, 6, 8))]
    assert gridloom.Trainer(Regression()).fit(data(), **options) == []  # nothing is left to do


def test_a_run_resumes_in_the_middle_of_an_epoch(tmp_path):
    trainer = gridloom.Trainer(Regression())
    trainer.fit(table(), steps=2, checkpoint_dir=tmp_path)
    other = gridloom.Trainer(Regression(), seed=9)
    other.fit(table(), epochs=2, resume=tmp_path / "step-0000000002")
    order = sum(read(trainer.session) + read(other.session), [])
    assert sorted(order[:12]) == sorted(order[12:]) == list(range(12))
    with pytest.raises(ValueError, match="the data has 16 samples, the run so far read 12"):
        gridloom.Trainer(Regression()).fit(table(16), epochs=2, resume=tmp_path)


def test_an_interrupted_last_evaluation_is_made_up_for(tmp_path):
    class Seen:
        evaluations: list[int] = []

        def on_evaluate(self, trainer, step, results):
            self.evaluations.append(step)

    bad = {name: array[:3] for name, array in table().items()}  # no whole batch
    with pytest.raises(ValueError, match="3 samples, fewer than"):
        gridloom.Trainer(Regression()).fit(table(), steps=2, eval_data=bad, checkpoint_dir=tmp_path)
    resumed = gridloom.Trainer(Regression(), callbacks=[Seen()])
    assert resumed.fit(table(), steps=2, eval_data=table(), checkpoint_dir=tmp_path, resume=True) == []
    assert Seen.evaluations == [2]


@pytest.mark.parametrize("argument", ["checkpoint_dir", "log_dir"])
@pytest.mark.parametrize("folder", ["r.plan", "r.plan/runs"])
def test_folders_in_the_plan_are_refused(tmp_path, monkeypatch, folder, argument):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"{argument} {folder} is inside the plan r.plan; name a place outside"):
        gridloom.Trainer(Regression()).fit(table(), steps=1, **{argument: folder})
    assert not list(tmp_path.iterdir())


def test_checkpoints_in_a_checkpoint_are_refused(tmp_path):
    gridloom.Trainer(Regression()).fit(table(), steps=2, checkpoint_dir=tmp_path)
    with pytest.raises(ValueError, match="is itself a plan or a checkpoint; name a folder for checkpoints alone"):
        gridloom.Trainer(Regression()).fit(table(), steps=2, checkpoint_dir=tmp_path / "step-0000000002")


def test_checkpoints_of_another_run_stay(tmp_path):
    run = tmp_path / "run"
    first = gridloom.Trainer(Regression())
    first.fit(table(), steps=4, checkpoint_dir=run, checkpoint_every=2)
    first.fit(table(), steps=2, checkpoint_dir=run)  # continues the same run
    saved = {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))}
    for other in (gridloom.Trainer(Regression()), gridloom.Trainer(Regression(), seed=3)):
        with pytest.raises(ValueError, match=r"run has a checkpoint of another run, of step 6; continue it with resume=True, or"):
            other.fit(table(), steps=6, checkpoint_dir=run)
        with pytest.raises(ValueError, match=r"of step 6, which is not of .*step-0000000004 or comes after it; remove it, or"):
            other.fit(table(), steps=6, checkpoint_dir=run, resume=run / "step-0000000004")
        other.fit(table(), steps=2, checkpoint_dir=tmp_path / f"other of {other.seed}")
        with pytest.raises(ValueError, match=r"of step 6, which is not of .*other of 0"):
            other.fit(table(), steps=6, checkpoint_dir=run, resume=tmp_path / "other of 0")
        assert other.step_count == 2 and len(other.session.rates) == 2
    assert saved == {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))}
    for resume in (True, run, run / "step-0000000006"):
        other = gridloom.Trainer(Regression())
        other.fit(table(), steps=other.step_count + 6, checkpoint_dir=run, resume=resume)
        assert other.step_count == 6
    other.fit(table(), steps=1, checkpoint_dir=run)  # continues it
    assert other.step_count == 7
    loaded = gridloom.Trainer(Regression())
    loaded.load(run)
    loaded.fit(table(), steps=1, checkpoint_dir=run)
    assert (run / "step-0000000008").exists()


def test_a_folder_is_one_runs(tmp_path, monkeypatch):
    """Another fit, or gridloom train, holds the folder while it runs."""
    monkeypatch.setattr("gridloom.trainer._LOCK_PATIENCE", 0.1)
    data, run = table(), {"checkpoint_dir": tmp_path / "run", "resume": True}

    def second(trainer, step, results):
        with pytest.raises(ValueError, match="checkpoint_dir .*run is another run's that has not ended; wait for it, or name a new folder"):
            gridloom.Trainer(Regression()).fit(data, steps=2, **run)

    gridloom.Trainer(Regression(), callbacks=[second]).fit(data, steps=2, **run)
    assert len(gridloom.Trainer(Regression()).fit(data, steps=3, **run)) == 1


def test_a_process_that_outlives_a_fit_holds_no_folder(tmp_path, monkeypatch):
    """As a DataLoader's workers with persistent_workers=True, which are forked during the first epoch."""
    monkeypatch.setattr("gridloom.trainer._LOCK_PATIENCE", 0.1)
    workers = []

    def fork(trainer, step, results):
        workers.append(os.fork())
        if not workers[-1]:
            signal.pause()
            os._exit(0)

    trainer = gridloom.Trainer(Regression(), callbacks=[fork])
    try:
        trainer.fit(table(), steps=1, checkpoint_dir=tmp_path)
        trainer.callbacks = []
        assert len(trainer.fit(table(), steps=1, checkpoint_dir=tmp_path)) == 1
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
            os.waitpid(worker, 0)


def test_a_first_save_that_was_killed_is_no_checkpoint(tmp_path):
    (tmp_path / "step-0000000002.tmp-0123456789abcdef").mkdir()
    (tmp_path / "step-2").mkdir()
    trainer = gridloom.Trainer(Regression())
    assert len(trainer.fit(table(), steps=2, checkpoint_dir=tmp_path, resume=True)) == 2
    assert (tmp_path / "step-0000000002" / "manifest.json").exists()
    assert not list(tmp_path.glob("*.tmp-*"))


def test_without_a_checkpoint_steps_count_from_here(tmp_path):
    trainer = gridloom.Trainer(Regression())
    trainer.fit(table(), steps=10)
    assert len(trainer.fit(table(), steps=5, checkpoint_dir=tmp_path, resume=True)) == 5
    assert trainer.step_count == 15
    assert len(trainer.fit(table(), epochs=1, checkpoint_dir=tmp_path / "new", resume=True)) == 3


def test_nan_stops_or_is_skipped():
    data = table()
    data["y"][5] = np.nan
    trainer = gridloom.Trainer(Regression())
    with pytest.raises(FloatingPointError, match=r"^step 2, of samples 4 to 7, was not taken: its loss is nan, the norm of"):
        trainer.fit(batches(data), epochs=1)
    trainer = gridloom.Trainer(Regression())
    history = trainer.fit(batches(data), epochs=2, on_nan="skip")
    assert [results["committed"] for results in history] == 2 * [True, False, True]
    assert trainer.step_count == 4 and trainer.cursor == 24
    trainer = gridloom.Trainer(Regression())
    data["y"][:] = np.nan
    with pytest.raises(FloatingPointError, match="nor were the 999 before it"):
        trainer.fit(batches(data), steps=1, on_nan="skip")


def test_what_was_refused_is_read_again():
    data = table()
    whole = gridloom.Trainer(Regression(), seed=2)
    whole.fit(data, steps=3)
    trainer = gridloom.Trainer(Regression(), seed=2)
    trainer.fit(data, steps=1)
    poisoned = {**data, "y": np.full_like(data["y"], np.nan)}
    with pytest.raises(FloatingPointError, match="step 2, of samples 4 to 7"):
        trainer.fit(poisoned, steps=2)
    assert (trainer.step_count, trainer.cursor) == (1, BATCH)
    trainer.fit(data, steps=2)
    assert read(trainer.session)[:1] + read(trainer.session)[2:] == read(whole.session)
    with pytest.raises(FloatingPointError, match="nor were the 999 before it"):
        trainer.fit(poisoned, steps=1, on_nan="skip")
    assert trainer.cursor == (3 + 999) * BATCH


class Interrupted(Regression):
    """Ctrl-C during the second step, which the runtime completes."""

    def run(self, inputs, *, entry="main", dims=None):
        outputs = super().run(inputs, entry=entry, dims=dims)
        if entry == "train_step" and len(self.batches) == 2:
            raise KeyboardInterrupt
        return outputs


def test_an_interrupted_step_is_not_taken_twice():
    whole = gridloom.Trainer(Regression(), schedule=lambda step: 1 / (1 + step))
    whole.fit(table(), steps=3)
    trainer = gridloom.Trainer(Interrupted(), schedule=lambda step: 1 / (1 + step))
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(table(), steps=3)
    assert (trainer.step_count, trainer.cursor) == (2, 2 * BATCH)
    trainer.fit(table(), steps=1)
    assert read(trainer.session) == read(whole.session) and trainer.session.rates == whole.session.rates


def test_an_interrupted_save_is_the_runs_own(tmp_path):
    trainer = gridloom.Trainer(Regression())
    save = trainer.session.save

    def interrupt(*arguments):
        save(*arguments)
        trainer.session.save = save
        raise KeyboardInterrupt

    trainer.session.save = interrupt
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(table(), steps=1, checkpoint_dir=tmp_path)
    trainer.fit(table(), steps=1, checkpoint_dir=tmp_path)
    assert trainer.step_count == 2


def test_evaluation_weighs_by_count():
    trainer = gridloom.Trainer(Regression(sizes=(2, 4)))
    trainer.fit(table(), steps=3)
    w = trainer.state_dict()["w"]
    data = table(10)
    errors = data["x"] @ w - data["y"]
    found = trainer.evaluate(batches(data))  # batches of 4, 4 and 2
    assert found.keys() == {"loss", "bias", "count", "samples"} and found["count"] == found["samples"] == 10
    assert found["loss"] == pytest.approx(np.mean(errors**2)) and found["bias"] == pytest.approx(np.mean(errors))
    assert trainer.evaluate(data)["samples"] == 8 and trainer.evaluate(data, batch_size=2)["samples"] == 10
    assert trainer.step_count == 3 and trainer.cursor == 12


class Partial(Regression):
    """Adds the mean of x0 over samples with positive y, and their number."""

    def run(self, inputs, *, entry="main", dims=None):
        found = inputs["x"][inputs["y"] > 0, 0].astype(np.float64)
        values = {"positive": found.mean() if found.size else np.array(np.nan), "positive.count": np.array(float(found.size))}
        return super().run(inputs, entry=entry, dims=dims) | values


def test_metrics_weigh_by_what_they_count():
    data = table(20)
    data["y"][:8] = np.abs(data["y"][:8]) + 1  # all of the first two batches, one of the third, none of the fourth
    data["y"][8:16] = -1
    data["y"][9] = 1
    trainer = gridloom.Trainer(Partial())
    found = trainer.evaluate(data)
    assert found.keys() == {"loss", "bias", "positive", "count", "samples"} and found["count"] == 20
    assert found["positive"] == pytest.approx(np.mean(data["x"][data["y"] > 0, 0]), rel=1e-6)
    assert found["bias"] == pytest.approx(-np.mean(data["y"]), rel=1e-6)
    assert np.isnan(trainer.evaluate({name: array[12:16] for name, array in data.items()})["positive"])
    (results,) = trainer.fit(data, steps=1, eval_data=data)
    assert not [name for name in results if name.endswith(".count")] and {"positive", "eval_positive"} <= results.keys()


def test_evaluations_and_callbacks_during_fit():
    class Watcher:
        def __init__(self):
            self.steps, self.losses = [], []

        def on_step(self, trainer, step, results):
            self.steps.append(step)

        def on_evaluate(self, trainer, step, found):
            self.losses.append((step, found["loss"]))

    watcher, calls = Watcher(), []
    trainer = gridloom.Trainer(Regression(), callbacks=[watcher, lambda *arguments: calls.append(arguments)])
    history = trainer.fit(table(), steps=5, eval_data=batches(table()), eval_every=2)
    assert watcher.steps == [1, 2, 3, 4, 5] and [step for step, _ in watcher.losses] == [2, 4, 5]
    assert [results.get("eval_loss") for results in history] == [None] + [loss for _, loss in watcher.losses[:1]] + [None] + [
        loss for _, loss in watcher.losses[1:]
    ]
    assert [(who, step) for who, step, _ in calls] == [(trainer, step) for step in range(1, 6)]
    assert [results for *_, results in calls] == history
    trainer.callbacks = [lambda trainer, step, results: trainer.stop() if step == 7 else None]
    trainer.fit(table(), steps=100)
    assert trainer.step_count == 7


def test_state_dicts_go_around():
    trainer, other = gridloom.Trainer(Regression()), gridloom.Trainer(Regression())
    trainer.fit(table(), steps=3)
    states = trainer.state_dict()
    other.load_state_dict(states)
    assert other.step_count == 3
    for name, value in other.state_dict().items():
        np.testing.assert_array_equal(value, states[name])
    before = other.state_dict()
    for wrong, words in (
        ({**states, "v": states["w"]}, "the plan has no state 'v'"),
        ({"w": states["w"]}, "the states lack 'train/step', 'w/m'"),
        ({**states, "w": np.zeros(4)}, r"state 'w' is float64\[3\], not float64\[4\]"),
        ({**states, "w": np.zeros(3, np.float32)}, r"state 'w' is float64\[3\], not float32\[3\]"),
    ):
        with pytest.raises(ValueError, match=words):
            other.load_state_dict(wrong)
    assert all(np.array_equal(value, before[name]) for name, value in other.state_dict().items())


def test_a_trainer_leaves_a_given_session_open():
    session = Regression()
    with gridloom.Trainer(session):
        pass
    assert not session.is_closed


@pytest.mark.parametrize(
    "wrong,words",
    [
        (lambda t: t.fit(table()), "fit takes steps or epochs, one of them"),
        (lambda t: t.fit(table(), steps=1, epochs=1), "fit takes steps or epochs, one of them"),
        (lambda t: t.fit(table(), steps=0), "steps is 0; it is an integer of 1 or more"),
        (lambda t: t.fit(table(), steps=1.5), "steps is 1.5; it is an integer of 1 or more"),
        (lambda t: t.fit(table(), steps=1, batch_size=4.0), "batch_size is 4.0; it is an integer of 1 or more"),
        (lambda t: t.fit(table(), steps=1, checkpoint_dir=""), "checkpoint_dir is empty; name a folder, or leave it out"),
        (lambda t: t.fit(table(), steps=1, log_dir=""), "log_dir is empty"),
        (lambda t: t.fit(table(), steps=1, resume=""), "resume is empty"),
        (lambda t: t.fit(table(), steps=1, on_nan="go"), "on_nan 'go' is not one of stop, skip"),
        (lambda t: t.fit(table(), steps=1, checkpoint_every=1), "checkpoint_every needs checkpoint_dir"),
        (lambda t: t.fit(table(), steps=1, resume=True), "resume=True needs checkpoint_dir"),
        (lambda t: t.fit(table(3), steps=1), "the data has 3 samples, fewer than the plan's batch of 4"),
        (lambda t: t.fit({"x": table()["x"]}, steps=1), "the batch lacks 'y'; entry 'train_step' takes x, y"),
        (lambda t: t.fit(table() | {"z": 1}, steps=1), "entry 'train_step' has no input 'z'; it takes x, y"),
        (lambda t: t.fit(table() | {"y": np.zeros(9)}, steps=1), "different numbers of samples: x 12, y 9"),
        (lambda t: t.step([np.zeros((4, 3))]), r"a batch is 2 arrays \(x, y\), this one has 1"),
        (lambda t: t.evaluate([]), "no batch of the plan's 4 samples left"),
        (lambda t: gridloom.Trainer("r.plan", ranks="environment"), "a Trainer has all ranks in its process"),
        (lambda t: gridloom.Trainer(Regression(), threads=1, init_seed=2), "'init_seed', 'threads': the session was loaded without"),
        (lambda t: gridloom.Trainer(Regression(), seed=-1), "seed is -1; it is an integer from 0 to"),
        (lambda t: gridloom.Trainer(Regression(), seed=1.5), "seed is 1.5; it is an integer from 0 to"),
        (lambda t: gridloom.Trainer(Regression(), lr=-1), "lr is -1.0; it is a finite number, 0 or more"),
        (lambda t: gridloom.Trainer(Regression(), lr=float("nan")), "lr is nan"),
    ],
)
def test_wrong_use_is_told(wrong, words):
    trainer = gridloom.Trainer(Regression())
    with pytest.raises(ValueError, match=words):
        wrong(trainer)
    assert trainer.step_count == 0


def test_integers_that_do_not_fit_are_refused():
    convert = gridloom.trainer._convert
    assert convert("labels", np.array([1, 2]), np.dtype(np.int32)).dtype == np.int32
    with pytest.raises(ValueError, match="input 'labels' has values that int32 lacks: 1 to 4294967296"):
        convert("labels", np.array([1, 2**32]), np.dtype(np.int32))
    floats = np.array([1.0])
    assert convert("labels", floats, np.dtype(np.int64)) is floats  # the session refuses it
