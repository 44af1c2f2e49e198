"""Planning that is stopped early: --plan-time, --plan-work and Ctrl-C give the best plan found so far."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from pathlib import Path

import pytest

from gridloom import zoo

SIZES = {"hidden": 64, "heads": 4, "vocabulary": 500, "positions": 64}
DIMS = ["--dim", "batch=8", "--dim", "sequence=32"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return zoo.MODELS["gpt2"].write(tmp_path_factory.mktemp("stop") / "gpt2.onnx", layers=2, **SIZES)


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """A model that takes seconds to plan for many devices."""
    sizes = {"hidden": 1024, "heads": 8, "vocabulary": 5000, "positions": 64}
    return zoo.MODELS["gpt2"].write(tmp_path_factory.mktemp("stop") / "deep.onnx", shapes_only=True, layers=24, **sizes)


MANY = [*DIMS, "--cluster", "HGX-H100x8", "--target", "cuda:sm_90"]


def plan(tools, path, *options) -> dict:
    return json.loads(tools.call("plan", path, *DIMS, *options, "--json").stdout)


# Time limits


@pytest.mark.parametrize("options", [["--devices", "4"], ["--devices", "4", "--no-seeds"]], ids=["auto", "searches"])
def test_without_any_time_there_is_a_plan(tools, model, tmp_path, options):
    found = tools.compile(model, tmp_path / "m.plan", *DIMS, *options, "--plan-time", "0")
    report = json.loads((tmp_path / "m.plan" / "report.json").read_text())
    planning, candidates = report["planning"], report["candidates"]
    left = [each for each in candidates if each["reason"] == "left: planning was stopped"]
    assert planning["left"] == len(left) and planning["steps"] >= 1
    assert planning["stopped"].startswith("by --plan-time 0, which ")
    assert f"  stopped         {planning['stopped']}\n" in found.stdout
    (chosen,) = [each for each in candidates if each["reason"] == "chosen"]
    assert chosen["simulated_ms"] > 0 and len(left) >= len(candidates) / 2
    assert f"which left {len(left)} of {len(candidates)} candidates that may be faster" in planning["stopped"]
    shown = json.loads(tools.call("explain", tmp_path / "m.plan", "--json").stdout)
    assert f", {len(left)} left: " in shown["why"] and "refused" not in shown["why"]
    verdicts = [row["verdict"] for row in shown["candidates"]]
    assert verdicts.count("left: planning was stopped") == len(left) and verdicts[0] == "chosen"
    assert report["options"]["plan-time"] == 0
    assert "PASS" in tools.call("check", tmp_path / "m.plan").stdout


def test_with_enough_time_nothing_changes(tools, model):
    free, timed = plan(tools, model, "--devices", "4"), plan(tools, model, "--devices", "4", "--plan-time", "100000")
    assert timed == free and "stopped" not in free and free["candidates_left"] == 0


@pytest.mark.parametrize("mesh", ["x=2,y=2", "pipe=2,x=4"])
def test_a_search_that_is_ended_keeps_to_the_memory(tools, model, mesh):
    """The search's first splits do not fit in memory, so it continues until some do."""
    options = ["--mesh", mesh, "--strategy", "search"]
    whole = max(row["allocated_bytes"] for row in plan(tools, model, *options)["devices"])
    ended = []
    for share in (0.9, 0.75):
        limited = [*DIMS, *options, "--memory-limit", int(share * whole)]
        free = tools.call("plan", model, *limited, "--json", check=False)
        for limit in (["--plan-time", "0"], ["--plan-work", "2"]):
            stopped = tools.call("plan", model, *limited, *limit, "--json", check=False)
            if free.returncode == 0:
                assert stopped.returncode == 0, stopped.stderr
            if stopped.returncode == 0:
                found = json.loads(stopped.stdout)
                assert max(row["allocated_bytes"] for row in found["devices"]) <= share * whole
                ended += [found["stopped"]] if "stopped" in found else []
    assert ended and all(re.fullmatch(r"by --plan-(time 0|work 2), which ended a search", each) for each in ended)


def test_a_search_that_is_ended_says_no_bound_that_it_does_not_have(tools, tmp_path):
    """Only one way to cut the batch has been searched, so there is no bound for the others."""
    model = zoo.save(zoo.mlp([64, 128, 64, 128, 64], zoo.Random(0)), tmp_path / "mlp.onnx")
    options = ["--mesh", "pipe=2,x=2,y=2", "--strategy", "search", "--microbatches", "2", "--plan-time", "0"]
    tools.compile(model, tmp_path / "m.plan", "--dim", "batch=64", *options)
    report = json.loads((tmp_path / "m.plan" / "report.json").read_text())
    assert report["search"]["bound_ms"] == 0
    none = "; the search was ended before it had a bound"
    assert any(remark.startswith("search: the program takes ") and remark.endswith(none) for remark in report["remarks"])
    assert json.loads(tools.call("explain", tmp_path / "m.plan", "--json").stdout)["bound"].endswith(none)


