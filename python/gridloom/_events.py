"""Event files of a training run for TensorBoard, as `gridloom train --log-dir` writes them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ._tools import native
from .session import Session, describe_tensor

# Results of a step that are not drawn, or are drawn under another name.
_LEFT_OUT = ("committed", "count", "lr", "samples", "step")


class RunEvents:
    """A file of events in `folder`. `step` is -1 if the folder must have no events yet, else the number of steps taken before: events of
    later steps are removed, since those steps are run again. At step 0 all of them move into a folder inside `folder`."""

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
        """Waits until everything is on the disk."""
        self._file.sync()

    def _add(self, step: int, results: Mapping, prefix: str, **more: float) -> None:
        self._file.scalars(step, {prefix + name: float(value) for name, value in results.items() if name not in _LEFT_OUT} | more)
