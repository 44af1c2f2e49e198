"""gridloom-solve on a folder of IOPDDL instances (ASPLOS 2025 contest): cost, score and bound of each.

    .venv/bin/python bench/solver.py FOLDER [--bin build/release/bin] [--threads 2] [--seconds S] [--only A,B]

FOLDER contains asplos-2025-iopddl-X.json.gz and contest_results.csv (the final cost of each team, by instance). Without --seconds each
instance gets the contest's time. The score of an instance is the best team's cost over ours, 0 without an answer; above 1, ours is
better than all teams'. `cpu` is the solver's processor time: less than seconds times threads on a busy machine. `load` is the machine's
load average over one minute at the start."""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

# Seconds that the contest gave on eight cores.
CONTEST_SECONDS = {"A": 60, "B": 60, "G": 120, "K": 180, "N": 180, "P": 240, "T": 240, "V": 300}


def best_costs(path: Path) -> dict[str, int]:
    """The least cost of any team, by instance."""
    with path.open() as file:
        teams = list(csv.DictReader(file))
    names = [name for name in teams[0] if name != "TEAM #"]
    return {name: min(int(team[name]) for team in teams if team[name]) for name in names}


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def solve(program: Path, problem: Path, seconds: float, threads: int) -> tuple[dict | None, float, float, str]:
    """The answer, its seconds and processor seconds, and the last line on stderr."""
    begin, used = time.perf_counter(), processor_seconds()
    command = [program, problem, "--time", str(seconds), "--threads", str(threads)]
    result = subprocess.run(command, capture_output=True, text=True)
    lines = result.stderr.splitlines() or [""]
    answer = json.loads(result.stdout) if result.returncode == 0 else None
    return answer, time.perf_counter() - begin, processor_seconds() - used, lines[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bin", type=Path, default=Path("build/release/bin"), help="folder of gridloom-solve")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=None, help="for each instance; default: the contest's")
    parser.add_argument("--only", default="", help="instances, e.g. A,B")
    options = parser.parse_args()

    best = best_costs(options.folder / "contest_results.csv")
    wanted = [name for name in options.only.split(",") if name] or sorted(CONTEST_SECONDS)
    print(f"{'':2}{'cost':>16}{'best team':>16}{'score':>9}{'bound':>16}{'gap':>9}{'work':>8}{'seconds':>9}{'cpu':>7}{'load':>6}")
    total = 0.0
    for name in wanted:
        problem = options.folder / f"asplos-2025-iopddl-{name}.json.gz"
        load = os.getloadavg()[0]
        limit = options.seconds or CONTEST_SECONDS[name]
        answer, seconds, used, line = solve(options.bin / "gridloom-solve", problem, limit, options.threads)
        if answer is None:
            print(f"{name:2}{line}")
            continue
        cost, bound = answer["cost"], answer["lower_bound"]
        score, gap = best[name] / cost, 1 - bound / cost
        total += score
        print(
            f"{name:2}{cost:16}{best[name]:16}{score:9.4f}{bound:16}{gap:9.3%}{answer['work']:8}"
            f"{seconds:9.1f}{used:7.1f}{load:6.1f}",
            flush=True,
        )
    print(f"score {total:.4f} of {len(wanted)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
