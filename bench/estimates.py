"""How good the compiler's estimates are: predicted step times of plans beside measured ones.

    .venv/bin/python bench/estimates.py [--bin build/release/bin] [--cluster lab.json] [--model resnet]... [--ranks 1,2,4]
        [--rounds 5] [--iters 10] [--quick] [--json estimates.json]

Five architectures are compiled in several ways for 1 and 2 CPU ranks, and separately for 4. The step times that report.json predicts are
compared with those that `gridloom bench` measures. Costs are those of `--cluster`, or of `gridloom devices --measure`, which runs first:
once for up to 2 ranks and once for 4. It measures none of the models. Each round visits all plans of a model, so that a slow moment of
the machine affects all; a plan's time is the median of its rounds' medians. Nothing is asserted."""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "python")]

import numpy as np  # noqa: E402

from gridloom import zoo  # noqa: E402
from gridloom._tools import find_tool  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model of the zoo at a size whose steps take milliseconds."""

    name: str
    model: str
    options: dict
    dims: dict[str, int]


SUBJECTS = [
    Subject("transformer", "gpt2", {"layers": 4, "hidden": 256, "heads": 8, "vocabulary": 2000, "positions": 128},
            {"batch": 8, "sequence": 64}),
    Subject("resnet", "resnet", {"blocks": (2, 2, 2), "width": 32, "image": 96, "classes": 100}, {"batch": 8}),
    Subject("moe", "moe", {"layers": 2, "hidden": 256, "heads": 8, "kv_heads": 4, "intermediate": 512, "vocabulary": 2000, "experts": 4},
            {"batch": 8, "sequence": 32}),
    Subject("lstm", "lstm", {"layers": 2, "hidden": 256, "vocabulary": 2000}, {"batch": 32, "sequence": 24}),
    Subject("unet", "unet", {"depth": 3, "width": 16, "image": 64}, {"batch": 8}),
]  # fmt: skip

# For each number of ranks, ways to split a model over them, as options of compile.
PLANS = {
    1: [[]],
    2: [
        ["--mesh", "data=2"],
        ["--mesh", "model=2"],
        ["--mesh", "model=2", "--chunk-matmul", "2"],
        ["--mesh", "pipe=2", "--microbatches", "1"],
        ["--mesh", "pipe=2", "--microbatches", "2"],
        ["--mesh", "pipe=2", "--microbatches", "4"],
        ["--mesh", "any=2", "--strategy", "random:1"],
        ["--mesh", "any=2", "--strategy", "random:2"],
    ],
    4: [
        ["--mesh", "data=4"],
        ["--mesh", "model=4"],
        ["--mesh", "data=2,model=2"],
        ["--mesh", "data=2,pipe=2", "--microbatches", "2"],
        ["--mesh", "model=2,pipe=2", "--microbatches", "2"],
        ["--mesh", "pipe=4", "--microbatches", "4"],
    ],
}


@dataclasses.dataclass
class Row:
    """A plan, with its times in milliseconds."""

    model: str
    ranks: int
    options: str
    predicted: float
    folder: Path
    medians: list[float] = dataclasses.field(default_factory=list)  # one per round
    fastest: float = float("inf")
    measured: float = 0.0  # the one of these that is compared

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


class Refused(Exception):
    """Why a command failed, in one line."""


class Gridloom:
    def __init__(self, folder: Path | None):
        self.tool = find_tool("gridloom", folder)

    def call(self, *arguments) -> str:
        result = subprocess.run([str(self.tool), *map(str, arguments)], capture_output=True, text=True)
        if result.returncode:
            lines = result.stderr.strip().splitlines()
            raise Refused(lines[-1].removeprefix("error: ") if lines else f"exit code {result.returncode}")
        return result.stdout

    def measure(self, path: Path, ranks: int, quick: bool) -> Path:
        self.call("devices", "--measure", "-o", path, "--ranks", ranks, *(["--quick"] if quick else []))
        return path

    def predict(self, model: Path, plan: Path, subject: Subject, options: list[str], cluster: Path) -> float:
        dims = [word for name, size in subject.dims.items() for word in ("--dim", f"{name}={size}")]
        mesh = options if "--mesh" in options else [*options, "--mesh", "data=1"]  # keeps the planner from choosing a mesh
        self.call("compile", model, "-o", plan, *dims, *mesh, "--cluster", cluster, "-q")
        return json.loads((plan / "report.json").read_text())["estimates"][0]["step_ms"]

    def bench(self, plan: Path, iterations: int) -> dict:
        return json.loads(self.call("bench", plan, "--iters", iterations, "--warmup", 2, "--json"))


def compile_all(gridloom: Gridloom, subject: Subject, folder: Path, clusters: dict[int, Path]) -> list[Row]:
    model = zoo.MODELS[subject.model].write(folder / f"{subject.name}.onnx", **subject.options)
    rows = []
    for count in clusters:
        for number, options in enumerate(PLANS[count]):
            plan, text = folder / f"{subject.name}-{count}-{number}.plan", " ".join(options).replace("--", "") or "one rank"
            try:
                predicted = gridloom.predict(model, plan, subject, options, clusters[count])
                rows.append(Row(subject.name, count, text, predicted, plan))
            except Refused as reason:
                print(f"{subject.name}, {text}: left out: {reason}", file=sys.stderr)
    return rows


def correlation(rows: list[Row]) -> float | None:
    """Spearman's rank correlation of predicted and measured times; None for fewer than three plans or without variation."""
    if len(rows) < 3:
        return None

    def places(values: list[float]) -> np.ndarray:  # equal values share the mean of their places
        array = np.array(values)
        return np.array([(array < value).sum() + ((array == value).sum() - 1) / 2 for value in array])

    predicted, measured = places([r.predicted for r in rows]), places([r.measured for r in rows])
    if predicted.std() == 0 or measured.std() == 0:
        return None
    return float(np.corrcoef(predicted, measured)[0, 1])


