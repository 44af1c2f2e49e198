"""Errors if a GPU, its driver or its libraries do not meet a plan's needs: one line that says what is wrong and what to do, and exit
code 1. The tests run on the fake driver and NCCL of test/fake, configured by environment variables."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gridloom import zoo

ROWS = 4


@pytest.fixture(scope="module")
def plans(tools, tmp_path_factory):
    """Plans of one small model by mesh, compiled on first use."""
    folder = tmp_path_factory.mktemp("gpu-failures")
    model = zoo.save(zoo.mlp([16, 32, 8], zoo.Random(0, scale=0.2)), folder / "mlp.onnx")
    np.save(folder / "x.npy", np.random.default_rng(2).standard_normal((ROWS, 16)).astype(np.float32))
    np.save(folder / "many.npy", np.zeros((4 * ROWS, 16), np.float32))
    made = {}

    def get(mesh: str, target: str = "sm_90", rows: int = ROWS):
        key = (mesh, target, rows)
        if key not in made:
            made[key] = folder / f"{mesh.replace('=', '')}-{target}-{rows}.plan"
            tools.compile(model, made[key], "--dim", f"batch={rows}", "--mesh", mesh, "--target", f"cuda:{target}")
        return made[key]

    get.input, get.many = f"x={folder / 'x.npy'}", f"x={folder / 'many.npy'}"
    return get


@pytest.fixture
def refuse(tools, plans, fake_gpus, monkeypatch):
    """Runs a plan on a machine configured by environment variables; returns its one line of error."""

    def run(plan, *options, devices: int = 2, given: str = plans.input, **machine) -> str:
        fake_gpus(devices, 1)
        for name, value in machine.items():
            monkeypatch.setenv(name, str(value))
        result = tools.call("run", plan, "--input", given, "--in-process", *options, check=False)
        lines = result.stderr.splitlines()
        if "GRIDLOOM_FAKE_FAULT" in machine:  # memory that lost work may use is freed
            lines = [line for line in lines if not line.startswith("fake GPU: ") or "leaked" in line]
        assert result.returncode == 1, result.stderr
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("error: ")
        return lines[0]

    return run


def test_driver_too_old_for_the_kernels(plans, refuse):
    plan = plans("data=2")
    needed = json.loads((plan / "manifest.json").read_text())["target"]["cuda"]
    assert needed >= 11000
    line = refuse(plan, GRIDLOOM_FAKE_DRIVER_VERSION=needed - (10 if needed % 1000 else 200))
    assert f"need a driver for CUDA {needed // 1000}.{needed % 1000 // 10}" in line
    assert "install a newer NVIDIA driver" in line


def test_driver_too_old_for_the_runtime(plans, refuse):
    assert "supports CUDA 10.2, 11.2 is needed" in refuse(plans("data=2"), GRIDLOOM_FAKE_DRIVER_VERSION=10020)


def test_plan_for_a_newer_gpu(plans, refuse):
    line = refuse(plans("data=2"), GRIDLOOM_FAKE_ARCHITECTURE=80)
    assert "the plan is for sm_90 GPUs" in line and "(sm_80) is not one" in line
    assert line.endswith("compile the model with --target cuda:sm_80")


def test_plan_for_an_older_gpu_is_compiled_anew_by_the_driver(tools, plans, fake_gpus, monkeypatch):
    fake_gpus(2, 1)
    monkeypatch.setenv("GRIDLOOM_FAKE_ARCHITECTURE", "100")
    result = tools.call("run", plans("data=2"), "--input", plans.input, "--in-process", "--verbose")
    assert "note: kernels for sm_90 are compiled anew for sm_100 by the driver" in result.stderr


def test_too_little_memory_names_what_is_needed_and_what_would_fit(plans, refuse):
    # The ranks' communication takes 1 MiB before the plan is loaded; NCCL is estimated at 128 MiB.
    line = refuse(plans("data=2"), GRIDLOOM_FAKE_MEMORY=(129 << 20) + 2000)
    assert "128.0 MiB of 129.0 MiB free, rank " in line and " needs 128.0 MiB" in line
    assert "weights" in line and "activations" in line and "NCCL about 128.0 MiB" in line
    assert "the smallest change that fits is to compile with --mesh data=2,model=" in line


def test_fewer_gpus_than_ranks(plans, refuse):
    line = refuse(plans("data=2"), devices=1)
    assert "ranks 0 and 1 have the same GPU, cuda:0 of 1 and cuda:0 of 1 that they see on " in line
    assert "--transport loopback" in line


def test_two_ranks_with_one_gpu(plans, refuse):
    line = refuse(plans("data=2"), GRIDLOOM_FAKE_ONE_GPU=1)
    assert "ranks 0 and 1 have the same GPU, cuda:0 of 2 and cuda:1 of 2 that they see on " in line
    assert "CUDA_VISIBLE_DEVICES" in line and "--transport loopback" in line


def test_without_nccl(plans, refuse):
    line = refuse(plans("data=2"), GRIDLOOM_NCCL="libnccl_missing.so.2")
    assert "libnccl_missing.so.2 not found: NCCL, which connects GPUs, is not installed" in line


def test_ranks_with_different_libraries(plans, refuse):
    versions = {"GRIDLOOM_FAKE_CUBLASLT_VERSIONS": "130100,120800"}
    line = refuse(plans("data=2", rows=4 * ROWS), given=plans.many, **versions)
    assert "rank 1 has cuBLASLt 120800, rank 0 has cuBLASLt 130100; install the same version everywhere" in line


def test_nccl_too_old(plans, refuse):
    line = refuse(plans("data=2"), GRIDLOOM_FAKE_NCCL_VERSION=21705)
    assert "is NCCL 2.17.5, 2.18.0 or newer is needed; install a newer libnccl2" in line


def test_without_cublaslt(plans, refuse):
    # Products of few rows are kernels and need no library.
    line = refuse(plans("data=2", rows=4 * ROWS), given=plans.many, GRIDLOOM_CUBLASLT="libcublasLt_missing.so.13")
    assert "libcublasLt_missing.so.13 not found" in line


@pytest.mark.parametrize("error,name", [(46, "DEVICE_UNAVAILABLE"), (214, "ECC_UNCORRECTABLE"), (700, "ILLEGAL_ADDRESS")])
@pytest.mark.parametrize("repeat,graphs", [(1, False), (4, True)], ids=["steps", "graphs"])
def test_a_gpu_lost_in_a_run(plans, refuse, error, name, repeat, graphs):
    kernels = 3 if graphs else 0
    options = ["--repeat", repeat, "--timeout", 20]
    line = refuse(plans("model=2"), *options, GRIDLOOM_FAKE_FAULT=f"1:{kernels}:{error}")
    assert f"CUDA_ERROR_{name}" in line and "rank 1" in line


def test_refused_graphs_are_said_when_asked(tools, plans, fake_gpus, monkeypatch):
    fake_gpus(2, 1)
    monkeypatch.setenv("GRIDLOOM_FAKE_FAIL", "cuGraphInstantiateWithFlags:900:0")
    run = ["run", plans("model=2"), "--input", plans.input, "--in-process", "--repeat", 3]
    result = tools.call(*run, "--verbose")
    notes = [line for line in result.stderr.splitlines() if line.startswith("note: ")]
    assert len(notes) == 1 and notes[0].startswith("note: no graphs for entry main: rank ")
    assert "fake GPU" not in result.stderr
    monkeypatch.delenv("GRIDLOOM_FAKE_FAIL")
    assert "note: no graphs: they are turned off" in tools.call(*run, "--verbose", "--no-graphs").stderr
    assert tools.call(*run).stderr == ""


def test_devices_shows_gpus_and_libraries(tools, fake_gpus, monkeypatch):
    fake_gpus(2, 1)
    found = json.loads(tools.call("devices", "--format", "json").stdout)
    gpus = [row for row in found["devices"] if row["device"].startswith("cuda:")]
    assert [row["device"] for row in gpus] == ["cuda:0", "cuda:1"]
    assert all(row["level"] == "sm_90" and row["memory"] == row["free"] == 64 << 30 for row in gpus)
    assert found["driver"] == "CUDA 13.0" and found["nccl"] == "2.28.9"
    monkeypatch.setenv("GRIDLOOM_NCCL", "libnccl_missing.so.2")
    assert json.loads(tools.call("devices", "--format", "json").stdout)["nccl"] == "missing"


def test_bench_tells_what_a_launch_costs(tools, plans, fake_gpus):
    fake_gpus(2, 1)
    printed = json.loads(
        tools.call("bench", plans("model=2"), "--in-process", "--iters", 3, "--warmup", 2, "--format", "json").stdout
    )
    assert printed["graph_launches"] == 1
    assert printed["device_ms"] > 0 and printed["stepped_device_ms"] >= printed["stepped_busy_ms"] > 0
    assert printed["kernels_ms"] > 0 and printed["stepped_gap_percent"] >= 0
