"""Runs many cases in worker processes, which are replaced when they crash."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import worker_process

from . import cases, shrink
from .cases import Result

SECONDS = 180  # for one case, on a busy machine


class Worker:
    def __init__(self, only: str | None):
        self.only = only
        self.process: subprocess.Popen | None = None

    def start(self) -> subprocess.Popen:
        command = [sys.executable, str(Path(__file__).parent), "0", "--worker"] + (
            ["--only", self.only] if self.only else []
        )
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, seed: int) -> Result:
        self.process = self.process or self.start()
        line, error = worker_process.ask(self.process, str(seed), SECONDS)
        if line:
            return Result(**json.loads(line))
        self.process = None
        return Result(seed, error=error)

    def stop(self) -> None:
        if self.process:
            self.process.stdin.close()
            self.process.wait()


def serve(only: list[str] | None) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries' output is no answer
    folder = cases.scratch()
    for line in sys.stdin:
        try:
            result = cases.run_seed(int(line), folder, only)
        except Exception as error:  # an error of the generator
            result = Result(int(line), error=f"generator: {type(error).__name__}: {error}")
        print(json.dumps(dataclasses.asdict(result)), file=answers, flush=True)


def run(
    seeds: Iterable[int],
    workers: int = 1,
    only: str | None = None,
    tell: Callable[[Result], None] | None = None,
    has_time: Callable[[], bool] = lambda: True,
) -> list[Result]:
    """The results in the order of `seeds`; no case begins once the time is up. `tell` is called with each result at once."""
    waiting, lock = iter(list(seeds)), threading.Lock()
    results: list[Result] = []

    def work() -> None:
        worker = Worker(only)
        try:
            while True:
                with lock:
                    seed = next(waiting, None) if has_time() else None
                if seed is None:
                    return
                result = worker.ask(seed)
                with lock:
                    results.append(result)
                    if tell:
                        tell(result)
        finally:
            worker.stop()

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(results, key=lambda r: r.seed)


def reproducer(seed: int, only: str | None = None) -> str:
    return (
        f".venv/bin/python test/onnx/random_graphs {seed}" + (f" --only {only}" if only else "") + " --shrink case"
    )


def summarise(results: list[Result]) -> str:
    count = len(results)
    if not count:
        return "no cases"
    seeds = f"{results[0].seed}:{results[-1].seed + 1}"
    failed = [r for r in results if r.error]
    refused = collections.Counter(r.refused for r in results if r.refused)
    skipped = collections.Counter()
    for result in results:
        skipped.update(result.not_compared)
    ran = [r for r in results if not r.error and not r.refused]
    operators = {name for r in ran for name in r.operators}
    lines = [
        f"seeds {seeds}: {len(ran)} of {count} cases agree with ONNX Runtime, {sum(refused.values())} refused, {len(failed)} failed",
        f"{sum(r.outputs for r in ran)} outputs of {sum(r.elements for r in ran)} elements by {len(operators)} operators; "
        f"{sum(r.split > 0 for r in ran)} models split, {sum(r.stages > 1 for r in ran)} in stages; "
        f"{sum(r.by_reference for r in ran)} nodes by the reference evaluator",
    ]
    lines += [f"refused, {n}: {reason}" for reason, n in refused.most_common()]
    lines += [f"elements, {n}: {reason}" for reason, n in skipped.most_common()]
    return "\n".join(lines)


def main(options) -> int:
    only = options.only.split(",") if options.only else None
    if options.worker:
        serve(only)
        return 0
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    if options.skips:
        skipped = collections.Counter()
        for seed in seeds:
            skipped.update(cases.make(seed, only).skipped)
        print("\n".join(f"{n:6d} {reason}" for reason, n in skipped.most_common()))
        return 0
    begin = time.monotonic()

    def tell(result: Result) -> None:
        if result.error:
            print(
                f"FAILED {result.seed} [{result.setup}] {result.error}\n    {reproducer(result.seed, options.only)}",
                flush=True,
            )
            if options.shrink:
                print(shrink.shrink_seed(result.seed, only, Path(options.shrink)), flush=True)

    results = run(seeds, options.workers, options.only, tell)
    print(summarise(results))
    seconds = time.monotonic() - begin
    print(f"{seconds:.0f} s, {len(results) / seconds:.1f} cases a second")
    if options.json:
        Path(options.json).write_text(json.dumps([dataclasses.asdict(r) for r in results]))
    return 1 if any(r.error for r in results) else 0
