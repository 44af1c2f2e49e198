"""Runs models through the importer and the reference interpreter."""

from __future__ import annotations

import os
import resource
import subprocess
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
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "bool": np.bool_,
}


# Types of fewer than 8 bits, and the types that hold them in programs.
CARRIERS = {
    "int2": np.int8,
    "int4": np.int8,
    "uint2": np.uint8,
    "uint4": np.uint8,
    "float4_e2m1fn": ml_dtypes.float8_e4m3fn,
}


def carry(value: np.ndarray) -> np.ndarray:
    return value.astype(CARRIERS.get(value.dtype.name, value.dtype))


def tool() -> str:
    return os.environ.get("GRIDLOOM_EVALUATE_ONNX", str(ROOT / "build/dev/bin/evaluate-onnx"))


def operators() -> set[str]:
    """Operators of the standard domain that can be imported."""
    return set(subprocess.run([tool(), "--operators"], check=True, capture_output=True, text=True).stdout.split())


class Case:
    """A model with inputs, written into a folder; after `run` it has its outputs or its error. `gradients_of` names an output: then the
    simplified outputs include its gradients, and there are no imported ones."""

    def __init__(
        self,
        folder: Path,
        model: onnx.ModelProto | bytes,
        inputs: list[np.ndarray],
        dims: str = "",
        unroll: int | None = None,
        gradients_of: str = "",
    ):
        self.folder = folder
        self.gradients_of = gradients_of
        self.error: str | None = None
        self.imported: list[np.ndarray] = []
        self.simplified: list[np.ndarray] = []
        self.names: list[str] = []  # of the outputs
        folder.mkdir(parents=True, exist_ok=True)
        data = model if isinstance(model, bytes) else model.SerializeToString()
        (folder / "model.onnx").write_bytes(data)
        (folder / "dims").write_text(dims)
        if unroll is not None:
            (folder / "unroll").write_text(str(unroll))
        if gradients_of:
            (folder / "gradients_of").write_text(gradients_of)
        for i, value in enumerate(inputs):
            (folder / f"input_{i}.bin").write_bytes(np.ascontiguousarray(carry(value)).tobytes())

    def read(self, prefix: str, types: list[str]) -> list[np.ndarray]:
        arrays = []
        for i, text in enumerate(types):
            *shape, dtype = text.split("x")
            data = (self.folder / f"{prefix}_{i}.bin").read_bytes()
            arrays.append(np.frombuffer(data, DTYPES[dtype]).reshape([int(size) for size in shape]))
        return arrays


def run(cases: list[Case], memory: int | None = None) -> None:
    """Evaluates all cases in one process with at most `memory` bytes of data. If the process crashes, the case that it was at gets the
    error, and a new process continues."""
    waiting = {str(case.folder): case for case in cases}
    while waiting:
        limit = None if memory is None else lambda: resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        done = subprocess.run([tool(), *waiting], capture_output=True, text=True, errors="replace", preexec_fn=limit)
        for line in done.stdout.splitlines():
            verdict, rest = line.split(" ", 1)
            if verdict == "ok":
                folder, *types = rest.split()
                case = waiting.pop(folder)
                case.imported = [] if case.gradients_of else case.read("imported", types)
                case.simplified = case.read("simplified", types)
                case.names = (case.folder / "outputs").read_text().splitlines()
            else:
                folder, error = rest.split(": ", 1)
                waiting.pop(folder).error = error
        if waiting and done.returncode != 0:
            folder = next(iter(waiting))
            waiting.pop(folder).error = f"exit {done.returncode}: {done.stderr[-2000:]}"
        elif waiting:
            raise AssertionError(f"no verdict on {sorted(waiting)}")


def evaluate(folder: Path, model: onnx.ModelProto | bytes, inputs: list[np.ndarray] = (), dims: str = "") -> Case:
    case = Case(folder, model, list(inputs), dims)
    run([case])
    return case
