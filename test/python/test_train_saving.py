"""Checkpoints when things go wrong: a full disk, and runs that are killed at any moment."""

from __future__ import annotations

import csv
import json
import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import Tools
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from training_models import Mlp

BATCH, SAMPLES = 8, 60


@pytest.fixture(scope="module")
def folder(tools: Tools, tmp_path_factory) -> Path:
    """Data, and plans small.plan and large.plan, whose states take 3 KB and about 6 MB, so that a run of the large one saves most of the
    time."""
    folder, random = tmp_path_factory.mktemp("saving"), np.random.default_rng(0)
    draw = lambda *shape: random.standard_normal(shape).astype(np.float32)  # noqa: E731
    for name, hidden in (("small", 14), ("large", 32768)):
        Mlp(draw, hidden=hidden).save(folder / f"{name}.onnx")
        options = ["--train", "--loss", "mse(y, t)", "--optimizer", "adam(lr=1e-4)", "--dim", f"batch={BATCH}", "--mesh", "data=2"]
        tools.compile(folder / f"{name}.onnx", folder / f"{name}.plan", *options)
    np.savez(folder / "data.npz", x=draw(SAMPLES, 10), t=draw(SAMPLES, 5))
    return folder


def test_a_full_disk(tools, folder, tmp_path):
    """The run ends with the path and the reason; earlier checkpoints remain and load."""
    disk = tmp_path / "disk"
    disk.mkdir()
    gridloom, train = tools.path("gridloom"), ["train", folder / "small.plan", "--data", folder / "data.npz", "--steps", 100000]
    train += ["--checkpoint-dir", disk / "run", "--checkpoint-every", 1, "--keep", 1000]
    script = f"""
        mount -t tmpfs -o size=200k tmpfs {disk} || exit 77
        {gridloom} {' '.join(map(str, train))} > {tmp_path}/out 2> {tmp_path}/err
        echo $? > {tmp_path}/code
        ls -A {disk}/run > {tmp_path}/left
        for step in {disk}/run/step-*; do {gridloom} checkpoint inspect $step --json || exit 1; done"""
    namespace = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--user", "--map-root-user"])]
    result = subprocess.run([*namespace, "sh", "-c", script], capture_output=True, text=True, timeout=120)
    if result.returncode == 77 or "unshare" in result.stderr:
        pytest.skip(f"no file system can be mounted here: {result.stderr}")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "code").read_text() == "1\n"
    error = (tmp_path / "err").read_text()
    path = rf"{re.escape(str(disk))}/run/step-\d{{10}}\.tmp-\w+/?\w*(\.\w+)?"
    assert re.fullmatch(rf"error: no checkpoint is saved: cannot (write|make the folder) '{path}': No space left on device\n", error), error
    left = set((tmp_path / "left").read_text().split()) - {".lock"}
    assert len(left) > 3 and left == {f"step-{step:010d}" for step in range(1, len(left) + 1)}


def test_a_limit_of_file_sizes(tools, folder, tmp_path):
    """It is reported as a full disk is; the system's default is to end the process by a signal."""
    options = ["--train", "--loss", "mse(y, t)", "--optimizer", "adam(lr=1e-4)", "--dim", f"batch={BATCH}"]  # one rank shares no memory
    tools.compile(folder / "large.onnx", tmp_path / "large.plan", *options)
    train = ["train", tmp_path / "large.plan", "--data", folder / "data.npz", "--steps", 1, "--checkpoint-dir", tmp_path / "run"]
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # noqa: E731
    command = [str(tools.path("gridloom")), *map(str, train)]
    result = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, timeout=120)
    assert result.returncode == 1, result.stderr
    assert re.fullmatch(r"error: no checkpoint is saved: cannot write '.*/states.safetensors': File too large\n", result.stderr)
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_a_full_disk_of_logs(tools, folder):
    result = tools.call(
        "train", folder / "small.plan", "--data", folder / "data.npz", "--steps", 2, "--log", "/dev/full", check=False
    )
    assert result.returncode == 1 and "--log /dev/full cannot be written: No space left on device" in result.stderr


def read_latest(tools, run: Path) -> dict | None:
    """The output of `checkpoint inspect` for the latest checkpoint, which verifies every byte."""
    if not any(run.glob("step-??????????")):
        return None
    return json.loads(tools.call("checkpoint", "inspect", run, "--json").stdout)


def test_a_run_that_is_killed_goes_on(tools, folder, tmp_path, request):
    """Killed at random moments, with --full 100 times, often while it saves: the last checkpoint is always valid, and in the end the run
    equals one that was not killed."""
    kills = 100 if request.config.getoption("--full") else 5
    random, files = np.random.default_rng(kills), ["--checkpoint-dir", "--log", "--log-dir"]
    train = ["train", folder / "large.plan", "--data", folder / "data.npz", "--in-process", "--checkpoint-every", 1, "--resume"]
    mine = [part for option in files for part in (option, tmp_path / option)]
    begin = time.monotonic()
    tools.call(*train, *mine, "--steps", 1)
    start = time.monotonic() - begin
    last, moments = 1, []
    while len(moments) < kills or last == 1:
        assert len(moments) < kills + 20, "no run gets as far as a step"
        command = [str(tools.path("gridloom")), *map(str, [*train, *mine, "--steps", 10**9])]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(random.uniform(0, 2.5 * start))
        process.send_signal(signal.SIGKILL)
        _, error = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, error
        moments.append(any(path.name.startswith("step-") and ".tmp-" in path.name for path in (tmp_path / files[0]).iterdir()))
        step = read_latest(tools, tmp_path / files[0])["step"]
        assert step >= last
        if step == 1:
            start *= 1.5  # the machine was less busy when it was timed
        last = step
    assert kills < 100 or sum(moments) >= 5
    print(f"{len(moments)} kills, {sum(moments)} of them while a checkpoint was written; {last} steps")
    whole = [part for option in files for part in (option, tmp_path / f"whole{option}")]
    for options in (mine, whole):
        tools.call(*train, *options, "--steps", last + 5)
    assert not [path for path in (tmp_path / files[0]).iterdir() if ".tmp-" in path.name]
    states = [(run / f"step-{last + 5:010d}" / "states.safetensors").read_bytes() for run in (tmp_path / files[0], tmp_path / f"whole{files[0]}")]
    assert states[0] == states[1]
    logs = []
    for name in (files[1], f"whole{files[1]}"):
        with open(tmp_path / name, newline="") as file:
            logs.append([{key: value for key, value in row.items() if key != "ms"} for row in csv.DictReader(file)])
    assert logs[0] == logs[1] and len(logs[0]) == last + 5
    reader = EventAccumulator(str(tmp_path / files[2]), {"scalars": 0})
    reader.Reload()
    assert [event.step for event in reader.Scalars("loss")] == list(range(1, last + 6))
