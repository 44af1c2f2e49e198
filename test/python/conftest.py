"""Shared by the Python tests: the built tools, the models, and ONNX Runtime as the reference."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test" / "fake")]

import fakes  # noqa: E402

from gridloom import zoo  # noqa: E402

TOLERANCE = 1e-5  # max abs error of normalised embeddings against ONNX Runtime


class OnlyDlpack:
    """An object that is no numpy array but supports DLPack, like torch's tensors."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Tools:
    """The command line as users have it. A command that fails fails the test with its output."""

    def __init__(self, folder: Path):
        self.folder = folder

    def path(self, name: str) -> Path:
        path = self.folder / name
        if not path.exists():
            pytest.fail(f"{path} is not built; run scripts/build")
        return path

    def call(self, *arguments, check: bool = True, timeout: float = 300, env=None) -> subprocess.CompletedProcess:
        command = [str(self.path("gridloom")), *map(str, arguments)]
        environment = {**os.environ, **(env or {})}
        result = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
        if check and result.returncode:
            pytest.fail(f"{' '.join(command)}\nexited with {result.returncode}\n{result.stdout}{result.stderr}")
        return result

    def compile(self, model: Path, plan: Path, *options) -> subprocess.CompletedProcess:
        return self.call("compile", model, "-o", plan, *options)

    def run(self, plan: Path, inputs: dict[str, np.ndarray], folder: Path, *options) -> "Run":
        """Runs a plan on arrays; inputs and outputs are .npy files in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        given = []
        for name, array in inputs.items():
            np.save(folder / f"{name}.npy", array)
            given += ["--input", f"{name}={folder / name}.npy"]
        result = self.call("run", plan, *given, "--output", folder / "out", *options)
        outputs = {p.stem: np.load(p) for p in sorted((folder / "out").glob("*.npy"))}
        return Run(outputs, result.stdout + result.stderr)


class Run:
    """Outputs by name, and the command's printed text."""

    def __init__(self, outputs: dict[str, np.ndarray], text: str):
        self.outputs = outputs
        self.text = text

    def measure(self, name: str) -> float:
        """A number of the summary line, e.g. `bubble 6%` or `compute 8.1 ms`."""
        match = re.search(rf"\b{name} ([0-9.]+)", self.text)
        assert match, f"no {name!r} in the summary:\n{self.text}"
        return float(match.group(1))


@pytest.fixture(scope="session")
def tools() -> Tools:
    return Tools(Path(os.environ.get("GRIDLOOM_BIN", ROOT / "build" / "dev" / "bin")))


@pytest.fixture
def fake_gpus(tools, monkeypatch):
    """Sets up this many fake GPUs, whose streams take turns by a seed."""

    def install(devices: int, seed: int) -> None:
        for variable, value in fakes.environment(devices, seed, tools.folder.parent / "lib").items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setenv("GRIDLOOM_IN_PROCESS_GRAPHS", "1")  # the fake NCCL does not deadlock in them

    return install


@pytest.fixture(scope="session")
def minilm_path() -> Path:
    """MiniLM with its trained weights, kept between runs because it is 90 MB."""
    return zoo.minilm_file(ROOT / "build" / "zoo" / "minilm.onnx")


def onnxruntime_session(path: Path, threads: int = 0, optimised: bool = True) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="session")
def minilm_reference(minilm_path):
    """A function from inputs to embeddings, by ONNX Runtime."""
    session = onnxruntime_session(minilm_path)
    return lambda inputs: session.run(["embedding"], inputs)[0]


def sentences(batch: int, length: int) -> dict[str, np.ndarray]:
    """Tokenised real sentences of different lengths, repeated to fill the batch."""
    return zoo.encode([zoo.SENTENCES[i % len(zoo.SENTENCES)] for i in range(batch)], length)
