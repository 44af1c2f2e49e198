"""The time of each step of a plan on the device, with its flops and bytes: a trace beside the plan."""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

from .models import dims_text
from .programs import Gridloom


def made_up_inputs(plan: Path, dims: dict[str, int]) -> list[str]:
    """Options with made-up inputs for a specialisation of `plan`: random floats, integers 1."""
    manifest = json.loads((plan / "manifest.json").read_text())
    for specialisation in manifest["entries"][0]["specialisations"]:
        if all(specialisation["dims"].get(name) == size for name, size in dims.items()):
            kinds = {True: "randn", False: "ones"}
            inputs = [
                f"{i['name']}={kinds[i['type'] in ('f32', 'f16', 'bf16', 'f64')]}" for i in specialisation["inputs"]
            ]
            return [word for text in inputs for word in ("--input", text)]
    raise ValueError(f"{plan} has no specialisation of {dims}")


def measure(gridloom: Gridloom, plan: Path, dims: dict[str, int], repeat: int = 5) -> list[dict]:
    """The compute steps of one run in order, launched one by one after warm-ups: name, node, ms, flops, bytes, and whether it calls a
    library. Flops and bytes are None if the plan does not have them."""
    options = ["--dim", dims_text(dims)] if dims else []
    with tempfile.TemporaryDirectory(dir=gridloom.work) as folder:
        trace = Path(folder, "trace.json")
        options += ["--no-graphs", "--repeat", repeat, "--trace", trace]
        gridloom.call("run", plan, *made_up_inputs(plan, dims), *options)
        events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X" and e["cat"] == "compute"]
    events.sort(key=lambda event: event["ts"])
    tables = gridloom.json("inspect", plan, "kernels")
    kernels = {row["symbol"]: row for row in tables["kernels"]}
    calls = {row["call"]: row for row in tables["library_calls"]}
    steps = []
    for event in events:
        known = kernels.get(event["name"]) or calls.get(event["name"]) or {}
        step = {"name": event["name"], "node": event["args"]["onnx"], "ms": event["dur"] * 1e-3}
        step.update(flops=known.get("flops"), bytes=known.get("bytes"), library=event["name"] in calls)
        steps.append(step)
    return steps


def library_rate(steps: list[dict]) -> tuple[float, float]:
    """TFLOP/s over the library calls (matrix products, convolutions, attention), and their share of the time."""
    calls = [step for step in steps if step["library"]]
    total, spent = sum(step["ms"] for step in steps), sum(step["ms"] for step in calls)
    return (sum(step["flops"] for step in calls) / spent * 1e-9, spent / total) if spent and total else (0.0, 0.0)


def kernels_rate(steps: list[dict], least_bytes: int = 1 << 20) -> tuple[float, int]:
    """Median GB/s over the generated kernels that move at least `least_bytes`, and the number of these kernels."""
    moving = [step for step in steps if not step["library"] and (step["bytes"] or 0) >= least_bytes and step["ms"] > 0]
    return (
        (statistics.median(step["bytes"] / step["ms"] * 1e-6 for step in moving), len(moving)) if moving else (0.0, 0)
    )
