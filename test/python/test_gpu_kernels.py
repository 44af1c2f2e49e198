"""The quality of GPU kernels, measured by the benchmark commands."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

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


def test_kernels_have_no_more_parameters_than_gpus_take(tools, toolkit, tmp_path):
    values = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [64]) for i in range(701)]
    names = [value.name for value in values]
    graph = helper.make_graph([helper.make_node("Sum", names[:-1], names[-1:])], "g", values[:-1], values[-1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    tools.call("compile", tmp_path / "m.onnx", "-o", tmp_path / "m.plan", "--target", "cuda:sm_90")
    kernels = json.loads((tmp_path / "m.plan" / "report.json").read_text())["kernels"]
    assert len(kernels) == 2 and all(kernel["registers"] > 0 for kernel in kernels)


def test_concatenations_of_many_are_cut(tools, toolkit, tmp_path):
    values = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [3]) for i in range(700)]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2100])
    graph = helper.make_graph([helper.make_node("Concat", [x.name for x in values], ["y"], axis=0)], "g", values, [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    tools.call("compile", tmp_path / "m.onnx", "-o", tmp_path / "m.plan", "--target", "cuda:sm_90")
    kernels = json.loads((tmp_path / "m.plan" / "report.json").read_text())["kernels"]
    assert len(kernels) > 1 and all(kernel["registers"] > 0 for kernel in kernels)


def test_kernels_are_as_good_as_those_by_hand(tools, toolkit):
    if not (Path(toolkit) / "bin" / "nvcc").exists():
        pytest.skip(f"no nvcc in {toolkit}/bin")
    output = run("gpu_vs_nvcc.py", tools, "--toolkit", toolkit)
    assert len(output.splitlines()) == 8


def test_updates_of_many_states_are_several_kernels(tools, toolkit, tmp_path):
    x, *states = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [64]) for name in ["x", *(f"s{i}" for i in range(300))])
    nexts = [helper.make_tensor_value_info(f"t{i}", TensorProto.FLOAT, [64]) for i in range(300)]
    nodes = [helper.make_node("Add", [before.name, "x"], [after.name]) for before, after in zip(states, nexts)]
    graph = helper.make_graph(nodes, "g", [x, *states], nexts)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    tools.call("compile", tmp_path / "m.onnx", "-o", tmp_path / "m.plan", "--target", "cuda:sm_90", "--state", "s*=t*")
    kernels = json.loads((tmp_path / "m.plan" / "report.json").read_text())["kernels"]
    assert len(kernels) == 1 and 0 < kernels[0]["registers"] < 128


def test_long_chains_are_several_kernels(tools, tmp_path):
    names = ["x", *(f"v{i}" for i in range(2499)), "y"]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y"))
    nodes = [helper.make_node(["Mul", "Add"][i % 2], [names[i], "x"], [names[i + 1]]) for i in range(2500)]
    onnx.save(
        helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    program = tools.call("compile", tmp_path / "m.onnx", "--stop-after", "fuse").stdout
    assert program.count("plan.call @") == 3
