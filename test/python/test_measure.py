"""`gridloom devices --measure`: the cluster file that it writes, its use by compile, and what it refuses."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gridloom import zoo


@pytest.fixture(scope="module")
def measured(tools, tmp_path_factory):
    """This machine, measured as three ranks, and the command's output."""
    path = tmp_path_factory.mktemp("measure") / "lab.json"
    printed = tools.call("devices", "--measure", "-o", path, "--ranks", "3", "--quick", "--json")
    assert printed.stderr == ""  # progress is printed on terminals only
    return path, json.loads(printed.stdout)


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    return zoo.save(zoo.mlp([64, 256, 64], zoo.Random(0)), tmp_path_factory.mktemp("measure") / "mlp.onnx")


def numbers(value):
    """All numbers in a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for element in value for number in numbers(element)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def test_every_rate_is_a_positive_number(measured):
    cluster = json.loads(measured[0].read_text())
    (kind,) = cluster["device_kinds"]
    assert kind["target"] == "cpu" and kind["flops_per_second"]["contraction"]["f32"] > 0
    for field in ("memory_bytes_per_second", "launch_seconds", "collective_launch_seconds"):
        assert kind[field] > 0
    found = numbers(cluster)
    assert len(found) > 20 and all(number > 0 and math.isfinite(number) for number in found)
    for curve in kind["efficiency"].values():
        sizes, shares = zip(*curve)
        assert list(sizes) == sorted(set(sizes)) and max(shares) == 1


def test_the_file_says_which_ranks_share_cores(measured):
    cluster, cores = json.loads(measured[0].read_text()), len(os.sched_getaffinity(0))
    (devices,) = cluster["devices"]
    assert devices["count"] == 3 and devices["cores"] == cores
    assert cluster["device_kinds"][0]["cores"] == max(1, cores // min(3, cores))
    assert measured[1]["ranks"] == 3 and measured[1]["cores"] == cores


def test_compile_takes_the_file(tools, measured, mlp, tmp_path):
    def compile(mesh: str) -> dict:
        plan = tmp_path / f"{mesh}.plan"
        tools.compile(mlp, plan, "--dim", "batch=16", "--mesh", mesh, "--cluster", measured[0], "--dump-ir", tmp_path / mesh)
        return json.loads((plan / "report.json").read_text())

    alone, three = compile("data=1"), compile("model=3")
    assert alone["machine"] == three["machine"] == "measured-cpu"
    assert three["collectives"] and all(c["estimate_us"] > 0 for c in three["collectives"])
    (dump,) = (tmp_path / "model=3").glob("*-shard.mlir")
    assert "cores = " in dump.read_text()


def without(text: str, name: str) -> str:
    cluster = json.loads(text)
    del cluster["devices"][0][name]
    return json.dumps(cluster)


def test_ranks_that_take_turns_compute_longer(tools, measured, mlp, tmp_path):
    """Three ranks that share one core take three times as long as with a core each."""
    text = measured[0].read_text()
    cluster = json.loads(text)
    cluster["device_kinds"][0]["cores"] = cluster["devices"][0]["cores"] = 1
    (tmp_path / "shared.json").write_text(json.dumps(cluster))
    (tmp_path / "own.json").write_text(without(json.dumps(cluster), "cores"))
    times = {}
    for name in ("shared", "own"):
        tools.compile(mlp, tmp_path / f"{name}.plan", "--dim", "batch=48", "--mesh", "data=3", "--cluster", tmp_path / f"{name}.json")
        (estimate,) = json.loads((tmp_path / f"{name}.plan" / "report.json").read_text())["estimates"]
        times[name] = estimate["compute_ms"]
    assert times["shared"] == pytest.approx(3 * times["own"], rel=0.05)


def test_a_rank_alone(tools, tmp_path):
    """No collectives and no links to measure."""
    tools.call("devices", "--measure", "-o", tmp_path / "one.json", "--ranks", "1", "--quick")
    cluster = json.loads((tmp_path / "one.json").read_text())
    assert cluster["links"] == [] and cluster["devices"][0]["cores"] == cluster["device_kinds"][0]["cores"]


def refused(tools, *options, code: int = 1, env=None) -> str:
    result = tools.call("devices", *options, check=False, env=env)
    assert result.returncode == code, result.stdout + result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_a_file_that_exists_stays(tools, measured, tmp_path):
    before = measured[0].read_text()
    line = refused(tools, "--measure", "-o", measured[0])
    assert line == f"error: {measured[0]} exists; choose another -o or --force"
    assert measured[0].read_text() == before


def test_places_that_cannot_be_written(tools, tmp_path):
    assert refused(tools, "--measure", "-o", tmp_path) == f"error: -o {tmp_path} is a folder; name a file"
    line = refused(tools, "--measure", "-o", tmp_path / "none" / "c.json")
    assert line.endswith(f"there is no folder {tmp_path / 'none'}")
    line = refused(tools, "--measure", "-o", "/proc/c.json")
    assert line.startswith("error: -o /proc/c.json cannot be written: ")


def test_what_cannot_be_measured(tools, tmp_path):
    line = refused(tools, "--measure", "-o", tmp_path / "c.json", "--device", "cuda")
    assert line.startswith("error: only CPUs can be measured, not --device cuda; for GPUs describe a cluster by hand")
    line = refused(tools, "--measure", "-o", tmp_path / "c.json", env={"RANK": "0", "WORLD_SIZE": "2"})
    assert line.startswith("error: --measure starts its own ranks, but ") and "started 2" in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options,why",
    [
        (["--measure"], "requires --output"),
        (["-o", "c.json"], "requires --measure"),
        (["--quick"], "requires --measure"),
        (["--measure", "-o", "c.json", "--ranks", "0"], "--ranks"),
        (["--measure", "-o", "c.json", "--ranks", "many"], "--ranks"),
        (["--measure", "-o", "c.json", "--device", "tpu"], "--device"),
        (["--measure", "-o", "c.json", "--transport", "nccl"], "--transport"),
    ],
    ids=" ".join,
)
def test_wrong_use(tools, options, why):
    assert why in refused(tools, *options, code=2)


def test_without_a_compiler(tools, tmp_path):
    """The runtime can be installed alone, without the compiler that makes the kernels to time."""
    alone = tmp_path / "bin" / "gridloom"
    alone.parent.mkdir()
    alone.write_bytes(tools.path("gridloom").read_bytes())
    alone.chmod(0o755)
    result = subprocess.run([alone, "devices", "--measure", "-o", tmp_path / "c.json"], capture_output=True, text=True, env={"PATH": "/nowhere"})
    (line,) = result.stderr.splitlines()
    assert result.returncode == 1 and "gridloom-compile" in line and not (tmp_path / "c.json").exists()


def children(of: int) -> list[int]:
    """The ids of the processes that `of` has started."""
    return [int(pid) for pid in Path(f"/proc/{of}/task/{of}/children").read_text().split()]


def wait_for_ranks(process: subprocess.Popen, count: int) -> list[int]:
    """The ids of the measuring ranks: children that run the parent's program."""
    program = os.readlink(f"/proc/{process.pid}/exe")
    for _ in range(6000):
        found = []
        for child in children(process.pid):
            try:
                if os.readlink(f"/proc/{child}/exe") == program:
                    found.append(child)
            except OSError:  # already ended
                pass
        if len(found) >= count:
            return found
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    pytest.fail("no ranks were started")


def test_a_rank_that_dies(tools, tmp_path):
    """The transport reports which rank is gone, and nothing is written."""
    command = [tools.path("gridloom"), "devices", "--measure", "-o", tmp_path / "c.json", "--ranks", "4", "--quick"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.kill(wait_for_ranks(process, 4)[1], signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
    (line,) = errors.splitlines()
    assert process.returncode == 1 and "rank 1" in line and "signal 9" in line
    assert not list(tmp_path.iterdir())


def test_an_interrupt(tools, tmp_path):
    command = [tools.path("gridloom"), "devices", "--measure", "-o", tmp_path / "c.json", "--ranks", "4", "--quick"]
    restore = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731: the background ignores it
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=restore) as process:
        wait_for_ranks(process, 4)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert not list(tmp_path.iterdir())
