"""Ranks started as by a launcher, on fake GPUs whose NCCL works between processes: on one machine, on simulated machines, and between
network namespaces. Also how the others react when one is killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import onnxruntime_session

from gridloom import zoo

MESH = "data=2,model=2"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return zoo.save(zoo.mlp([16, 32, 8], zoo.Random(0, scale=0.2)), tmp_path_factory.mktemp("machines") / "mlp.onnx")


@pytest.fixture
def job(tools, fake_gpus, model, tmp_path, monkeypatch):
    """A plan for four GPUs, its input, and ONNX Runtime's output."""
    plan = tmp_path / "mlp.plan"
    tools.compile(model, plan, "--dim", "batch=4", "--mesh", MESH, "--target", "cuda:sm_90")
    x = np.random.default_rng(2).standard_normal((4, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    fake_gpus(4, 1)
    (tmp_path / "nccl").mkdir()
    monkeypatch.setenv("GRIDLOOM_FAKE_NCCL_FOLDER", str(tmp_path / "nccl"))
    return plan, tmp_path / "x.npy", onnxruntime_session(model).run(["y"], {"x": x})[0]


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_ranks(command, address, port, machines=2, size=4, prefix=lambda machine: [], own=False):
    """Starts each rank as torchrun would, with `size / machines` ranks per machine. With `own`, each process sees only its own GPU, as
    under srun --gpus-per-task 1."""
    local = size // machines
    processes = []
    for rank in range(size):
        variables = {
            "RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank % local, "LOCAL_WORLD_SIZE": local,
            "MASTER_ADDR": address, "MASTER_PORT": port, "NCCL_HOSTID": f"machine{rank // local}",
            "GRIDLOOM_FAKE_MACHINE": f"machine{rank // local}",
        }  # fmt: skip
        if own:
            gpu = f"gpu{rank}"
            variables.update(GRIDLOOM_FAKE_DEVICES=1, GRIDLOOM_FAKE_MACHINE=gpu, NCCL_HOSTID=gpu)
        environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
        arguments = [*prefix(rank // local), *map(str, command)]
        processes.append(
            subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    return processes


def finish(processes, timeout=120):
    return [(process.communicate(timeout=timeout), process.returncode) for process in processes]


def check_outputs(results, folder, expected):
    for (out, err), code in results:
        assert code == 0, out + err
        assert "fake GPU" not in err, err
    np.testing.assert_allclose(np.load(folder / "y.npy"), expected, atol=1e-5, rtol=0)


def test_processes_of_one_machine(tools, job, tmp_path):
    plan, x, expected = job
    result = tools.call("run", plan, "--input", f"x={x}", "--output", tmp_path / "out", "--timeout", 60)
    assert "fake GPU" not in result.stderr, result.stderr
    np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), expected, atol=1e-5, rtol=0)


def test_two_machines_meet_through_tcp(tools, job, tmp_path):
    plan, x, expected = job
    command = [tools.path("gridloom"), "run", plan, "--input", f"x={x}", "--output", tmp_path / "out", "--timeout", 60]
    results = finish(start_ranks(command, "127.0.0.1", find_port()))
    check_outputs(results, tmp_path / "out", expected)


def test_processes_that_see_their_own_gpu_only(tools, job, tmp_path):
    plan, x, expected = job
    command = [tools.path("gridloom"), "run", plan, "--input", f"x={x}", "--output", tmp_path / "out", "--timeout", 60]
    results = finish(start_ranks(command, "127.0.0.1", find_port(), own=True))
    check_outputs(results, tmp_path / "out", expected)


def test_without_a_master_one_line_says_so(tools, job, tmp_path):
    plan, x, _ = job
    command = [tools.path("gridloom"), "run", plan, "--input", f"x={x}"]
    variables = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    result = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert "need MASTER_ADDR and MASTER_PORT" in result.stderr.strip().splitlines()[-1]


@pytest.fixture
def namespaces():
    """Two connected network namespaces: 10.83.0.1 and 10.83.0.2."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and the program ip")
    names = [f"gridloom{os.getpid()}{side}" for side in "ab"]
    if subprocess.run(["ip", "netns", "add", names[0]], capture_output=True).returncode:
        pytest.skip("this machine gives no network namespaces")
    try:
        script = [
            f"ip netns add {names[1]}",
            f"ip -n {names[0]} link add cable type veth peer name cable netns {names[1]}",
        ]
        for number, name in enumerate(names, 1):
            script += [f"ip -n {name} addr add 10.83.0.{number}/24 dev cable"]
            script += [f"ip -n {name} link set {link} up" for link in ("lo", "cable")]
        for line in script:
            subprocess.run(line.split(), check=True)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def test_two_network_namespaces(tools, job, tmp_path, namespaces):
    plan, x, expected = job
    command = [tools.path("gridloom"), "run", plan, "--input", f"x={x}", "--output", tmp_path / "out", "--timeout", 60]
    ranks = start_ranks(
        command, "10.83.0.1", 29511, prefix=lambda machine: ["ip", "netns", "exec", namespaces[machine]]
    )
    check_outputs(finish(ranks), tmp_path / "out", expected)


def test_all_addresses_of_a_name_are_tried(tools, job, tmp_path, namespaces):
    # The second machine finds an address first that nobody has.
    plan, x, expected = job
    files = [Path("/etc/netns") / name / "hosts" for name in namespaces]
    try:
        for file, addresses in zip(files, [["10.83.0.1"], ["10.83.0.3", "10.83.0.1"]]):
            file.parent.mkdir(parents=True)
            file.write_text("".join(f"{address} rank-zero\n" for address in addresses))
        command = [tools.path("gridloom"), "run", plan, "--input", f"x={x}", "--output", tmp_path / "out", "--timeout", 30]
        ranks = start_ranks(
            command, "rank-zero", 29514, prefix=lambda machine: ["ip", "netns", "exec", namespaces[machine]]
        )
        check_outputs(finish(ranks), tmp_path / "out", expected)
    finally:
        for file in files:
            shutil.rmtree(file.parent, ignore_errors=True)


def test_a_cut_cable_is_noticed(tools, job, tmp_path, namespaces):
    plan, x, _ = job
    command = [tools.path("gridloom"), "run", plan, "--input", f"x={x}", "--repeat", 100000, "--timeout", 20]
    ranks = start_ranks(
        command, "10.83.0.1", 29512, prefix=lambda machine: ["ip", "netns", "exec", namespaces[machine]]
    )
    wait_until_running(tmp_path)
    subprocess.run(["ip", "-n", namespaces[1], "link", "set", "cable", "down"], check=True)
    begin = time.monotonic()
    results = finish(ranks, timeout=60)
    assert time.monotonic() - begin < 15
    assert all(code != 0 for _, code in results)
    text = "".join(err for (_, err), _ in results)
    assert re.search(r"rank \d+ died; gone: its connection", text), text


def test_a_cable_that_is_cut_for_seconds_ends_nothing(tools, job, tmp_path, namespaces):
    plan, x, _ = job
    command = [tools.path("gridloom"), "run", plan, "--input", f"x={x}", "--repeat", 1000000, "--timeout", 60]
    ranks = start_ranks(
        command, "10.83.0.1", 29513, prefix=lambda machine: ["ip", "netns", "exec", namespaces[machine]]
    )
    try:
        wait_until_running(tmp_path)
        for state, seconds in [("down", 3), ("up", 2)]:
            subprocess.run(["ip", "-n", namespaces[1], "link", "set", "cable", state], check=True)
            time.sleep(seconds)
        assert [rank.poll() for rank in ranks] == [None] * 4
    finally:
        for rank in ranks:
            rank.kill()
        finish(ranks)


def wait_until_running(tmp_path, timeout=60):
    """Waits until a communicator has run some operations."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if any(re.search(r"operation[1-9]\d\.", path.name) for path in (tmp_path / "nccl").glob("*/*")):
            return
        time.sleep(0.05)
    pytest.fail("the job did not get going")


def find_children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


@pytest.mark.parametrize("victim", [0, 2])
def test_others_of_a_killed_rank_end_and_say_why(tools, job, tmp_path, victim):
    plan, x, _ = job
    command = [tools.path("gridloom"), "run", plan, "--input", f"x={x}", "--repeat", 100000, "--timeout", 30]
    run = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_until_running(tmp_path)
        os.kill(find_children(run.pid)[victim], signal.SIGKILL)
        begin = time.monotonic()
        _, err = run.communicate(timeout=60)
        # Liveness is one second and stopping the job two more; a busy machine takes longer, but less than 20 s.
        assert time.monotonic() - begin < 20
    finally:
        run.kill()
    assert run.returncode == 1, err
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, err
    assert re.search(rf"rank {victim} was killed by signal 9", errors[0]), err
    assert re.search(r"(all_reduce|all_gather|all_to_all|reduce_scatter|broadcast) #\d+", errors[0]), err


def test_a_killed_rank_of_another_machine_ends_all(tools, job, tmp_path):
    plan, x, _ = job
    command = [tools.path("gridloom"), "run", plan, "--input", f"x={x}", "--repeat", 100000, "--timeout", 30]
    ranks = start_ranks(command, "127.0.0.1", find_port())
    wait_until_running(tmp_path)
    ranks[3].kill()
    begin = time.monotonic()
    results = finish(ranks[:3], timeout=60)
    assert time.monotonic() - begin < 20
    ranks[3].wait()
    assert all(code != 0 for _, code in results)
    text = "".join(err for (_, err), _ in results)
    assert "rank 3 died; gone: its connection" in text, text
