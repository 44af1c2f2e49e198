"""All-reduce between processes of one machine, `gridloom bench all_reduce` against Open MPI's shared memory.

    .venv/bin/python bench/all_reduce_vs_mpi.py --ranks 4 --sizes 1K 1M 64M

Both compute f32 sums out of place and time the slowest rank. Runs alternate; the median of each side is printed, with the range. Open
MPI (`apt install openmpi-bin libopenmpi-dev`) is told to use its `vader` transport; with more ranks than cores it yields while it waits.
Exits with 1 if ours takes longer at some size."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from gridloom._tools import find_tool

ROOT = Path(__file__).resolve().parents[1]
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def to_bytes(text: str) -> int:
    return int(text[:-1]) * UNITS[text[-1].upper()] if text[-1].upper() in UNITS else int(text)


def run_ours(gridloom: Path, ranks: int, size: int, calls: int) -> float:
    """Microseconds per call."""
    command = [gridloom, "bench", "all_reduce", "-n", ranks, "-b", size, "-e", size, "--iters", calls, "--warmup", 5]
    output = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout
    (line,) = [line for line in output.splitlines() if not line.startswith("#")]
    return float(line.split()[4])


def run_mpi(program: Path, ranks: int, size: int, calls: int) -> float:
    command = ["mpirun", "--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "vader,self"]
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command += ["-n", ranks, program, calls, 5, size]
    output = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout
    return float(output.split()[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--sizes", nargs="+", default=["1K", "1M", "64M"], help="bytes, with K, M or G")
    parser.add_argument("--runs", type=int, default=5, help="of each, in turns")
    parser.add_argument("--bin", type=Path, default=None, help="folder of the tools (default: found by gridloom)")
    arguments = parser.parse_args()
    gridloom = find_tool("gridloom", arguments.bin)
    behind = False
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "mpi_all_reduce"
        subprocess.run(["mpicc", "-O2", "-o", program, ROOT / "bench/mpi_all_reduce.c"], check=True)
        print(f"{arguments.ranks} ranks on {os.cpu_count()} cores; median us per call (fastest to slowest run)")
        print(f"{'size':>8} {'gridloom':>28} {'Open MPI':>28} {'ratio':>6}")
        for text in arguments.sizes:
            size = to_bytes(text)
            calls = max(10, min(1000, (256 << 20) // size))
            ours, theirs = [], []
            for _ in range(arguments.runs):
                ours.append(run_ours(gridloom, arguments.ranks, size, calls))
                theirs.append(run_mpi(program, arguments.ranks, size, calls))
            columns = [f"{statistics.median(t):.1f} ({min(t):.1f} to {max(t):.1f})" for t in (ours, theirs)]
            ratio = statistics.median(ours) / statistics.median(theirs)
            behind |= ratio > 1
            print(f"{text:>8} {columns[0]:>28} {columns[1]:>28} {ratio:6.2f}", flush=True)
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
