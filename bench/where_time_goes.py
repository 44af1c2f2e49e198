"""Where the time of a run goes: the shares of matrix products, convolutions, attention, kernels, copies, communication and launches.

    .venv/bin/python bench/where_time_goes.py [--bin build/release/bin] [--model NAME]... [--mesh model=2]... [--threads 1] [--runs 20]
        [--busy]

The models are those of cpu_vs_peers.py. A step's part is what the plan has it as (`part` in the files of `gridloom run --trace`):

    gemm       products that read a weight, and all others of two matrices
    attention  a library's attention, and products of batches that the run computes: scores and contexts. Their softmax is a kernel's
    kernels    generated kernels that compute; `copies` are those that only move elements, and copies of whole buffers
    comm       collectives and transfers, from when a rank comes to them: waiting for the others is in it
    launch     what is outside of all steps: beginning a run, submitting its steps, handing out its outputs

A step counts with the median of its times over all runs; with `--busy` with the shortest, for machines that do other things, which the clock
counts in most runs. Its part has the sum of its steps, and of several ranks the mean. Launches are of runs without a trace, which submit their steps
in another way. `sum ms` is the time of all parts; `cpu ms` the processor time of a run without a trace, of all ranks and threads, median: where
one rank of one thread has a `sum ms` far above it, other work was timed."""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import gridloom
import numpy as np

import cpu_vs_peers
from cpu_vs_peers import CASES, Case

PARTS = {"gemm": "gemm", "convolution": "conv", "attention": "attention", "kernel": "kernels", "copy": "copies", "communication": "comm"}


@dataclass(frozen=True)
class Breakdown:
    """Milliseconds of a run: of each part, of launches, and all processor time. `steps` counts the steps of a rank in each part."""

    parts: dict[str, float]
    launch: float
    processor: float
    steps: dict[str, int]

    @property
    def total(self) -> float:
        return sum(self.parts.values()) + self.launch

    def get_shares(self) -> dict[str, float]:
        """Percent of the sum of all parts."""
        return {part: 100 * value / self.total for part, value in [*self.parts.items(), ("launch", self.launch)]}


def read_steps(trace: Path) -> dict[tuple[int, int], tuple[str, float]]:
    """Part and milliseconds of each step of a run, by its rank and its place in the rank's steps."""
    steps, counts = {}, defaultdict(int)
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event["ph"] == "X":
            rank = event["pid"]
            steps[rank, counts[rank]] = event["args"]["part"], event["dur"] / 1e3
            counts[rank] += 1
    return steps


def break_down(plan: gridloom.Plan, inputs: dict[str, np.ndarray], folder: Path, options) -> Breakdown:
    """Runs `plan` on `inputs` `options.runs` times with a trace, and as often without."""
    runs, threads = options.runs, options.threads
    choose = min if options.busy else statistics.median
    processor, launches = [], []
    with gridloom.load(plan, threads=threads) as session:
        for i in range(-2, runs):  # the second one makes a list of all steps
            begin = time.process_time()
            session.run(inputs)
            if i >= 0:
                processor.append(1e3 * (time.process_time() - begin))
                stats = session.stats
                launches.append(max(0, stats.wall_ms - stats.compute_ms - stats.exposed_ms))
    traced = []
    with gridloom.load(plan, threads=threads, trace=True) as session:
        for i in range(-1, runs):
            session.run(inputs)
            session.write_trace(folder / "trace.json")
            if i >= 0:
                traced.append(read_steps(folder / "trace.json"))
    if any(run.keys() != traced[0].keys() for run in traced):
        raise RuntimeError(f"the runs of {plan.path.stem} have different steps, whose times have no medians")
    parts, steps = dict.fromkeys(PARTS, 0.0), dict.fromkeys(PARTS, 0)
    for (rank, index), (part, _) in traced[0].items():
        parts[part] += choose(run[rank, index][1] for run in traced) / plan.ranks
        steps[part] += rank == 0
    return Breakdown(parts, choose(launches), statistics.median(processor), steps)


def measure(name: str, case: Case, mesh: str, folder: Path, options) -> Breakdown:
    path = case.make(folder)
    inputs = case.make_inputs(path)
    file = re.sub(r"\W", "-", f"{name}-{mesh}") + ".plan"
    plan = gridloom.compile(path, folder / file, mesh=mesh, tools=options.bin, dims=case.dims or cpu_vs_peers.open_dims(path, inputs), state=case.state)
    return break_down(plan, case.drop_states(inputs), folder, options)


def format_row(name: str, mesh: str, result: Breakdown) -> str:
    shares = "".join(f"{share:>{max(8, len(title) + 2)}.1f}" for title, share in zip([*PARTS.values(), "launch"], result.get_shares().values()))
    return f"{name:<16}{mesh:<9}{result.processor:>9.2f}{result.total:>9.2f}{shares}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=None, help="folder of the tools (default: found by gridloom)")
    parser.add_argument("--model", action="append", choices=list(CASES), help="repeatable; default all")
    parser.add_argument("--mesh", action="append", help="repeatable; default data=1, a single rank")
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--busy", action="store_true", help="take the shortest time of each step, not the median")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error("--runs: at least one run has a median")

    titles = "".join(f"{title:>{max(8, len(title) + 2)}}" for title in [*PARTS.values(), "launch"])
    chosen = "shortest" if options.busy else "medians"
    print(f"threads of a rank: {options.threads}, {chosen} of {options.runs} runs, cores: {len(os.sched_getaffinity(0))}; shares in percent of all parts")
    print(f"{'model':<16}{'mesh':<9}{'cpu ms':>9}{'sum ms':>9}{titles}", flush=True)
    for name in options.model or CASES:
        for mesh in options.mesh or ["data=1"]:
            with tempfile.TemporaryDirectory() as folder:
                print(format_row(name, mesh, measure(name, CASES[name], mesh, Path(folder), options)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
