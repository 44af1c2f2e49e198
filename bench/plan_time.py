"""What `gridloom plan --plan-time S` finds: simulated milliseconds of a step by seconds of planning, as a Markdown table.

    .venv/bin/python bench/plan_time.py [-o table.md] [--seconds 0.5,1,2] [--models llama-8b-64,resnet-16]

Times depend on the machine and on what else it does; what is found without a limit does not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from gridloom import zoo  # noqa: E402

SECONDS = (0.5, 1, 2, 5, 10, 30, 60)


@dataclass(frozen=True)
class Case:
    model: str
    size: dict
    cluster: str
    dims: dict


H100 = "HGX-H100"
LLAMA_8B = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "intermediate": 14336, "positions": 8192}
LLAMA_70B = {"layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "intermediate": 28672, "positions": 8192, "head": "logits"}
GPT3 = {"layers": 96, "hidden": 12288, "heads": 96, "positions": 2048}
TEXT = {"sequence": 2048}
CASES = {
    "gpt2-small-8": Case("gpt2", {}, H100, {"batch": 16, "sequence": 512}),
    "llama-8b-64": Case("llama", LLAMA_8B, f"{H100}x8", {"batch": 8} | TEXT),
    "llama-70b-1024": Case("llama", LLAMA_70B, f"{H100}x128", {"batch": 64} | TEXT),
    "gpt3-175b-1024": Case("gpt2", GPT3, f"{H100}x128", {"batch": 64} | TEXT),
    "unet-8": Case("unet", {}, H100, {"batch": 1}),
}


def plan(gridloom: Path, model: Path, case: Case, seconds: float | None) -> tuple[dict, float]:
    """The plan's results, and the seconds of the whole command."""
    command = [gridloom, "plan", model, "--cluster", case.cluster, "--target", "cuda:sm_90", "--precision", "bf16", "--json"]
    for name, size in case.dims.items():
        command += ["--dim", f"{name}={size}"]
    if seconds is not None:
        command += ["--plan-time", f"{seconds:g}"]
    begin = time.monotonic()
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stderr}")
    return json.loads(result.stdout), time.monotonic() - begin


def describe(found: dict, best: float) -> str:
    step = sum(program["step_ms"] for program in found["programs"])
    left, ended = found["candidates_left"], "ended a search" in found.get("stopped", "")
    notes = [f"+{100 * (step / best - 1):.1f} %"] * (step > best * 1.0005) + [f"{left} left"] * (left > 0) + ["search ended"] * ended
    return f"{step:.4g}" + (f" ({', '.join(notes)})" if notes else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="file for the table; default: standard output")
    parser.add_argument("--seconds", default=",".join(map(str, SECONDS)))
    parser.add_argument("--models", default=",".join(CASES))
    arguments = parser.parse_args()
    seconds = [float(each) for each in arguments.seconds.split(",")]
    tools = Path(os.environ.get("GRIDLOOM_BIN", ROOT / "build" / "dev" / "bin"))
    header = ["step in ms", "candidates", *(f"{each:g} s" for each in seconds), "no limit", "takes"]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models.split(","):
            case = CASES[name]
            model = zoo.MODELS[case.model].write(Path(folder) / f"{name}.onnx", shapes_only=True, **case.size)
            whole, taken = plan(tools / "gridloom", model, case, None)
            best = sum(program["step_ms"] for program in whole["programs"])
            cells = [describe(plan(tools / "gridloom", model, case, each)[0], best) for each in seconds]
            count = len(whole.get("candidates", [None]))
            lines.append("| " + " | ".join([name, str(count), *cells, f"{best:.4g}", f"{taken:.1f} s"]) + " |")
            print(lines[-1], file=sys.stderr, flush=True)
    text = "\n".join(lines) + "\n"
    if arguments.output:
        arguments.output.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
