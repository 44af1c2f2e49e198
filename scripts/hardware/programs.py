"""Runs the gridloom program on arrays."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from .folding import unfold
from .report import Missing, Problem, call, one_line


class Gridloom:
    """The gridloom program in a folder `bin`, with its libraries in `lib` next to it if a pack brought them."""

    def __init__(self, program: Path, work: Path, library_path: list[str] | None = None):
        self.program, self.work = program, work
        folders = list(library_path or [])
        pack = program.parent.parent
        if (pack / "pack.json").exists():
            for folder in ("bin", "lib"):
                unfold(pack / folder)
            folders.insert(0, str(pack / "lib"))
        old = os.environ.get("LD_LIBRARY_PATH")
        self.env = {"LD_LIBRARY_PATH": ":".join([*folders, *([old] if old else [])])} if folders else {}

    def call(self, *arguments, env: Mapping[str, str] | None = None) -> str:
        """The output of a command. A failed command raises Problem with its last line; so does a finding of a fake GPU."""
        result = call([self.program, *arguments], {**self.env, **(env or {})}, timeout=120)
        lines = result.stderr.strip().splitlines()
        if result.returncode:
            raise Problem(one_line(lines[-1] if lines else f"exited with {result.returncode}"))
        findings = [line for line in lines if line.startswith("fake GPU")]
        if findings:
            raise Problem(one_line(findings[0]))
        return result.stdout

    def json(self, *arguments, env: Mapping[str, str] | None = None) -> dict:
        return json.loads(self.call(*arguments, "--format", "json", env=env))

    def run(self, plan: Path, inputs: Mapping[str, np.ndarray], *options, env=None) -> dict[str, np.ndarray]:
        """Runs a plan and returns its outputs, named like the files: with '_' for '/'."""
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            given = []
            for number, (name, array) in enumerate(inputs.items()):
                np.save(f"{folder}/{number}.npy", array)
                given += ["--input", f"{name}={folder}/{number}.npy"]
            self.call("run", plan, *given, "--output", f"{folder}/out", *options, env=env)
            return {path.stem: np.load(path) for path in Path(folder, "out").iterdir()}


def compare(name: str, got: np.ndarray, want: np.ndarray, tolerance: float, largest: float) -> float:
    """The largest difference relative to `largest`. Raises Problem if it exceeds `tolerance` or shapes differ."""
    if got.shape != want.shape:
        raise Problem(f"output {name} has shape {list(got.shape)}, expected {list(want.shape)}")
    a, b = got.astype(np.float64), want.astype(np.float64)
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        raise Problem(f"output {name} is NaN in {int(np.isnan(a).sum())} places, expected {int(np.isnan(b).sum())}")
    with np.errstate(invalid="ignore"):  # equal infinities
        difference = np.where(a == b, 0, np.abs(a - b))
    worst = float(np.nanmax(difference, initial=0)) / (largest or 1.0)
    if not worst <= tolerance:
        raise Problem(f"output {name} differs by {worst:.1e} of its largest value; allowed {tolerance:.0e}")
    return worst


class Reference:
    """The expected outputs of a model: an .npz with the inputs, and each output or a sample of it with its largest value."""

    SAMPLE = 4096

    def __init__(self, path: Path):
        with np.load(path) as arrays:
            self.arrays = {key: arrays[key] for key in arrays}
        self.inputs = {key[6:]: value for key, value in self.arrays.items() if key.startswith("input:")}

    @staticmethod
    def write(path: Path, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> None:
        arrays = {f"input:{name}": value for name, value in inputs.items()}
        for name, value in outputs.items():
            flat = value.reshape(-1)
            if flat.size > 4 * Reference.SAMPLE:
                at = np.linspace(0, flat.size - 1, Reference.SAMPLE).astype(np.int64)
                arrays[f"at:{name}"], flat = at, flat[at]
            arrays[f"shape:{name}"] = np.array(value.shape, np.int64)
            arrays[f"output:{name}"] = flat
            finite = np.abs(value[np.isfinite(value)].astype(np.float64)) if value.dtype.kind == "f" else np.abs(value)
            arrays[f"largest:{name}"] = np.array(float(finite.max(initial=0)))
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, **arrays)

    @property
    def outputs(self) -> list[str]:
        return [key[7:] for key in self.arrays if key.startswith("output:")]

    def compare(self, outputs: Mapping[str, np.ndarray], tolerance: float) -> float:
        """The largest relative difference over all outputs; see `compare`."""
        worst = 0.0
        for name in self.outputs:
            got = outputs.get(name.replace("/", "_").lstrip("."))
            if got is None:
                raise Problem(f"output {name} is missing")
            if got.shape != tuple(self.arrays[f"shape:{name}"]):
                raise Problem(f"output {name} has shape {list(got.shape)}")
            flat = got.reshape(-1)
            if f"at:{name}" in self.arrays:
                flat = flat[self.arrays[f"at:{name}"]]
            worst = max(
                worst,
                compare(name, flat, self.arrays[f"output:{name}"], tolerance, float(self.arrays[f"largest:{name}"])),
            )
        return worst


def need(condition, text: str) -> None:
    if not condition:
        raise Missing(text)
