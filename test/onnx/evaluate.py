"""Runs models through the importer and the reference interpreter."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx

ROOT = Path(__file__).resolve().parents[2]
DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "bool": np.bool_,
}


def tool() -> str:
    return os.environ.get("GRIDLOOM_EVALUATE_ONNX", str(ROOT / "build/dev/bin/evaluate-onnx"))


def operators() -> set[str]:
    """Operators of the standard domain that can be imported."""
    return set(subprocess.run([tool(), "--operators"], check=True, capture_output=True, text=True).stdout.split())


class Case:
    """A model with inputs, written into a folder; after `run`, its outputs or its error."""

    def __init__(self, folder: Path, model: onnx.ModelProto | bytes, inputs: list[np.ndarray], dims: str = ""):
        self.folder = folder
        self.error: str | None = None
        self.peak_bytes = 0  # of the process that evaluated it, which may have evaluated others too
        self.imported: list[np.ndarray] = []
        self.simplified: list[np.ndarray] = []
        folder.mkdir(parents=True, exist_ok=True)
        data = model if isinstance(model, bytes) else model.SerializeToString()
        (folder / "model.onnx").write_bytes(data)
        (folder / "dims").write_text(dims)
        for i, value in enumerate(inputs):
            (folder / f"input_{i}.bin").write_bytes(np.ascontiguousarray(value).tobytes())

    def read(self, prefix: str, types: list[str]) -> list[np.ndarray]:
        arrays = []
        for i, text in enumerate(types):
            *shape, dtype = text.split("x")
            data = (self.folder / f"{prefix}_{i}.bin").read_bytes()
            arrays.append(np.frombuffer(data, DTYPES[dtype]).reshape([int(size) for size in shape]))
        return arrays


def spawn(command: list[str]) -> tuple[int, int, str, str]:
    """Runs a command: its exit code (negative: a signal), most resident bytes, stdout and stderr."""
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        stdout.seek(0)
        stderr.seek(0)
        return process.returncode, usage.ru_maxrss * 1024, stdout.read(), stderr.read()


def run(cases: list[Case]) -> None:
    """Evaluates all cases in one process; one that crashes is an error of the case it stopped at."""
    waiting = {str(case.folder): case for case in cases}
    while waiting:
        code, peak, stdout, stderr = spawn([tool(), *waiting])
        for line in stdout.splitlines():
            verdict, rest = line.split(" ", 1)
            if verdict == "ok":
                folder, *types = rest.split()
                case = waiting.pop(folder)
                case.imported = case.read("imported", types)
                case.simplified = case.read("simplified", types)
            else:
                folder, error = rest.split(": ", 1)
                waiting.pop(folder).error = error
        for case in cases:
            case.peak_bytes = peak
        if waiting and code != 0:
            folder = next(iter(waiting))
            waiting.pop(folder).error = f"exit {code}: {stderr[-2000:]}"
        elif waiting:
            raise AssertionError(f"no verdict on {sorted(waiting)}")


def evaluate(folder: Path, model: onnx.ModelProto | bytes, inputs: list[np.ndarray] = (), dims: str = "") -> Case:
    case = Case(folder, model, list(inputs), dims)
    run([case])
    return case
