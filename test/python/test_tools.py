"""Promises of the command line: the runtime needs no compiler, and errors say what to do."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from gridloom import zoo


@pytest.fixture
def mlp(tmp_path):
    return zoo.save(zoo.mlp([16, 32, 8], zoo.Random(0, scale=0.2)), tmp_path / "mlp.onnx")


def test_the_runtime_links_no_compiler(tools):
    path = tools.path("gridloom")
    libraries = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    assert "libc.so" in libraries
    for name in ("LLVM", "MLIR", "clang"):
        assert name.lower() not in libraries.lower()


@pytest.mark.parametrize(
    "folders,others",
    [
        (["support"], ["runtime/", "compiler/", "dialects/", "passes/", "mlir/", "llvm/"]),
        (["runtime"], ["compiler/", "dialects/", "passes/", "mlir/", "llvm/"]),
        (["compiler", "dialects", "passes"], ["runtime/cli/"]),
    ],
)
def test_programs_include_what_they_may(folders, others):
    root = Path(__file__).resolve().parents[2]
    sources = [path for folder in folders for path in (root / folder).rglob("*") if path.suffix in (".h", ".cpp")]
    includes = {(path, name) for path in sources for name in re.findall(r'#include ["<]([^">]+)', path.read_text())}
    assert includes
    assert not [(str(path), name) for path, name in includes if name.startswith(tuple(others))]


def test_the_runtime_is_small(tools, tmp_path):
    stripped = tmp_path / "gridloom"
    subprocess.run(["strip", "-o", stripped, tools.path("gridloom")], check=True)
    assert stripped.stat().st_size <= 20 << 20


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["--mesh", "data=0", "--dim", "batch=4"], ["data", "0"]),
        (["--mesh", "data=2", "--no-such-flag"], ["no-such-flag"]),
        (["--mesh", "data=2"], ["batch", "--dim"]),
        (["--mesh", "data=2", "--dim", "batch=4", "--strategy", "zigzag"], ["zigzag"]),
        (["--mesh", "data=2", "--dim", "batch=4", "--dim", "width=4"], ["width"]),
        (["--mesh", "data=2", "--dim", "batch=4", "--shard", "nosuch=[{data}]"], ["nosuch"]),
        (["--mesh", "data=2", "--dim", "batch=4", "--shard", "x=[{rows},{}]"], ["rows"]),
        (["--mesh", "data=2", "--dim", "batch=4", "--stop-after", "lunch"], ["lunch"]),
        (["--dim", "batch=4", "--target", "cuda:sm_70"], ["cuda:sm_70", "cuda:sm_80"]),
        (["--dim", "batch=4", "--target", "cuda:sm_9000"], ["cuda:sm_9000", "cuda:sm_100"]),
        (["--dim", "batch=4", "--target", "cuda"], ["'cuda'", "cuda:sm_90"]),
        (["--dim", "batch=4", "--target", "cuda:sm_90", "--cpu-arch", "x86-64-v4"], ["--cpu-arch", "cuda:sm_90"]),
        (["--dim", "batch=4", "--no-cudnn"], ["--no-cudnn", "--target cpu"]),
        (["--dim", "batch=4", "--cuda-toolkit", "/"], ["--cuda-toolkit", "--target cpu"]),
        (["--dim", "batch=4", "--target", "cuda:sm_90", "--cuda-toolkit", "/nowhere"], ["/nowhere", "ptxas"]),
    ],
    ids=["zero axis", "unknown flag", "unbound dim", "strategy", "unknown dim", "unknown value", "axis", "phase", "old GPU",
         "no GPU", "no GPU's name", "CPU of a GPU", "cuDNN of a CPU", "toolkit of a CPU", "no toolkit"],
)  # fmt: skip
def test_wrong_options_are_refused_with_their_name(tools, mlp, tmp_path, arguments, words):
    result = tools.call("compile", mlp, "-o", tmp_path / "m.plan", *arguments, check=False)
    assert result.returncode != 0
    assert not (tmp_path / "m.plan" / "manifest.json").exists()
    for word in words:
        assert word in result.stderr, result.stderr


def test_a_file_that_is_no_model_is_refused(tools, tmp_path):
    path = tmp_path / "not.onnx"
    path.write_bytes(b"\x7fELF" + bytes(100))
    result = tools.call("compile", path, "-o", tmp_path / "m.plan", "--mesh", "data=2", check=False)
    assert result.returncode == 1
    assert "not.onnx" in result.stderr


def test_mlp_on_every_strategy(tools, mlp, tmp_path):
    import numpy as np
    from conftest import onnxruntime_session

    x = np.random.default_rng(0).standard_normal((8, 16), dtype=np.float32)
    (expected,) = onnxruntime_session(mlp).run(None, {"x": x})
    for strategy, mesh in [("auto", "data=2,model=2"), ("dp", "data=4"), ("tp", "model=4"), ("pp", "pipe=2"),
                           ("dp+tp", "data=2,model=2")]:  # fmt: skip
        plan = tmp_path / f"{strategy}.plan"
        tools.compile(mlp, plan, "--mesh", mesh, "--strategy", strategy, "--dim", "batch=8")
        run = tools.run(plan, {"x": x}, tmp_path / strategy)
        np.testing.assert_allclose(run.outputs["y"], expected, atol=1e-5, err_msg=strategy)


def test_estimates_are_for_the_target_and_the_precision(tools, tmp_path):
    path = zoo.save(zoo.mlp([2048, 2048], zoo.Random(0)), tmp_path / "wide.onnx")
    steps = {}
    for target, precision, machine in [
        ("cpu", "f32", "cpu"),
        ("cuda:sm_80", "f32", "A100-80GB"),
        ("cuda:sm_90", "f32", "H100-80GB"),
        ("cuda:sm_90", "tf32", "H100-80GB"),
        ("cuda:sm_90", "bf16", "H100-80GB"),
    ]:
        plan = tmp_path / f"{target[-5:]}-{precision}.plan"
        options = ["--target", target, "--precision", precision]
        compiled = tools.compile(path, plan, "--dim", "batch=2048", *options)
        report = json.loads((plan / "report.json").read_text())
        assert report["machine"] == machine
        assert (f"main on {machine}: " in compiled.stdout) == (target != "cpu")
        steps[target, precision] = report["estimates"][0]["step_ms"]
    assert list(steps.values()) == sorted(steps.values(), reverse=True), steps


def test_names_do_not_control_the_terminal(tools, mlp, tmp_path):
    model = zoo.mlp([16, 8], zoo.Random(0))
    model.graph.node[0].name = "clear\x1b[2J\nline"
    model.graph.node[-1].output[0] = model.graph.output[0].name = "green\x1b[32m"
    printed = tools.compile(zoo.save(model, tmp_path / "m.onnx"), tmp_path / "m.plan", "--dim", "batch=8").stdout
    assert "\x1b" not in printed and "clear\\x1b[2J\\x0aline" in printed
    tools.compile(mlp, tmp_path / "other.plan", "--dim", "batch=8")
    for arguments in (["diff", tmp_path / "m.plan", tmp_path / "other.plan"], ["run", tmp_path / "m.plan", "--input", "x=ones"]):
        printed = tools.call(*arguments).stdout
        assert "\x1b" not in printed and "green\\x1b[32m" in printed
