"""The quality of GPU kernels, measured by the benchmark commands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(script: str, tools, *arguments: str) -> str:
    command = [sys.executable, str(ROOT / "bench" / script), "--bin", str(tools.folder), *arguments]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def toolkit() -> str:
    assembler = shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas"
    if not Path(assembler).exists():
        pytest.skip("no CUDA toolkit: ptxas is not on the path or in /usr/local/cuda")
    return str(Path(assembler).resolve().parents[1])


def test_kernels_of_small_models_are_assembled_without_spills(tools, toolkit):
    output = run("gpu_kernels.py", tools, "--small", "--chip", "sm_90", "--onnx-nodes", "--nodes", "40",
                 "--models", "gpt2,unet,lstm")  # fmt: skip
    assert "0 with spills" in output


@pytest.mark.full
@pytest.mark.parametrize("chip", ["sm_80", "sm_90", "sm_100"])
def test_all_kernels_are_assembled_without_spills(tools, toolkit, chip, tmp_path):
    run("gpu_kernels.py", tools, "--chip", chip, "--onnx-nodes")


def test_kernels_are_as_good_as_those_by_hand(tools, toolkit):
    if not (Path(toolkit) / "bin" / "nvcc").exists():
        pytest.skip(f"no nvcc in {toolkit}/bin")
    output = run("gpu_vs_nvcc.py", tools, "--toolkit", toolkit)
    assert len(output.splitlines()) == 8
