"""MiniLM on one machine: our time over ONNX Runtime's, same threads, same run.

    .venv/bin/python bench/minilm_vs_ort.py [--bin build/release/bin] [--mesh model=2]... [--batch 8] [--sequence 128]
        [--threads N] [--rounds 5]

Both sides use the same number of threads in total (`--threads`, default all cores: ranks x intra-op threads). Rounds
alternate between the two, so that a slow moment of the machine hits both; the figure is the median."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import gridloom
import numpy as np
import onnxruntime
from gridloom import zoo


def median_ms(call, seconds: float) -> float:
    """Median milliseconds of `call` over at least `seconds` and five calls, after one to warm up."""
    call()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=None, help="folder of the tools (default: found by gridloom)")
    parser.add_argument("--mesh", action="append", help="repeatable; default data=1, data=2 and model=2")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="per side and round")
    options = parser.parse_args()

    sentences = [zoo.SENTENCES[i % len(zoo.SENTENCES)] for i in range(options.batch)]
    inputs = zoo.encode(sentences, options.sequence)
    with tempfile.TemporaryDirectory() as folder:
        model = zoo.save(zoo.minilm(), Path(folder) / "minilm.onnx")
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads
        reference = onnxruntime.InferenceSession(str(model), settings, providers=["CPUExecutionProvider"])
        print(f"MiniLM, batch {options.batch}, sequence {options.sequence}, {options.threads} threads in total")
        print(f"{'mesh':<20}{'ours ms':>10}{'ort ms':>10}{'ratio':>8}{'max error':>12}")
        for mesh in options.mesh or ["data=1", "data=2", "model=2"]:
            ranks = int(np.prod([int(axis.split("=")[1]) for axis in mesh.split(",")]))
            plan = gridloom.compile(
                model, Path(folder) / f"{mesh}.plan", mesh=mesh, tools=options.bin,
                dims={"batch": options.batch, "sequence": options.sequence},
            )  # fmt: skip
            with gridloom.load(plan, threads=max(1, options.threads // ranks)) as session:
                error = float(np.abs(session.run(inputs)["embedding"] - reference.run(None, inputs)[0]).max())
                rounds = [
                    (median_ms(lambda: session.run(inputs), options.seconds),
                     median_ms(lambda: reference.run(None, inputs), options.seconds))
                    for _ in range(options.rounds)
                ]  # fmt: skip
            ours, theirs = (statistics.median(side) for side in zip(*rounds))
            ratio = statistics.median(a / b for a, b in rounds)
            print(f"{mesh:<20}{ours:>10.2f}{theirs:>10.2f}{ratio:>8.2f}{error:>12.1e}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
