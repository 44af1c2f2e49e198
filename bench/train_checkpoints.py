"""What checkpoints cost a training run: the time of a step with `gridloom train --checkpoint-every N` against the same run without.

    .venv/bin/python bench/train_checkpoints.py --every 1 2 5 10 --batch 512

The model is a perceptron whose weights and Adam's two moments take about `--states` MB. A step's time is the difference of consecutive
steps' timestamps in the event files of `--log-dir`, so it includes copying the states, waiting for the previous checkpoint, and the
processor time that writing takes from other threads. Prints the median over `--runs` runs, which alternate, of the mean step after three
warm-up steps; also the rates at which this machine copies memory and writes files, which are upper limits."""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[1]
FEATURES, CLASSES, WARMUP = 256, 16, 3


def make_model(path: Path, megabytes: float) -> int:
    """Writes a perceptron with two layers of H x H. Returns H."""
    hidden = max(64, int((megabytes * 1e6 / 3 / 4 / 2) ** 0.5) // 64 * 64)
    random = np.random.default_rng(0)
    sizes = [FEATURES, hidden, hidden, hidden, CLASSES]
    nodes, tensors, value = [], [], "x"
    for i, (rows, columns) in enumerate(zip(sizes, sizes[1:], strict=False)):
        last = i == len(sizes) - 2
        weight = random.standard_normal((rows, columns), dtype=np.float32) / rows**0.5
        tensors.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], ["logits" if last else f"m{i}"]))
        if not last:
            nodes.append(helper.make_node("Relu", [f"m{i}"], [f"h{i}"]))
        value = f"h{i}"
    kind = lambda name, size: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])  # noqa: E731
    graph = helper.make_graph(nodes, "perceptron", [kind("x", FEATURES)], [kind("logits", CLASSES)], tensors)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]), path)
    return hidden


def read_times(folder: Path) -> list[float]:
    """The times at which each step's numbers were written, in seconds; field 1 of an Event is the time, field 2 the step."""
    (file,) = folder.glob("events.out.tfevents.*")
    data, at, times = file.read_bytes(), 0, []
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        event = data[at + 12 : at + 12 + length]
        if event[0] == 0x09 and event[9] == 0x10:
            times.append(struct.unpack_from("<d", event, 1)[0])
        at += 16 + length
    return times


def train(options: argparse.Namespace, plan: Path, data: Path, every: int) -> float:
    """Runs a training and returns the seconds per step."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        command = [str(options.bin / "gridloom"), "train", str(plan), "--data", str(data), "--steps", str(options.steps)]
        command += ["--log-dir", f"{folder}/events", "--threads", str(options.threads)]
        if every:
            command += ["--checkpoint-dir", f"{folder}/checkpoints", "--checkpoint-every", str(every)]
        subprocess.run(command, check=True, capture_output=True)
        times = read_times(Path(folder) / "events")
        assert len(times) == options.steps
        return (times[-1] - times[WARMUP - 1]) / (options.steps - WARMUP)


def measure_machine(options: argparse.Namespace, size: int) -> tuple[float, float]:
    """Seconds to copy `size` bytes in allocated memory, and to write them to a file and sync it."""
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    copies, writes = [], []
    for _ in range(5):
        begin = time.perf_counter()
        np.copyto(target, source)
        copies.append(time.perf_counter() - begin)
        with tempfile.NamedTemporaryFile(dir=options.folder) as file:
            begin = time.perf_counter()
            file.write(source)
            file.flush()
            os.fsync(file.fileno())
            writes.append(time.perf_counter() - begin)
    return statistics.median(copies), statistics.median(writes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=float, default=100, metavar="MB", help="weights and moments (default: %(default)s)")
    parser.add_argument("--every", type=int, nargs="+", default=[1, 2, 5, 10], help="steps between checkpoints (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=512, help="samples of a step, which decide how long it takes (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=33, help="steps of a run (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each kind (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the steps (default: all cores, %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where to write (default: %(default)s)")
    parser.add_argument("--bin", type=Path, default=ROOT / "build" / "release" / "bin", help="of the tools (default: %(default)s)")
    options = parser.parse_args()
    if options.steps <= WARMUP:
        sys.exit(f"--steps is {options.steps}; more than {WARMUP} are needed, which warm up")
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        hidden = make_model(folder / "m.onnx", options.states)
        compile_ = [str(options.bin / "gridloom"), "compile", str(folder / "m.onnx"), "-o", str(folder / "m.plan")]
        compile_ += ["--train", "--loss", "cross_entropy(logits, labels)", "--optimizer", "adam(lr=1e-5)"]
        subprocess.run([*compile_, "--dim", f"batch={options.batch}"], check=True, capture_output=True)
        random = np.random.default_rng(1)
        x = random.standard_normal((2 * options.batch, FEATURES), dtype=np.float32)
        np.savez(folder / "data.npz", x=x, labels=random.integers(0, CLASSES, 2 * options.batch))
        size = 3 * 4 * (FEATURES * hidden + 2 * hidden * hidden + hidden * CLASSES)
        copy, write = measure_machine(options, size)
        print(f"states {size / 1e6:.0f} MB; this machine copies them in {copy * 1e3:.0f} ms, writes and syncs them in {write * 1e3:.0f} ms")
        kinds = [0, *options.every]
        times: dict[int, list[float]] = {every: [] for every in kinds}
        for _ in range(options.runs):
            for every in kinds:
                times[every].append(train(options, folder / "m.plan", folder / "data.npz", every))
        base = statistics.median(times[0])
        print(f"{'every':>6} {'ms/step':>9} {'least':>9} {'most':>9} {'cost':>7} {'ms/checkpoint':>14}")
        for every, measured in times.items():
            median = statistics.median(measured)
            cost = f"{median / base - 1:7.1%} {(median - base) * every * 1e3:14.1f}" if every else ""
            print(f"{every or 'none':>6} {median * 1e3:9.1f} {min(measured) * 1e3:9.1f} {max(measured) * 1e3:9.1f} {cost}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
