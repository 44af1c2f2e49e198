"""The plan that `auto` chooses against every mesh that a person would write, measured on CPU ranks of this machine.

    .venv/bin/python bench/auto_vs_meshes.py [--bin build/release/bin] [--cluster lab.json] [--model resnet]... [--ranks 2,4]
        [--rounds 7] [--iters 8] [--json auto_vs_meshes.json]

For each of seven models, `auto` is `gridloom compile` without a mesh, for N ranks. Against it stand all factorisations of N into data, model and pipe,
the latter with 1, 2 and 4 micro-batches, and with sequence parallelism where there is a model axis. Costs are those of --cluster, or of what
`gridloom devices --measure` finds first. Rounds visit all plans of a model in turn and time each for --iters runs; a plan's time is the
median of its rounds. `ratio` is auto's time over that of the fastest other mesh, as the median over rounds of both times in
the same round, with the range of the middle half of the rounds. auto counts as slower where this range lies above 1. Nothing is asserted."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from estimates import Gridloom, Refused, Subject, add_measuring_options
from hand_plans import HandPlan, divisors
from gridloom import zoo

TEXT = {"batch": 8, "sequence": 64}
SUBJECTS = [
    Subject("bert", "bert", {"layers": 4, "hidden": 256, "heads": 4, "intermediate": 1024, "vocabulary": 2000}, TEXT),
    Subject("gpt2", "gpt2", {"layers": 4, "hidden": 256, "heads": 8, "vocabulary": 2000, "positions": 128}, TEXT),
    Subject("llama", "llama", {"layers": 4, "hidden": 256, "heads": 8, "kv_heads": 4, "intermediate": 768, "vocabulary": 2000, "head": "logits"},
            TEXT),
    Subject("moe", "moe", {"layers": 2, "hidden": 256, "heads": 8, "kv_heads": 4, "intermediate": 512, "vocabulary": 2000, "experts": 4},
            {"batch": 8, "sequence": 32}),
    Subject("vit", "vit", {"layers": 4, "hidden": 256, "heads": 4, "intermediate": 1024}, {"batch": 4}),
    Subject("resnet", "resnet", {"blocks": (2, 2, 2), "width": 32, "image": 96, "classes": 100}, {"batch": 8}),
    Subject("unet", "unet", {"depth": 3, "width": 16, "image": 64}, {"batch": 8}),
]  # fmt: skip

AUTO = "auto"


@dataclasses.dataclass
class Plan:
    """A compiled plan with its median step of each round, in milliseconds."""

    name: str
    folder: Path
    chosen: str
    predicted: float
    medians: list[float] = dataclasses.field(default_factory=list)


def list_plans(ranks: int) -> list[HandPlan]:
    """What a person would write for so many ranks."""
    plans = []
    for data in divisors(ranks):
        for pipe in divisors(ranks // data):
            model = ranks // data // pipe
            variants = itertools.product((False, True) if model > 1 else (False,), (1, 2, 4) if pipe > 1 else (1,))
            plans += [HandPlan(data, pipe, model, sequence, parts) for sequence, parts in variants]
    return plans


def write(subject: Subject, path: Path) -> None:
    if subject.model == "bert":
        zoo.save(zoo.bert(zoo.BertConfig(**subject.options), zoo.Random(0)), path)
    else:
        zoo.MODELS[subject.model].write(path, **subject.options)


def compile_plans(gridloom: Gridloom, subject: Subject, ranks: int, folder: Path, cluster: Path) -> list[Plan]:
    """Auto's plan, then those of all meshes that compile."""
    model = folder / f"{subject.name}.onnx"
    if not model.exists():
        write(subject, model)
    dims = [word for name, size in subject.dims.items() for word in ("--dim", f"{name}={size}")]
    plans = []
    for number, (name, options) in enumerate([(AUTO, []), *((str(hand), hand.options()) for hand in list_plans(ranks))]):
        plan = folder / f"{subject.name}-{ranks}-{number}.plan"
        try:
            gridloom.call("compile", model, "-o", plan, *dims, "--cluster", cluster, *options, "-q")
        except Refused as reason:
            if name == AUTO:
                raise
            print(f"{subject.name}, {name}: left out: {reason}", file=sys.stderr)
            continue
        report = json.loads((plan / "report.json").read_text())
        plans.append(Plan(name, plan, f"{report['mesh']}: {report['strategy']}", report["estimates"][0]["step_ms"]))
    return plans


def measure(gridloom: Gridloom, plans: list[Plan], rounds: int, iterations: int) -> None:
    for _ in range(rounds):
        for plan in plans:
            plan.medians.append(gridloom.bench(plan.folder, iterations)["median_ms"])


def compare(plans: list[Plan]) -> dict:
    """Auto against the fastest of the other plans."""
    auto, *others = plans
    best = min(others, key=lambda plan: statistics.median(plan.medians))
    ratios = np.array(auto.medians) / np.array(best.medians)
    low, middle, high = np.percentile(ratios, [25, 50, 75])
    return {
        "auto": auto.chosen,
        "auto_ms": statistics.median(auto.medians),
        "best": best.name,
        "best_ms": statistics.median(best.medians),
        "ratio": middle,
        "low": low,
        "high": high,
        "slower": bool(low > 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_measuring_options(parser, SUBJECTS, ranks="2,4", rounds=7, iters=8)
    options = parser.parse_args()

    gridloom, cells = Gridloom(options.bin), []
    print(f"{'model':<8}{'ranks':>5}{'auto ms':>9}{'best ms':>9}{'ratio':>7}  {'middle half':<13}{'best mesh':<24}auto's choice")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for ranks in map(int, options.ranks.split(",")):
            cluster = options.cluster or gridloom.measure(folder / f"cluster{ranks}.json", ranks, options.quick)
            for subject in SUBJECTS:
                if options.model and subject.name not in options.model:
                    continue
                plans = compile_plans(gridloom, subject, ranks, folder, cluster)
                measure(gridloom, plans, options.rounds, options.iters)
                cell = {"model": subject.name, "ranks": ranks, **compare(plans),
                        "plans": [{"name": p.name, "chosen": p.chosen, "predicted_ms": p.predicted, "medians_ms": p.medians} for p in plans]}  # fmt: skip
                middle_half = f"{cell['low']:.2f}-{cell['high']:.2f}"
                print(f"{subject.name:<8}{ranks:>5}{cell['auto_ms']:>9.2f}{cell['best_ms']:>9.2f}{cell['ratio']:>7.3f}  {middle_half:<13}"
                      f"{cell['best']:<24}{cell['auto']}{'  SLOWER' if cell['slower'] else ''}", flush=True)  # fmt: skip
                cells.append(cell)
    slower = [f"{cell['model']} on {cell['ranks']}" for cell in cells if cell["slower"]]
    print(f"\n{len(cells)} cells, {len(slower)} slower{': ' + ', '.join(slower) if slower else ''}")
    if options.json:
        options.json.write_text(json.dumps(cells, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
