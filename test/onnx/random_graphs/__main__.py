"""Runs random ONNX models, split over random meshes, against ONNX Runtime.

    .venv/bin/python test/onnx/random_graphs 0:5000             many
    .venv/bin/python test/onnx/random_graphs 17 --shrink DIR    one; if it fails, a smaller model that does, and its inputs

A case depends on its seed and on the table of recipes only. Cases run in a worker process, so that a crash is the failure of
one case."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test" / "onnx")]

from random_graphs import runner  # noqa: E402

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", help="SEED or FIRST:LAST, the last one not included")
    parser.add_argument(
        "--only", help="operators, joined by commas; com.microsoft.Gelu and the like for ONNX Runtime's own"
    )
    parser.add_argument("--shrink", metavar="DIR", help="make failing cases smaller and keep them in this folder")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", help="file for all results")
    parser.add_argument(
        "--skips", action="store_true", help="only grow the models, and print which recipes did not fit"
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    sys.exit(runner.main(parser.parse_args()))
