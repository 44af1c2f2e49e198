"""How long each step of a plan takes on the device, and what it computes and moves: a trace beside the plan."""

from __future__ import annotations

import json
import math
import re
import statistics
import tempfile
from pathlib import Path

from .programs import Gridloom


def made_up_inputs(plan: Path, dims: dict[str, int]) -> list[str]:
    """Options that give a specialisation of `plan` made-up inputs: floats at random, integers 1."""
    manifest = json.loads((plan / "manifest.json").read_text())
    for specialisation in manifest["entries"][0]["specialisations"]:
        if all(specialisation["dims"].get(name) == size for name, size in dims.items()):
            kinds = {True: "randn", False: "ones"}
            inputs = [f"{i['name']}={kinds[i['type'] in ('f32', 'f16', 'bf16', 'f64')]}" for i in specialisation["inputs"]]
            return [word for text in inputs for word in ("--input", text)]
    raise ValueError(f"{plan} has no specialisation of {dims}")


def measure(gridloom: Gridloom, plan: Path, dims: dict[str, int], repeat: int = 5) -> list[dict]:
    """The compute steps of one run in order: name, node, ms (of one run after warm-ups), flops, bytes (None: unknown)."""
    options = ["--dim", ",".join(f"{n}={s}" for n, s in dims.items())] if dims else []
    with tempfile.TemporaryDirectory(dir=gridloom.work) as folder:
        trace = Path(folder, "trace.json")
        gridloom.call("run", plan, *made_up_inputs(plan, dims), *options, "--repeat", repeat, "--trace", trace)
        events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X" and e["cat"] == "compute"]
    events.sort(key=lambda event: event["ts"])
    kernels = {k["symbol"]: k for k in gridloom.json("inspect", plan, "kernels")["kernels"]}
    products = [
        row["step"]
        for row in gridloom.json("inspect", plan, "schedule")["schedule"]
        if row["step"].startswith("matmul ") and _fits(row["dims"], dims)
    ]
    called = [event for event in events if event["name"].startswith("matmul")]
    sizes = dict(zip(map(id, called), products)) if len(called) == len(products) else {}
    steps = []
    for event in events:
        kernel = kernels.get(event["name"], {})
        flops, moved = kernel.get("flops"), kernel.get("bytes")
        if step := re.match(r"matmul ([0-9x]+)", sizes.get(id(event), "")):
            flops, moved = 2 * math.prod(map(int, step[1].split("x"))), None
        steps.append({"name": event["name"], "node": event["args"]["onnx"], "ms": event["dur"] * 1e-3, "flops": flops, "bytes": moved})
        steps[-1]["sizes"] = sizes.get(id(event), "")
    return steps


def _fits(text: str, dims: dict[str, int]) -> bool:
    own = dict(part.split("=") for part in text.split(",") if part)
    return all(int(own.get(name, -1)) == size for name, size in dims.items())


def products_rate(steps: list[dict]) -> tuple[float, float]:
    """TFLOP/s over the matrix products, and their share of the time."""
    products = [s for s in steps if s["sizes"]]
    total = sum(s["ms"] for s in steps)
    spent = sum(s["ms"] for s in products)
    return (sum(s["flops"] for s in products) / spent * 1e-9, spent / total) if spent and total else (0.0, 0.0)


def kernels_rate(steps: list[dict], least_bytes: int = 1 << 20) -> tuple[float, int]:
    """Median GB/s over the generated kernels that move at least `least_bytes`, and how many these are."""
    rates = [s["bytes"] / s["ms"] * 1e-6 for s in steps if not s["sizes"] and (s["bytes"] or 0) >= least_bytes and s["ms"] > 0]
    return (statistics.median(rates), len(rates)) if rates else (0.0, 0)
