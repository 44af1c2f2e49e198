"""`gridloom.Trainer`: the training loop for Python, for plans made by `gridloom compile --train`."""

from __future__ import annotations

import contextlib
import fcntl
import math
import operator
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ._events import RunEvents
from ._tools import native
from .errors import Error
from .plan import Binding, Plan
from .session import Progress, Session, load, to_numpy

_LEARNING_RATE = "learning_rate"
_STEP = "train/step"
# States that a step changes even if it is not taken: attempts, which random numbers depend on, and a dynamic scale of the loss.
_ATTEMPTS = ("train/iteration", "train/loss_scale", "train/good_steps")
_LOSS_SCALE = "loss_scale"
_COUNT = ".count"  # suffix of a metric's divisor
_LOCK_PATIENCE = 3.0  # seconds to wait for the lock of a run that was killed
# `fit` stops after this many skipped steps in a row: that is no temporary overflow.
_MOST_SKIPPED = 1000


class Trainer:
    """Trains a plan with the entries `train_step` and `eval`, which `gridloom.compile(..., train=True)` makes.

        trainer = gridloom.Trainer("model.plan", lr=1e-3, schedule="cosine(warmup=100)")
        trainer.fit({"x": images, "labels": labels}, steps=1000, checkpoint_dir="checkpoints", checkpoint_every=100)
        print(trainer.evaluate({"x": test_images, "labels": test_labels})["loss"])

    `plan` is a folder, a `Plan`, or a `Session` of one, which has its options; else `options` are those of `gridloom.load`. `check_indices`
    is on by default: indices out of range raise an error. `init_seed` draws different initial weights for a plan that trains from scratch.
    `lr` is the learning rate, by default the plan's; `schedule` multiplies it: text as for `gridloom train --lr-schedule`, or a function of
    the number of committed steps. `seed` decides the order in which `fit` reads arrays. Callbacks are functions called after each step with
    (trainer, step, results), or objects with such a method `on_step` and optionally a method `on_evaluate`.

    `step_count` is the number of committed steps, `cursor` the number of samples read so far. The states are the session's: weights by
    their names in the model, optimizer states as NAME/SLOT, and train/step."""

    def __init__(
        self,
        plan: str | os.PathLike | Session,
        *,
        lr: float | None = None,
        schedule: str | Callable[[int], float] | None = None,
        callbacks: Iterable = (),
        seed: int = 0,
        **options,
    ):
        if options.get("ranks", "in-process") != "in-process" or getattr(plan, "_tells_peers", False):
            raise ValueError("a Trainer has all ranks in its process; 'gridloom train' has a process for each")
        if isinstance(plan, Session) and options:
            raise ValueError(f"{_list_names(options)}: the session was loaded without; options belong in the call of gridloom.load")
        if not _is_whole(seed, 0) or seed >= 1 << 64:
            raise ValueError(f"seed is {seed}; it is an integer from 0 to 2**64 - 1")
        given = plan.plan if isinstance(plan, Session) else Plan.read(plan)
        self._inputs = {entry: _list_inputs(given, entry) for entry in ("train_step", "eval")}
        self._terms = (given.training or {}).get("terms", [])  # outputs whose sum is the loss, if there are several losses
        self.lr = _default_rate(given) if lr is None else float(lr)
        if not (math.isfinite(self.lr) and self.lr >= 0):
            raise ValueError(f"lr is {self.lr}; it is a finite number, 0 or more")
        self.schedule = schedule
        self._total = 1 << 40  # steps, for a schedule whose text has no number of steps
        self._factor(0)  # refuses an invalid schedule
        self._total = 0  # unknown before `fit`
        self.callbacks = list(callbacks)
        self.seed = seed
        self._owns_session = not isinstance(plan, Session)
        self.session = load(plan, **{"check_indices": True, **options}) if self._owns_session else plan
        self.step_count = int(self.session.get_state(_STEP))
        self._attempts = [name for name, state in self.session.states.items() if name in _ATTEMPTS and state.role == "run"]
        self.cursor = 0
        self._samples = 0
        self._order = None  # the samples of the current batch, if `fit` has arrays
        self._saved: set[Path] = set()  # the run's checkpoints
        self._stopping = False
        self._events: RunEvents | None = None  # during `fit`
        self._logged: set[Path] = set()

    # Steps

    def step(self, batch) -> dict:
        """Takes one step on a batch: a mapping of input names to arrays, or arrays in the order of the plan's inputs. Arrays are numpy's or
        support DLPack, as torch's CPU tensors do; floats of another width, and integers that fit, are converted.

        Returns `loss` (the batch's mean), `count` (the divisor of the sum of losses), `gradient_norm` (before clipping), the plan's
        metrics, `lr`, `step` (committed steps so far) and `committed`: False if the loss or a gradient was not finite; then no state has
        changed. With a scaled loss there is also `loss_scale`, the scale of this step."""
        inputs = self._arrange(batch, "train_step")
        self._require_labels(inputs, "train_step", f"step {self.step_count + 1}", self._order)
        rate = self.lr * self._factor(self.step_count)
        rows = self._rows(inputs, "train_step")
        if _LEARNING_RATE in self._inputs["train_step"]:
            inputs[_LEARNING_RATE] = np.array(rate, np.float32)
        before, begin = self.step_count, self.cursor
        try:
            outputs = self.session.run(inputs, entry="train_step")
            results = {name: float(value) for name, value in outputs.items() if value.ndim == 0 and not name.endswith(_COUNT)}
            results["committed"] = results.get("committed", 1) == 1  # False for NaN
            self.step_count += results["committed"]
            self.cursor += rows
        except BaseException:  # an interrupt, which may come when the step is taken already
            with contextlib.suppress(Error):
                if (taken := int(self.session.get_state(_STEP))) > before:
                    self.step_count, self.cursor = taken, begin + rows
            raise
        results |= {"lr": rate, "step": self.step_count}
        for callback in self.callbacks:
            _call(callback, "on_step", self, self.step_count, results)
        return results

    def fit(
        self,
        data,
        *,
        steps: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        eval_data=None,
        eval_every: int | None = None,
        checkpoint_dir: str | os.PathLike | None = None,
        checkpoint_every: int | None = None,
        resume: bool | str | os.PathLike = False,
        on_nan: str = "stop",
        log_dir: str | os.PathLike | None = None,
        histograms_every: int | None = None,
    ) -> list[dict]:
        """Trains for a number of committed steps or epochs, or until `stop` is called. Returns the results of each step.

        `data` is a mapping of input names to arrays of all samples, read in the seed's order in batches of `batch_size` (by default the
        plan's largest), the same samples as `gridloom train`; or an iterable of batches as for `step`: a torch DataLoader, a list, or a
        function that makes a generator for each epoch. Batches smaller than the plan's are skipped. `eval_data`, of the same kinds, is
        evaluated at the end and every `eval_every` steps; the step's results then have `eval_loss` and so on. Checkpoints are folders
        step-NUMBER in `checkpoint_dir`, one every `checkpoint_every` steps and one at the end. A folder in the plan, one that is itself a
        plan or a checkpoint, one with checkpoints of another run, or one in use by another `fit` or `gridloom train`, is refused.

        `resume` continues from the latest checkpoint there, if there is one, or from the checkpoint that it names; `steps` and `epochs`
        then count from the run's beginning. Arrays continue at the checkpoint's cursor; an iterable's earlier batches are skipped.
        `log_dir` is a folder of event files for TensorBoard: the numbers of each step and evaluation, and every `histograms_every` steps
        a histogram of each weight. A step whose loss or gradients are not finite raises FloatingPointError, with the cursor before it,
        unless `on_nan` is "skip". With a dynamic loss scale it raises only if the loss is not finite or the scale is at its minimum;
        otherwise the next step has a smaller scale. A label out of range raises ValueError with its sample."""
        if (steps is None) == (epochs is None):
            raise ValueError("fit takes steps or epochs, one of them")
        if on_nan not in ("stop", "skip"):
            raise ValueError(f"on_nan {on_nan!r} is not one of stop, skip")
        for name, number in (("steps", steps), ("epochs", epochs), ("eval_every", eval_every), ("checkpoint_every", checkpoint_every),
                             ("histograms_every", histograms_every), ("batch_size", batch_size)):  # fmt: skip
            if number is not None and not _is_whole(number, 1):
                raise ValueError(f"{name} is {number!r}; it is an integer of 1 or more")
        for name, path in (("checkpoint_dir", checkpoint_dir), ("log_dir", log_dir), ("resume", resume)):
            if path == "":  # would be the current folder
                raise ValueError(f"{name} is empty; name a folder, or leave it out")
        if checkpoint_every is not None and checkpoint_dir is None:
            raise ValueError("checkpoint_every needs checkpoint_dir, the folder for checkpoints")
        if histograms_every is not None and log_dir is None:
            raise ValueError("histograms_every needs log_dir, the folder for event files")
        self._require_outside_plan("log_dir", log_dir)
        self._require_outside_plan("checkpoint_dir", checkpoint_dir)
        if checkpoint_dir is not None and (Path(checkpoint_dir) / "manifest.json").exists():
            raise ValueError(f"checkpoint_dir {checkpoint_dir} is itself a plan or a checkpoint; name a folder for checkpoints alone")
        with _locked(checkpoint_dir):
            self._require_unused(checkpoint_dir, resume)
            is_resumed = self._resume(resume, checkpoint_dir)
            begin, first = (0, 0) if is_resumed else (self.step_count, self.cursor)
            goal = None if steps is None else begin + steps
            self._total = goal or begin + self._count_steps(data, epochs, batch_size)
            self._stopping = False
            batches = self._batches(data, epochs, batch_size, first)
            self._events = None if log_dir is None else self._open_events(log_dir, bool(resume))
            try:
                return self._loop(batches, goal, eval_data, eval_every, checkpoint_dir, checkpoint_every, on_nan, histograms_every)
            finally:
                self._events = None
                self._order = None

    def _loop(self, batches, goal, eval_data, eval_every, checkpoint_dir, checkpoint_every, on_nan, histograms_every) -> list[dict]:
        history: list[dict] = []
        skipped, saved = 0, None
        while not self._stopping and (goal is None or self.step_count < goal):
            before, begin = self.cursor, time.perf_counter()
            if (batch := next(batches, None)) is None:
                break
            attempt = {name: self.session.get_state(name) for name in self._attempts}
            results = self.step(batch)
            history.append(results)
            skipped = 0 if results["committed"] or self._is_scale_too_large(results) else skipped + 1
            if skipped and (on_nan == "stop" or skipped == _MOST_SKIPPED):
                self._refuse(results, before, skipped, attempt)
            if not results["committed"]:
                continue
            if self._events:
                self._events.add_step(results, (self.cursor - before) / (time.perf_counter() - begin))
                if histograms_every and self.step_count % histograms_every == 0:
                    self._events.add_parameters(self.step_count, self.session)
            # Before the evaluation, so that an error in it does not lose the checkpoint.
            if checkpoint_every and self.step_count % checkpoint_every == 0:
                saved = self._save_in(checkpoint_dir)
            if eval_data is not None and eval_every and self.step_count % eval_every == 0:
                self._evaluate_into(results, eval_data)
        if checkpoint_dir is not None and history and saved != self.cursor:
            self._save_in(checkpoint_dir)
        if history and eval_data is not None and "eval_loss" not in history[-1]:
            self._evaluate_into(history[-1], eval_data)
        elif not history and eval_data is not None and self.step_count == goal:
            self._evaluate_into({}, eval_data)  # the last evaluation may have been interrupted
        return history

    def stop(self) -> None:
        """Ends `fit` after the step in progress; for callbacks."""
        self._stopping = True

    def evaluate(self, data, *, batch_size: int | None = None) -> dict:
        """Runs the entry `eval` once over `data`, in its own order; kinds of data as for `fit`. Returns `loss` and the plan's metrics as
        means over all samples (a batch's mean counts by its divisor), `count` (the sum of the loss's divisors; of several losses, the
        first one's) and `samples`. Only whole batches are evaluated. Several losses are means `loss.1` and so on, times their weights,
        and `loss` is their sum."""
        sums: dict[str, float] = {}
        counts: dict[str, float] = {}
        samples = 0
        for batch in self._pass(data, "eval", batch_size):
            inputs = self._arrange(batch, "eval")
            rows = self._rows(inputs, "eval")
            self._require_labels(inputs, "eval", "evaluation", range(samples, samples + rows))
            samples += rows
            outputs = self.session.run(inputs, entry="eval")
            values = {name: float(value) for name, value in outputs.items() if value.ndim == 0}
            for name, value in values.items():
                if name == "count" or name.endswith(_COUNT):
                    continue
                weight = values.get(name + _COUNT, values["count"])
                counts[name] = counts.get(name, 0.0) + weight
                # A batch whose labels are all ignored has no mean.
                sums[name] = sums.get(name, 0.0) + (value * weight if weight else 0.0)
            counts["count"] = counts.get("count", 0.0) + values["count"]
        means = {name: total / counts[name] if counts[name] else math.nan for name, total in sums.items()}
        if self._terms:  # each has its own divisor; a loss without any label adds nothing, as in a step
            counted = [means[term] for term in self._terms if term in means and counts[term]]
            means["loss"] = sum(counted) if counted else math.nan
        return means | {"count": counts.get("count", 0.0), "samples": samples}

    # States

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of all states' whole values, by name."""
        return {name: self.session.get_state(name) for name in self.session.states}

    def load_state_dict(self, states: Mapping) -> None:
        """Sets all states. Raises ValueError, and changes nothing, if names, types or shapes differ from the plan's."""
        known = self.session.states
        if missing := known.keys() - states.keys():
            raise ValueError(f"the states lack {_list_names(missing)}")
        if unknown := states.keys() - known.keys():
            raise ValueError(f"the plan has no state {_list_names(unknown)}")
        arrays = {name: to_numpy(array) for name, array in states.items()}
        for name, array in arrays.items():
            if array.dtype != known[name].dtype or array.shape != known[name].shape:
                raise ValueError(
                    f"state '{name}' is {known[name].dtype}{list(known[name].shape)}, not {array.dtype}{list(array.shape)}"
                )
        for name, array in arrays.items():
            self.session.set_state(name, array)
        self.step_count = int(arrays[_STEP])

    def save(self, path: str | os.PathLike) -> None:
        """Writes a checkpoint, a folder with states, step, cursor and seed, as `gridloom train` does. `gridloom checkpoint export` makes
        a model from it. A checkpoint at `path` is replaced; anything else there, or a place in the plan, raises Error and stays as it
        is."""
        self._saved.add(Path(path).resolve())  # before an interrupt that may come when it is written already
        self.session.save(path, Progress(self.step_count, self.cursor, self._samples, self.seed))

    def load(self, path: str | os.PathLike) -> None:
        """Continues from a checkpoint, or from the latest in a run's folder, of this plan or of one for another mesh."""
        progress = self.session.restore(path)
        self._saved |= _list_run(path)
        self.step_count = int(self.session.get_state(_STEP))
        self.cursor, self._samples, self.seed = progress.cursor, progress.samples, progress.seed

    def close(self) -> None:
        """Closes the session, if the trainer made it."""
        if self._owns_session:
            self.session.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    # Details

    def _factor(self, step: int) -> float:
        if self.schedule is None:
            return 1.0
        if callable(self.schedule):
            return float(self.schedule(step))
        return native().schedule_factor(self.schedule, self._total, step)

    def _resume(self, resume, checkpoint_dir) -> bool:
        if resume is False or resume is None:
            return False
        if resume is True:
            if checkpoint_dir is None:
                raise ValueError("resume=True needs checkpoint_dir, the folder of the run's checkpoints")
            resume = Path(checkpoint_dir)
            if not _list_checkpoints(resume):
                return False
        self.load(resume)
        return True

    def _require_outside_plan(self, argument: str, folder: str | os.PathLike | None) -> None:
        """Raises ValueError if the folder is in the plan, which compiling again replaces as a whole."""
        plan = Path(self.session.plan.path)
        if folder is not None and Path(folder).resolve().is_relative_to(plan.resolve()):
            raise ValueError(f"{argument} {folder} is inside the plan {plan}; name a place outside of it")

    def _require_unused(self, folder, resume) -> None:
        """Raises ValueError if the folder has checkpoints of another run, or later ones than the one to resume."""
        if folder is None or resume is True:
            return
        mine = self._saved | _list_run(resume) if resume else self._saved
        others = {step for step, path in _list_checkpoints(Path(folder).resolve()).items() if path not in mine}
        if others:
            remedy = f", which is not of {resume} or comes after it; remove it" if resume else "; continue it with resume=True"
            raise ValueError(f"{folder} has a checkpoint of another run, of step {max(others)}{remedy}, or name a new folder")

    def _is_scale_too_large(self, results: dict) -> bool:
        """Whether a step was not taken because gradients times the loss scale overflowed, and the scale can still fall."""
        least = (self.session.plan.training or {}).get("least_loss_scale")
        return least is not None and results.get(_LOSS_SCALE, 0) > least and math.isfinite(results["loss"])

    def _require_labels(self, inputs: Mapping, entry: str, where: str, samples: Sequence[int] | None) -> None:
        """Raises ValueError for a label out of range, which would make the loss NaN. `samples` are those of the batch, if known."""
        for name, bindings in self._inputs[entry].items():
            for use in bindings[0].labels:
                array, ignored = inputs[name], use.get("ignored")
                wrong = (array < 0) | (array >= use["classes"])
                if ignored is not None:
                    wrong &= array != ignored
                if not wrong.any():
                    continue
                first = tuple(int(i) for i in np.argwhere(wrong)[0])
                row = first[0] if first else 0
                place = f"row {row} of the batch" if samples is None else f"sample {samples[row]}"
                raise ValueError(
                    f"{where}: input '{name}' holds label {array[first]} in {place}; loss '{use['loss']}' has the {use['classes']} classes "
                    f"0 to {use['classes'] - 1}" + ("" if ignored is None else f" and ignores {ignored}")
                )

    def _refuse(self, results: dict, before: int, skipped: int, attempt: Mapping) -> None:
        times = "" if skipped == 1 else f", nor were the {skipped - 1} before it"
        after, self.cursor = self.cursor, before  # samples of a step not taken are read again, with the same random numbers and scale
        for name, value in attempt.items():
            self.session.set_state(name, value)
        raise FloatingPointError(
            f"step {self.step_count + 1}, of samples {before} to {after - 1}, was not taken{times}: its loss is "
            f"{results['loss']:g}, the norm of its gradients {results.get('gradient_norm', math.nan):g}; on_nan='skip' goes on"
        )

    def _open_events(self, folder, is_resumed: bool) -> RunEvents:
        goes_on = is_resumed or Path(folder).resolve() in self._logged
        self._logged.add(Path(folder).resolve())
        return RunEvents(folder, self.step_count if goes_on else -1)

    def _evaluate_into(self, results: dict, eval_data) -> None:
        found = self.evaluate(eval_data)
        if self._events:
            self._events.add_evaluation(self.step_count, found)
        results |= {f"eval_{name}": value for name, value in found.items()}
        for callback in self.callbacks:
            if hasattr(callback, "on_evaluate"):
                callback.on_evaluate(self, self.step_count, found)

    def _save_in(self, folder) -> int:
        if self._events:
            self._events.sync()
        self.save(Path(folder) / f"step-{self.step_count:010d}")
        for path in Path(folder).glob("step-*.tmp-*"):  # left unfinished by runs that were killed
            shutil.rmtree(path, ignore_errors=True)
        return self.cursor

    def _arrange(self, batch, entry: str) -> dict[str, np.ndarray]:
        """The batch's arrays by the names of the entry's inputs, converted to their element types."""
        inputs = {name: bindings for name, bindings in self._inputs[entry].items() if name != _LEARNING_RATE}
        if not isinstance(batch, Mapping):
            arrays = list(batch) if isinstance(batch, (tuple, list)) else [batch]
            if len(arrays) != len(inputs):
                raise ValueError(f"a batch is {len(inputs)} arrays ({', '.join(inputs)}), this one has {len(arrays)}")
            batch = dict(zip(inputs, arrays, strict=True))
        if missing := inputs.keys() - batch.keys():
            raise ValueError(f"the batch lacks {_list_names(missing)}; entry '{entry}' takes {', '.join(inputs)}")
        if unknown := batch.keys() - inputs.keys():
            raise ValueError(f"entry '{entry}' has no input {_list_names(unknown)}; it takes {', '.join(inputs)}")
        return {name: _convert(name, batch[name], bindings[0].dtype) for name, bindings in inputs.items()}

    def _sizes(self, entry: str) -> tuple[str, list[int]]:
        """The first input with a batch dimension, and the plan's batch sizes."""
        for name, bindings in self._inputs[entry].items():
            if name != _LEARNING_RATE and bindings[0].shape:
                return name, sorted({binding.shape[0] for binding in bindings})
        raise ValueError(f"entry '{entry}' has no input with a dimension for samples")

    def _rows(self, inputs: Mapping, entry: str) -> int:
        name, _ = self._sizes(entry)
        shape = inputs[name].shape
        return int(shape[0]) if shape else 1

    def _count_steps(self, data, epochs: int, batch_size: int | None) -> int:
        """The number of steps of `epochs` epochs, for schedules; 0 if the data has no length."""
        if isinstance(data, Mapping):
            samples = self._table(data, "train_step")[1]
            return -(-epochs * samples // self._batch_size(batch_size, samples, "train_step"))
        if not hasattr(data, "__len__"):
            return 0
        return epochs * (len(data) - self._is_last_skipped(data))

    def _is_last_skipped(self, data) -> bool:
        """Whether a list's last batch, or a DataLoader's, is smaller than the plan's."""
        least = self._sizes("train_step")[1][0]
        if isinstance(data, (list, tuple)):
            return bool(data) and self._rows(self._arrange(data[-1], "train_step"), "train_step") < least
        rows, order = getattr(data, "batch_size", None), getattr(data, "sampler", None)
        if not isinstance(rows, int) or not hasattr(order, "__len__") or getattr(data, "drop_last", False):
            return False
        return 0 < len(order) % rows < least

    def _batches(self, data, epochs: int | None, batch_size: int | None, first: int) -> Iterator:
        """Batches from the cursor on; with `epochs`, the run began at cursor `first`."""
        if isinstance(data, Mapping):
            yield from self._ordered(data, epochs, batch_size, first)
            return
        done, position = 0, first
        while epochs is None or done < epochs:
            for batch in self._pass(data, "train_step", batch_size):
                if position >= self.cursor:
                    yield batch
                    position = self.cursor
                else:
                    position += self._rows(batch, "train_step")
            done += 1

    def _ordered(self, data: Mapping, epochs: int | None, batch_size: int | None, first: int) -> Iterator[dict]:
        """Batches of arrays in the seed's order. A batch at the end of an epoch continues with the next epoch's samples."""
        arrays, samples = self._table(data, "train_step")
        if self._samples not in (0, samples) and self.cursor:
            raise ValueError(f"the data has {samples} samples, the run so far read {self._samples}; its order is another one")
        self._samples = samples
        size = self._batch_size(batch_size, samples, "train_step")
        while epochs is None or self.cursor < first + epochs * samples:
            self._order = native().sample_order(samples, self.seed, self.cursor, size)
            yield {name: array[self._order] for name, array in arrays.items()}

    def _pass(self, data, entry: str, batch_size: int | None) -> Iterator:
        """The batches of one pass over data in its own order, without those that are smaller than the plan's."""
        if isinstance(data, Mapping):
            arrays, samples = self._table(data, entry)
            size = self._batch_size(batch_size, samples, entry)
            for begin in range(0, samples - size + 1, size):
                yield {name: array[begin : begin + size] for name, array in arrays.items()}
            return
        count, sizes = 0, self._sizes(entry)[1]
        for batch in data() if callable(data) else data:
            inputs = self._arrange(batch, entry)
            if self._rows(inputs, entry) >= sizes[0]:
                count += 1
                yield inputs
        if not count:
            sizes = " or ".join(map(str, sizes))
            raise ValueError(
                f"the data has no batch of the plan's {sizes} samples left; a generator ends once: give a list, a DataLoader, or a "
                "function that makes a generator"
            )

    def _table(self, data: Mapping, entry: str) -> tuple[dict[str, np.ndarray], int]:
        arrays = self._arrange(data, entry)
        counts = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
        if len(set(counts.values())) != 1:
            raise ValueError("the arrays have different numbers of samples: " + ", ".join(f"{k} {v}" for k, v in counts.items()))
        return arrays, next(iter(counts.values()))

    def _batch_size(self, given: int | None, samples: int, entry: str) -> int:
        sizes = self._sizes(entry)[1]
        size = sizes[-1] if given is None else given
        if size not in sizes:
            raise ValueError(f"batch_size is {size}; the plan has {', '.join(map(str, sizes))}")
        if samples < size:
            raise ValueError(f"the data has {samples} samples, fewer than the plan's batch of {size}")
        return size


def _list_inputs(plan: Plan, entry: str) -> dict[str, list[Binding]]:
    """The inputs of an entry by name, one binding per specialisation."""
    for candidate in plan.entries:
        if candidate.name == entry:
            inputs: dict[str, list[Binding]] = {}
            for specialisation in candidate.specialisations:
                for binding in specialisation.inputs:
                    inputs.setdefault(binding.name, []).append(binding)
            return inputs
    names = ", ".join(candidate.name for candidate in plan.entries)
    raise ValueError(f"{plan.path} has no entry '{entry}' (entries: {names}); compile the model with train=True")


def _list_checkpoints(folder: Path) -> dict[int, Path]:
    """The checkpoints in a run's folder by step. Folders left by a run that was killed while saving do not count."""
    if not folder.is_dir():
        return {}
    names = (re.fullmatch(r"step-([0-9]{10}|[1-9][0-9]{10,})", path.name) for path in folder.iterdir())
    return {int(name[1]): folder / name[0] for name in names if name}


@contextlib.contextmanager
def _locked(folder: str | os.PathLike | None) -> Iterator[None]:
    """Locks a folder of checkpoints for one run, with the lock of `gridloom train`; None needs no lock. Raises ValueError if another run
    holds the lock."""
    if folder is None:
        yield
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file, owner = os.open(Path(folder) / ".lock", flags, 0o666), os.getpid()
    try:
        end = time.monotonic() + _LOCK_PATIENCE
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise ValueError(
                        f"checkpoint_dir {folder} is another run's that has not ended; wait for it, or name a new folder"
                    ) from None
                time.sleep(0.02)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        # Closing it does not unlock it while a process forked meanwhile has it open, such as a DataLoader's worker that lives on.
        if os.getpid() == owner:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


def _list_run(path: str | os.PathLike) -> set[Path]:
    """The checkpoints in a run's folder, or those up to the checkpoint at `path`."""
    path = Path(path).resolve()
    if not (path / "manifest.json").exists():
        return set(_list_checkpoints(path).values())
    beside = _list_checkpoints(path.parent)
    last = max((step for step, other in beside.items() if other == path), default=-1)
    return {other for step, other in beside.items() if step <= last}


def _default_rate(plan: Plan) -> float:
    if plan.training is None:
        raise ValueError(f"{plan.path} names no learning rate; give lr")
    return float(plan.training["learning_rate"])


def _is_whole(number, least: int) -> bool:
    try:
        return operator.index(number) >= least
    except TypeError:
        return False


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))


def _call(callback, method: str, *arguments) -> None:
    if hasattr(callback, method):
        getattr(callback, method)(*arguments)
    elif callable(callback):
        callback(*arguments)


def _convert(name: str, value, dtype: np.dtype) -> np.ndarray:
    """The array in the input's element type, if both are floats or both integers; the session refuses other types."""
    array = to_numpy(value)
    if array.dtype == dtype:
        return array
    if array.dtype.kind == "f" and dtype.kind == "f":
        return array.astype(dtype)
    if array.dtype.kind in "iu" and dtype.kind in "iu":
        converted = array.astype(dtype)
        if not np.array_equal(converted, array):
            raise ValueError(f"input '{name}' has values that {dtype} lacks: {array.min()} to {array.max()}")
        return converted
    return array
