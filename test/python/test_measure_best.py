"""compile --measure-best: runs the candidates that the simulator finds fastest, and keeps the fastest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from gridloom import zoo


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("measured") / "mlp.onnx"
    zoo.save(zoo.mlp((256, 512, 512, 64), zoo.Random(0, scale=0.05)), path)
    return path


SIZES = ["--dim", "batch=64"]


def read_candidates(plan) -> list[dict]:
    return json.loads((plan / "report.json").read_text())["candidates"]


def test_the_fastest_of_those_that_were_run_is_kept(tools, model, tmp_path):
    plan = tmp_path / "m.plan"
    shown = tools.compile(model, plan, *SIZES, "--mesh", "x=2", "--measure-best", "2").stdout
    assert ", 2 measured)" in shown and "ms measured, " in shown
    measured = [c for c in read_candidates(plan) if c["measured_ms"] > 0]
    assert len(measured) == 2 and all(c["simulated_ms"] > 0 for c in measured)
    fastest = min(measured, key=lambda c: c["measured_ms"])
    assert fastest["reason"] == "chosen"
    assert fastest["strategy"] == json.loads((plan / "report.json").read_text())["strategy"]
    assert "ms measured; the next, " in tools.call("explain", plan).stdout
    assert "PASS" in tools.call("check", plan).stdout


def test_more_are_simulated_where_more_are_measured(tools, model, tmp_path):
    tools.compile(model, tmp_path / "m.plan", *SIZES, "--devices", "4", "--measure-best", "5")
    candidates = read_candidates(tmp_path / "m.plan")
    assert sum(c["measured_ms"] > 0 for c in candidates) == 5
    assert sum(c["simulated_ms"] > 0 for c in candidates) >= 5


def test_what_was_measured_is_kept_beside_the_cluster(tools, model, tmp_path):
    kind = {"name": "own", "target": "cpu", "memory_bytes_per_second": 1e10, "launch_seconds": 0, "collective_launch_seconds": 0}
    kind["flops_per_second"] = {"contraction": {"f32": 1e10}}
    cluster = {"device_kinds": [kind], "devices": [{"name": "d", "kind": "own", "count": 2}], "switches": ["s"]}
    cluster["links"] = [{"ends": ["d", "s"], "latency_seconds": 1e-5, "bytes_per_second": 1e9}]
    lab, kept = tmp_path / "lab.json", tmp_path / "lab.measured.json"
    lab.write_text(json.dumps(cluster))
    options = [*SIZES, "--cluster", lab, "--measure-best", "2"]
    tools.compile(model, tmp_path / "m.plan", *options)
    rows = json.loads(kept.read_text())["measurements"]
    assert len(rows) == 2 and all(row["measured_ms"] > 0 and row["programs"] for row in rows)
    tools.compile(model, tmp_path / "m.plan", *options)
    assert json.loads(kept.read_text())["measurements"][:2] == rows
    kept.write_text("mine")
    shown = tools.compile(model, tmp_path / "m.plan", *options)
    assert "is no list of measurements" in shown.stderr
    assert kept.read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--mesh", "x=2", "--measure-best", "2", "--stop-after", "shard"], "--measure-best 2 runs compiled plans; leave --stop-after out"),
        (["--devices", "2xH100-80GB", "--measure-best", "2"], "times are estimated for H100-80GB, but plans are compiled for --target cpu"),
        (["--mesh", "x=2", "--measure-best", "1"], "--measure-best: Value 1 not in range"),
    ],
)
def test_what_cannot_be_measured_is_refused(tools, model, tmp_path, options, error):
    result = tools.call("compile", model, "-o", tmp_path / "m.plan", *SIZES, *options, check=False)
    assert result.returncode and error in result.stderr
    assert not (tmp_path / "m.plan").exists()


def test_a_strategy_file_leaves_nothing_to_compare(tools, model, tmp_path):
    tools.compile(model, tmp_path / "m.plan", *SIZES, "--mesh", "data=2")
    strategy = tmp_path / "m.plan" / "plan.strategy"
    result = tools.call("compile", model, "-o", tmp_path / "n.plan", *SIZES, "--strategy", strategy, "--measure-best", "2", check=False)
    assert result.returncode == 1 and "leave one of the two out" in result.stderr


def test_one_candidate_is_taken_with_a_warning(tools, model, tmp_path):
    shown = tools.compile(model, tmp_path / "m.plan", *SIZES, "--mesh", "data=2", "--measure-best", "2")
    assert "--measure-best has nothing to compare: the options leave one candidate" in shown.stderr


@pytest.mark.parametrize("whole_group", [True, False], ids=["Ctrl-C", "kill"])
def test_an_interrupt_leaves_no_measured_plans(tools, model, tmp_path, whole_group):
    folder = tmp_path / "tmp"
    folder.mkdir()
    command = ["compile", model, "-o", tmp_path / "m.plan", *SIZES, "--mesh", "x=2", "--measure-best", "2"]
    started = subprocess.Popen(
        list(map(str, [tools.path("gridloom"), *command])),
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not list(folder.glob("gridloom-measure-*/0.plan.out")):
        assert started.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    (os.killpg if whole_group else os.kill)(started.pid, signal.SIGINT if whole_group else signal.SIGTERM)
    _, errors = started.communicate(timeout=120)
    assert started.returncode == -(signal.SIGINT if whole_group else signal.SIGTERM) and errors == ""
    assert list(folder.iterdir()) == [] and not (tmp_path / "m.plan").exists()