# Work limits


@pytest.mark.parametrize("options", [["--devices", "4"], ["--mesh", "pipe=2,x=4", "--strategy", "search", "--memory-limit", "550KiB"]], ids=["auto", "one"])
def test_so_much_work_has_one_result(tools, model, tmp_path, options):
    free = plan(tools, model, *options)
    steps = free["plan_steps"]
    for work in (1, steps // 3, *range(steps - 4, steps + 1)):
        several = [plan(tools, model, *options, "--plan-work", work, "--jobs", jobs) for jobs in (1, 2, 3)]
        for each in several:
            assert each == several[0], work
            assert each.get("stopped", "by --plan-work").startswith("by --plan-work")
            if any(each[key] != free[key] for key in ("mesh", "strategy", "programs")):
                assert "stopped" in each, work
    assert plan(tools, model, *options, "--plan-work", steps) == free
    few = plan(tools, model, *options, "--plan-work", 1)
    assert few["plan_steps"] < steps and "stopped" in few


def test_any_work_has_one_result(tools, model):
    """With two threads, the second may start to simulate a search's plan when no work is left for it."""
    options = ["--cluster", "HGX-H100x1", "--target", "cuda:sm_90", "--memory-limit", "1GiB"]
    for work in range(1, plan(tools, model, *options)["plan_steps"] + 1):
        one, two = (plan(tools, model, *options, "--plan-work", work, "--jobs", jobs) for jobs in (1, 2))
        assert one == two, work


def test_the_work_is_repeated(tools, model, tmp_path):
    """A plan records its limit on work: planned again, it is the same."""
    tools.compile(model, tmp_path / "m.plan", *DIMS, "--devices", "4", "--plan-work", "30", "-q")
    report = json.loads((tmp_path / "m.plan" / "report.json").read_text())
    assert report["options"]["plan-work"] == 30
    answer = json.loads(tools.call("explain", tmp_path / "m.plan", "--why-not", "mesh=" + report["mesh"], "--json").stdout)
    assert "--plan-work 30" in answer["compile_it"]
    tools.compile(model, tmp_path / "again.plan", *DIMS, "--devices", "4", "--plan-work", "30", "--jobs", "1", "-q")
    assert (tmp_path / "again.plan" / "plan.strategy").read_text() == (tmp_path / "m.plan" / "plan.strategy").read_text()


def test_what_is_asked_of_a_stopped_plan(tools, model, tmp_path):
    """why-not plans without the clock but with the work limit, and the answer says whether the limit ended it."""

    def ask(*options) -> dict:
        tools.compile(model, tmp_path / "m.plan", *DIMS, "--devices", "4", *options, "-q", "--force")
        return json.loads(tools.call("explain", tmp_path / "m.plan", "--why-not", "mesh=x=2,y=2", "--json").stdout)

    free, timed, worked = ask(), ask("--plan-time", "0"), ask("--plan-work", "1")
    assert timed["pinned_ms"] == free["pinned_ms"] and timed["compile_it"] == free["compile_it"]
    assert "stopped" not in free and "stopped" not in timed
    assert worked["stopped"].startswith("by --plan-work 1, which ")
    other = tmp_path / "other.plan"
    tools.compile(model, other, "--dim", "batch=1", "--dim", "sequence=32", "--mesh", "x=2,y=2", "--plan-work", "1", "-q")
    shown = json.loads(tools.call("explain", other, "--collective", "0", "--alternatives", "--json").stdout)
    assert any("; stopped by --plan-work 1, which " in row["verdict"] for row in shown["alternatives"])


@pytest.mark.parametrize("flag, value", [("--plan-time", "-1"), ("--plan-time", "soon"), ("--plan-work", "0"), ("--plan-work", "many")])
def test_refusals(tools, model, flag, value):
    result = tools.call("plan", model, flag, value, check=False)
    assert result.returncode == 2 and result.stderr.startswith(f"error: {flag}: ") and result.stderr.count("\n") == 1


# Ctrl-C


class OnATerminal:
    """A command with its messages on a terminal and its output in a pipe."""

    def __init__(self, tools, *arguments):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 60, 0, 0))
        command = [tools.path("gridloom"), *map(str, arguments)]
        # A shell makes background jobs ignore the signal.
        restore = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, preexec_fn=restore)
        os.close(theirs)
        self.shown = ""
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self) -> None:
        try:
            while text := os.read(self.ours, 1 << 16):
                self.shown += text.decode()
        except OSError:  # the other end is closed
            pass

    def wait_until(self, condition, what: str) -> None:
        deadline = time.monotonic() + 300
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                self.finish()
                pytest.fail(f"no {what}: {self.shown!r}")
            time.sleep(0.01)

    def wait_for(self, pattern: str) -> None:
        """Waits until the terminal shows the pattern."""
        self.wait_until(lambda: re.search(pattern, self.shown), repr(pattern))

    def catches_interrupts(self) -> bool:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return bool(int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) >> (signal.SIGINT - 1) & 1)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def finish(self) -> tuple[int, str]:
        """The exit code and the output."""
        out = self.process.communicate(timeout=300)[0].decode()
        self.reader.join()
        os.close(self.ours)
        return self.process.returncode, out


