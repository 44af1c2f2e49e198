"""What a training run measures, for TensorBoard; `gridloom train --log-dir` writes the same."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ._tools import native
from .session import Session, describe_tensor

# Of a step's results, what is not drawn, or under another name.
_LEFT_OUT = ("committed", "count", "lr", "samples", "step")


class RunEvents:
    """A file of events in `folder`. `step` is -1 where the folder must have none, else the steps taken before: what the folder has of later
    ones is made again, and goes; before the first step all of it moves into a folder in it."""

    def __init__(self, folder: str | os.PathLike, step: int):
        self._file = native().Events(os.fspath(folder), step)

    def add_step(self, results: Mapping, samples_per_second: float) -> None:
        self._add(results["step"], results, "", learning_rate=results["lr"], samples_per_second=samples_per_second)

    def add_evaluation(self, step: int, results: Mapping) -> None:
        self._add(step, results, "eval_")

    def add_parameters(self, step: int, session: Session) -> None:
        for name, state in session.states.items():
            if state.role == "parameter":
                self._file.histogram(step, f"parameters/{name}", *describe_tensor(f"state '{name}'", session.get_state(name)))

    def sync(self) -> None:
        """Waits until the disk has all of it."""
        self._file.sync()

    def _add(self, step: int, results: Mapping, prefix: str, **more: float) -> None:
        self._file.scalars(step, {prefix + name: float(value) for name, value in results.items() if name not in _LEFT_OUT} | more)
