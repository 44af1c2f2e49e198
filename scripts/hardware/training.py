"""Training steps of a plan, by `gridloom train`."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import numpy as np

from .programs import Gridloom
from .report import Problem


def train(gridloom: Gridloom, plan: Path, data: Path, steps: int, *options) -> np.ndarray:
    """The losses of the steps of a run on the samples in `data`, an .npz file. Raises Problem if a step was not taken or no checkpoint
    was written."""
    with tempfile.TemporaryDirectory(dir=gridloom.work) as folder:
        log, run = Path(folder, "log.csv"), Path(folder, "run")
        gridloom.call("train", plan, "--data", data, "--steps", steps, "--log", log, "--checkpoint-dir", run, *options)
        with open(log, newline="") as file:
            rows = list(csv.DictReader(file))
        if len(rows) != steps or any(row["committed"] != "1" for row in rows):
            raise Problem(f"{len(rows)} steps, of which some changed nothing; expected {steps}")
        if not list(run.glob("step-*/states.safetensors")):
            raise Problem("there is no checkpoint after the last step")
        return np.array([float(row["loss"]) for row in rows])