def summarise(rows: list[Row]) -> dict:
    """Medians over all plans, and per model."""
    by_model = {name: [row for row in rows if row.model == name] for name in dict.fromkeys(row.model for row in rows)}
    correlations = {name: correlation(of) for name, of in by_model.items()}
    known = [c for c in correlations.values() if c is not None]
    return {
        "plans": len(rows),
        "median_error": statistics.median(abs(row.error) for row in rows),
        "median_correlation": statistics.median(known) if known else None,
        "models": {
            name: {"median_error": statistics.median(abs(row.error) for row in of), "correlation": correlations[name]}
            for name, of in by_model.items()
        },
    }


def show(title: str, summary: dict) -> None:
    def number(value: float | None) -> str:
        return "  -" if value is None else f"{value:.2f}"

    print(f"\n{title}: {summary['plans']} plans, median error {summary['median_error']:.0%}, "
          f"median rank correlation within a model {number(summary['median_correlation'])}")  # fmt: skip
    for name, of in summary["models"].items():
        print(f"  {name:<14}median error {of['median_error']:4.0%}   rank correlation {number(of['correlation'])}")


def measure_all(gridloom: Gridloom, rows: list[Row], options) -> list[Row]:
    """Times all plans in turn. Plans that do not run are left out."""
    for _ in range(options.rounds):
        for row in list(rows):
            try:
                times = gridloom.bench(row.folder, options.iters)
                row.medians.append(times["median_ms"])
                row.fastest = min(row.fastest, times["fastest_ms"])
                row.measured = row.fastest if options.fastest else statistics.median(row.medians)
            except Refused as reason:
                print(f"{row.model}, {row.options}: left out: {reason}", file=sys.stderr)
                rows.remove(row)
    return rows


def add_measuring_options(parser: argparse.ArgumentParser, subjects: list[Subject], ranks: str, rounds: int, iters: int) -> None:
    """Options of programs that time plans of `subjects` on this machine, with these defaults."""
    parser.add_argument("--bin", type=Path, default=None, help="folder of the tools (default: found by gridloom)")
    parser.add_argument("--cluster", type=Path, default=None, help="a cluster file for all plans (default: this machine is measured)")
    parser.add_argument("--model", action="append", choices=[s.name for s in subjects], help="repeatable; default all")
    parser.add_argument("--ranks", default=ranks, help=f"numbers of ranks (default {ranks})")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--iters", type=int, default=iters, help="timed runs of a plan in each round")
    parser.add_argument("--quick", action="store_true", help="measure the machine in ten seconds instead of a minute")
    parser.add_argument("--json", type=Path, default=None, help="file for all figures")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_measuring_options(parser, SUBJECTS, ranks="1,2,4", rounds=5, iters=10)
    parser.add_argument("--fastest", action="store_true", help="compare with the fastest run, on a machine that is busy otherwise")
    options = parser.parse_args()
    ranks = [int(text) for text in options.ranks.split(",")]
    if unknown := set(ranks) - PLANS.keys():
        parser.error(f"--ranks {min(unknown)} is none of {', '.join(map(str, PLANS))}")

    gridloom, rows = Gridloom(options.bin), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made: dict[int, Path] = {}
        for most in {max(count, 2) for count in ranks} if options.cluster is None else ():
            made[most] = gridloom.measure(folder / f"cluster{most}.json", most, options.quick)
        clusters = {count: options.cluster or made[max(count, 2)] for count in ranks}
        print(f"{'model':<13}{'ranks':>5}  {'plan':<38}{'predicted ms':>13}{'measured ms':>13}{'error':>8}")
        for subject in SUBJECTS:
            if options.model and subject.name not in options.model:
                continue
            compiled = compile_all(gridloom, subject, folder, clusters)
            for row in measure_all(gridloom, compiled, options):
                print(f"{row.model:<13}{row.ranks:>5}  {row.options:<38}{row.predicted:>13.2f}{row.measured:>13.2f}{row.error:>+8.0%}", flush=True)
                rows.append(row)
        described = {count: json.loads(path.read_text()) for count, path in clusters.items()}

    groups = {"1 and 2 ranks": [r for r in rows if r.ranks <= 2], "4 ranks": [r for r in rows if r.ranks > 2]}
    summaries = {title: summarise(of) for title, of in groups.items() if of}
    for title, summary in summaries.items():
        show(title, summary)
    if options.json:
        plans = [
            {"model": r.model, "ranks": r.ranks, "plan": r.options, "predicted_ms": r.predicted, "measured_ms": r.measured,
             "error": r.error, "medians_ms": r.medians, "fastest_ms": r.fastest}
            for r in rows
        ]  # fmt: skip
        options.json.write_text(json.dumps({"plans": plans, "summaries": summaries, "clusters": described}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