def test_the_first_interrupt_takes_the_best_plan(tools, deep):
    command = OnATerminal(tools, "plan", deep, *MANY, "--json", "--jobs", "1")
    command.wait_for(r"shard: 3 of \d+ weighed")
    command.interrupt()
    code, out = command.finish()
    found = json.loads(out)
    assert code == 0, command.shown
    assert found["stopped"].startswith("by Ctrl-C, which left ") and found["candidates_left"] > 0
    assert found["candidates"][0]["verdict"] == "chosen" and found["candidates"][0]["simulated_ms"] > 0
    lines = re.split(r"\r\x1b\[K", command.shown)
    assert max(map(len, lines)) < 60, "a line that the terminal would break"


def test_the_second_interrupt_ends_the_program(tools, deep):
    command = OnATerminal(tools, "plan", deep, *MANY, "--json", "--jobs", "1")
    command.wait_for(r"shard: 3 of \d+ weighed")
    command.interrupt()
    command.wait_until(lambda: not command.catches_interrupts(), "first interrupt taken")
    command.interrupt()
    assert command.finish()[0] == -signal.SIGINT


def test_a_narrow_terminal_shows_what_an_interrupt_does(tools, deep):
    command = OnATerminal(tools, "plan", deep, *MANY, "--json", "--jobs", "1")
    command.wait_for(r"shard: 3 of \d+ weighed")
    command.interrupt()
    code, out = command.finish()
    assert code == 0 and json.loads(out)["stopped"].startswith("by Ctrl-C")
    assert "ending, Ctrl-C again aborts; " in command.shown


def test_an_interrupt_ends_what_has_no_terminal(tools, deep):
    command = [tools.path("gridloom"), "plan", deep, *MANY, "--json"]
    restore = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=restore)
    time.sleep(0.5)  # at any moment
    process.send_signal(signal.SIGINT)
    out, messages = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGINT and not out and not messages


def test_progress_is_for_terminals(tools, model):
    command = OnATerminal(tools, "plan", model, *DIMS, "--devices", "4", "--json")
    command.wait_for(r"1 simulated, best [\d.]+ ms")
    code, out = command.finish()
    assert code == 0 and json.loads(out) == plan(tools, model, "--devices", "4")
    assert tools.call("plan", model, *DIMS, "--devices", "4").stderr == ""


def test_options_of_planning_come_before_the_split(tools, tmp_path):
    model = zoo.save(zoo.mlp([16, 8], zoo.Random(0)), tmp_path / "m.onnx")
    options = ["--dim", "batch=4", "--mesh", "data=2"]
    tools.call("compile", model, *options, "--stop-after", "shard", "--dump-ir", tmp_path)
    for late in ("--certify", "--weigh-all", "--plan-time=1", "--plan-work=1", "--zero=1", "--jobs=2", "--strategy=tp"):
        command = ["compile", tmp_path / "03-shard.mlir", "--start-from", "partition", "-o", tmp_path / "m.plan", late]
        result = tools.call(*command, check=False)
        option = late.partition("=")[0]
        expected = f"error: {option} comes too late for --start-from partition; the program is split already\n"
        assert result.returncode == 1 and result.stderr == expected
    reasons = {"--unroll=4": "loops are unrolled on import", "--bucket-size=1MiB": "communication is arranged already"}
    for late, reason in reasons.items():
        result = tools.call("compile", tmp_path / "03-shard.mlir", "--start-from", "fuse", late, check=False)
        assert result.returncode == 1
        assert result.stderr == f"error: {late.partition('=')[0]} comes too late for --start-from fuse; {reason}\n"


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ([], "give --devices, or a --mesh of axes such as x=2,y=2"),
        (["--mesh", "data=2"], "give --devices, or a --mesh of axes such as x=2,y=2"),
        (["--mesh", "data=2", "--cluster", "cpu"], "leave --mesh out, or give it axes such as x=2,y=2"),
        (["--devices", "1"], "give more devices than --devices 1"),
    ],
)
def test_a_single_candidate_cannot_be_certified(tools, tmp_path, options, remedy):
    model = zoo.save(zoo.mlp([16, 8], zoo.Random(0)), tmp_path / "m.onnx")
    told = tools.call("plan", model, "--dim", "batch=4", *options, "--certify").stderr
    assert told == f"warning: --certify does nothing: there is one candidate; {remedy}\n"
