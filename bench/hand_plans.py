"""Whether the search without seeds finds plans that are no slower than hand-written ones, in the simulator.

    .venv/bin/python bench/hand_plans.py [--bin build/release/bin] [--cells 60] [--seed 12] [--family gpt2]... [--devices 16]...
        [--preset HGX-H100]... [--all-hand | --two-best] [--named] [--memo hand_plans.jsonl] [--forget search] [--output hand_plans.md]

A cell is a family of models, a number of devices and a preset of hosts. Ours is `gridloom plan --no-seeds` on these devices. It competes
with the hand plans: every factorisation into data, pipe and model, with Megatron's columns and rows over model, with and without its
sequence parallelism, and every number of micro-batches that divides a device's part of the batch. The axis data is outermost, since it
sends nothing, and model innermost, on the fastest links. `gridloom plan` simulates all of them; those that do not fit into memory or
cannot be compiled do not count. The seed draws the cells that get all hand plans; the others get the two meshes with the smallest sums,
with every number of micro-batches. Every run is kept in the memo, so an interrupted benchmark continues. `--named` runs cases in which
the search should win by 5 %, and prints the results."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "python")]

from gridloom import zoo  # noqa: E402
from gridloom._tools import find_tool  # noqa: E402

DEVICES = (4, 8, 16, 64, 256)

# For each preset: the kind of its devices, as --devices takes it, and the options to compile for it.
PRESETS = {
    "cpu": ("cpu", ["--target", "cpu"]),
    "p3.16xlarge": ("V100-16GB", ["--target", "cuda:sm_80", "--precision", "f16"]),
    "DGX-A100": ("A100-80GB", ["--target", "cuda:sm_80", "--precision", "bf16"]),
    "HGX-H100": ("H100-80GB", ["--target", "cuda:sm_90", "--precision", "bf16"]),
    "HGX-H200": ("H200-141GB", ["--target", "cuda:sm_90", "--precision", "bf16"]),
    "HGX-B200": ("B200-180GB", ["--target", "cuda:sm_100", "--precision", "bf16"]),
    "GB200-NVL72": ("GB200-186GB", ["--target", "cuda:sm_100", "--precision", "bf16"]),
}

SAME = 1e-6  # relative: times that differ only by rounding


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model of one size, with its open dimensions bound."""

    model: str
    options: tuple[tuple[str, object], ...]
    dims: tuple[tuple[str, int], ...]

    @property
    def batch(self) -> int:
        return dict(self.dims)["batch"]

    @property
    def layers(self) -> int:
        """The largest number of stages to try."""
        options = dict(self.options)
        return options.get("layers") or sum(options.get("blocks", ())) or 2 * options.get("depth", 0) + 1

    @property
    def cuts_batch(self) -> bool:
        return self.model != "lstm"  # dimension 0 is not its batch

    def write(self, folder: Path) -> Path:
        """Writes the model without weights, only their shapes."""
        words = [f"{k}{'-'.join(map(str, v)) if isinstance(v, tuple) else v}" for k, v in self.options]
        path = folder / f"{'_'.join([self.model, *words])}.onnx"
        if not path.exists():
            write_shapes(self.model, dict(self.options), path)
        return path


def write_shapes(model: str, options: dict, path: Path) -> None:
    whole = path.with_suffix(f".{os.getpid()}.part")  # two benchmarks may share a folder
    if model == "bert":
        store = zoo.ExternalFile(path)
        zoo.save(zoo.bert(zoo.BertConfig(**options), zoo.Zeros(), store=store), whole)
        whole.rename(path)
    else:
        zoo.MODELS[model].write(path, shapes_only=True, **options)


def make_subject(model: str, options: dict, **dims: int) -> Subject:
    return Subject(model, tuple(options.items()), tuple(dims.items()))


def scale(family: str, devices: int) -> Subject:
    """A model of the family for `devices` devices, with a batch smaller than the devices, so that splitting the batch does not suffice."""
    step = DEVICES.index(devices)
    batch, layers, hidden = (2, 4, 8, 16, 16)[step], (4, 4, 8, 8, 16)[step], (1024, 1024, 2048, 4096, 8192)[step]
    text = {"layers": layers, "hidden": hidden, "heads": hidden // 64}
    gated = {"layers": layers, "hidden": hidden, "heads": hidden // 128, "kv_heads": max(hidden // 512, 4), "vocabulary": 32000}
    width, image = (64, 64, 128, 256, 512)[step], (256, 256, 512, 512, 1024)[step]
    if family == "bert":
        return make_subject("bert", text | {"intermediate": 4 * hidden}, batch=batch, sequence=512)
    if family == "gpt2":
        return make_subject("gpt2", text, batch=batch, sequence=512)
    if family == "llama":
        return make_subject("llama", gated | {"intermediate": 7 * hidden // 2, "head": "logits"}, batch=batch, sequence=512)
    if family == "moe":
        experts = {"intermediate": 2 * hidden, "experts": 8, "dispatch": "capacity"}
        return make_subject("moe", gated | experts, batch=batch, sequence=512)
    if family == "vit":
        return make_subject("vit", text | {"intermediate": 4 * hidden}, batch=batch)
    if family == "resnet":
        return make_subject("resnet", {"width": width, "blocks": (3, 4, 6, 3)}, batch=batch)
    if family == "unet":
        return make_subject("unet", {"width": 64, "image": image, "depth": 4}, batch=max(batch // 2, 1))
    assert family == "lstm", family
    return make_subject("lstm", {"layers": 2, "hidden": hidden, "vocabulary": 10000}, sequence=32, batch=2 * batch)


FAMILIES = ("bert", "gpt2", "llama", "moe", "vit", "resnet", "unet", "lstm")


@dataclasses.dataclass(frozen=True)
class Cell:
    """A model and the devices to plan it for; `more` are options of both sides."""

    name: str
    subject: Subject
    devices: int
    cluster: tuple[str, ...]
    more: tuple[str, ...] = ()
    expected: str = ""  # in a named case: the advantage of the search over hand plans


def make_cell(family: str, devices: int, preset: str) -> Cell:
    kind, target = PRESETS[preset]
    return Cell(f"{family} {devices} {preset}", scale(family, devices), devices, ("--devices", f"{devices}x{kind}"), tuple(target))


def divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


@dataclasses.dataclass(frozen=True)
class HandPlan:
    data: int
    pipe: int
    model: int
    sequence: bool
    microbatches: int

    @property
    def mesh(self) -> str:
        sizes = {"data": self.data, "pipe": self.pipe, "model": self.model}
        return ",".join(f"{name}={size}" for name, size in sizes.items() if size > 1)

    def options(self) -> list[str]:
        strategy = ["--strategy", "dp+tp+pp" + ("+sp" if self.sequence else "")]
        return ["--mesh", self.mesh, *strategy, *(["--microbatches", str(self.microbatches)] if self.pipe > 1 else [])]

    def __str__(self) -> str:
        return self.mesh + (", sp" if self.sequence else "") + (f", m={self.microbatches}" if self.pipe > 1 else "")


def list_meshes(cell: Cell) -> Iterator[tuple[int, int, int]]:
    """Sizes of data, pipe and model that divide the batch evenly and have no more stages than layers."""
    for data in divisors(cell.devices):
        for pipe in divisors(cell.devices // data):
            if cell.subject.batch % data == 0 and pipe <= cell.subject.layers:
                yield data, pipe, cell.devices // data // pipe


def list_variants(cell: Cell, data: int, pipe: int, model: int) -> Iterator[HandPlan]:
    """A mesh with and without sequence parallelism, and with every number of micro-batches."""
    counts = divisors(cell.subject.batch // data) if pipe > 1 and cell.subject.cuts_batch else [1]
    has_sequence = "sequence" in dict(cell.subject.dims) and cell.subject.model != "lstm" or cell.subject.model == "vit"
    for sequence, count in itertools.product([False, True] if model > 1 and has_sequence else [False], counts):
        yield HandPlan(data, pipe, model, sequence, count)


@dataclasses.dataclass
class Result:
    """The result of one plan: the milliseconds of its step, or why there is none."""

    milliseconds: float | None
    strategy: str = ""
    refusal: str = ""
    seconds: float = 0  # of planning


class Planner:
    """Runs `gridloom plan` and remembers its results."""

    def __init__(self, tool: Path, folder: Path, memo: Path | None = None, jobs: int = 1, limit: float | None = None):
        self.tool, self.folder, self.memo, self.jobs, self.limit = tool, folder, memo, jobs, limit
        self.known: dict[str, dict] = {}
        if memo and memo.exists():
            for line in memo.read_text().splitlines():
                row = json.loads(line)
                self.known[row["run"]] = row["found"]

    def forget_searches(self) -> None:
        self.known = {run: found for run, found in self.known.items() if "--no-seeds" not in run}
        if self.memo:
            self.memo.write_text("".join(json.dumps({"run": run, "found": found}) + "\n" for run, found in self.known.items()))

    def plan(self, cell: Cell, options: list[str]) -> dict:
        """The programs' times and candidates of `plan --json`, or a `refusal`."""
        dims = [word for name, size in cell.subject.dims for word in ("--dim", f"{name}={size}")]
        arguments = [*dims, *cell.more, *options]
        run = " ".join([cell.subject.model, *(f"{k}={v}" for k, v in cell.subject.options), *arguments])
        if run in self.known:
            return self.known[run]
        model, start = cell.subject.write(self.folder), time.monotonic()
        command = [str(self.tool), "plan", str(model), *arguments, "--json", "--jobs", "1"]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=self.limit)
        except subprocess.TimeoutExpired:
            return {"refusal": f"not planned within {self.limit:.0f} s", "seconds": self.limit}  # not remembered
        if result.returncode not in (0, 1):
            sys.exit(f"{' '.join(command)}\nexited with {result.returncode}\n{result.stderr}")
        if result.returncode:
            found = {"refusal": (result.stderr.strip().splitlines() or ["no reason given"])[0].removeprefix("error: ")}
        else:
            said = json.loads(result.stdout)
            found = {"step_ms": sum(program["step_ms"] for program in said["programs"]), "strategy": said["strategy"]}
            found["candidates"] = [[row["strategy"], row["sum_ms"], row["simulated_ms"]] for row in said.get("candidates", [])]
        found["seconds"] = time.monotonic() - start
        self.known[run] = found
        if self.memo:
            with self.memo.open("a") as file:
                file.write(json.dumps({"run": run, "found": found}) + "\n")
        return found

    def simulate(self, cell: Cell, options: list[str]) -> Result:
        found = self.plan(cell, [*cell.cluster, *options])
        return Result(found.get("step_ms"), found.get("strategy", ""), found.get("refusal", ""), found["seconds"])

    def search(self, cell: Cell) -> Result:
        return self.simulate(cell, ["--no-seeds"])

    def simulate_all(self, cell: Cell, plans: list[HandPlan]) -> list[tuple[HandPlan, Result]]:
        with ThreadPoolExecutor(self.jobs) as pool:
            return list(zip(plans, pool.map(lambda plan: self.simulate(cell, plan.options()), plans)))

    def list_best_looking(self, cell: Cell) -> list[HandPlan]:
        """The hand plans of the two meshes with the smallest sums, as the compiler estimates them."""
        found = self.plan(cell, [*cell.cluster, "--strategy", "dp+tp+pp"])
        meshes: list[tuple[int, int, int]] = []
        possible = set(list_meshes(cell))
        for strategy, sum_ms, _ in sorted(found.get("candidates", []), key=lambda row: row[1] or float("inf")):
            sizes = {axis: int(size) for axis, _, size in (part.partition("=") for part in strategy.split(":")[0].split(","))}
            mesh = sizes.get("data", 1), sizes.get("pipe", 1), sizes.get("model", 1) * sizes.get("tensor", 1)
            if sum_ms and mesh in possible and mesh not in meshes:
                meshes.append(mesh)
        return [plan for mesh in meshes[:2] for plan in list_variants(cell, *mesh)]


@dataclasses.dataclass
class Comparison:
    cell: Cell
    ours: Result
    hands: list[tuple[HandPlan, Result]]
    is_whole: bool  # has all hand plans

    @property
    def best(self) -> tuple[HandPlan, Result] | None:
        fit = [(plan, result) for plan, result in self.hands if result.milliseconds is not None]
        return min(fit, key=lambda pair: pair[1].milliseconds, default=None)

    @property
    def ratio(self) -> float | None:
        """Our time over theirs; infinite if only we have no plan, None if they have none."""
        if not self.best:
            return None
        return float("inf") if self.ours.milliseconds is None else self.ours.milliseconds / self.best[1].milliseconds

    @property
    def is_lost(self) -> bool:
        return self.ratio is not None and self.ratio > 1 + SAME


def compare(planner: Planner, cell: Cell, whole: bool) -> Comparison:
    if whole:
        plans = [plan for mesh in list_meshes(cell) for plan in list_variants(cell, *mesh)]
    else:
        plans = planner.list_best_looking(cell)
    return Comparison(cell, planner.search(cell), planner.simulate_all(cell, plans), whole)


def draw(cells: list[Cell], count: int, seed: int) -> set[str]:
    """The cells that get all hand plans."""
    names = sorted(cell.name for cell in cells)
    return set(random.Random(seed).sample(names, min(count, len(names))))


# ------------------------------------------------------------------------------------------------------------------------
# Named cases
# ------------------------------------------------------------------------------------------------------------------------

# Four A100 and four H100, each four on an NVLink switch; 400 Gb/s per device between them.
MIXED = {
    "devices": [{"name": "a", "kind": "A100-80GB", "count": 4}, {"name": "h", "kind": "H100-80GB", "count": 4}],
    "switches": ["nvlink-a", "nvlink-h", "network"],
    "links": [
        {"ends": ["a", "nvlink-a"], "latency_seconds": 1e-6, "bytes_per_second": 240e9},
        {"ends": ["h", "nvlink-h"], "latency_seconds": 1e-6, "bytes_per_second": 360e9},
        {"ends": ["a", "network"], "latency_seconds": 7e-6, "bytes_per_second": 20e9},
        {"ends": ["h", "network"], "latency_seconds": 7e-6, "bytes_per_second": 40e9},
    ],
}


def list_named(folder: Path) -> list[Cell]:
    (folder / "mixed.json").write_text(json.dumps(MIXED))
    decoder = {"layers": 8, "hidden": 4096, "heads": 32, "kv_heads": 8, "intermediate": 14336, "vocabulary": 32000, "head": "logits"}
    experts = {"layers": 4, "hidden": 2048, "heads": 16, "kv_heads": 8, "intermediate": 8192, "vocabulary": 32000, "experts": 16, "dispatch": "capacity"}
    volta, ampere = (tuple(PRESETS[preset][1]) for preset in ("p3.16xlarge", "DGX-A100"))

    def cell(name: str, subject: Subject, devices: str, more: tuple[str, ...], expected: str) -> Cell:
        return Cell(name, subject, int(devices.partition("x")[0]), ("--devices", devices), more, expected)

    return [
        cell("W-ResNet on 16 V100", make_subject("resnet", {"width": 320, "blocks": (3, 4, 6, 3)}, batch=8), "16xV100-16GB", volta,
             "rows and pictures in parts early, channels late"),
        cell("MoE on 64 V100, 25 Gb/s between hosts", make_subject("moe", experts, batch=32, sequence=512), "64xV100-16GB", volta,
             "experts within a host, rows between hosts"),
        Cell("Llama on 4 A100 and 4 H100", make_subject("llama", decoder, batch=4, sequence=512), 8, ("--cluster", str(folder / "mixed.json")), ampere,
             "more of the work on the H100; shares are equal so far, so only the splits can differ"),
        cell("Llama in 640 MiB a device", make_subject("llama", decoder, batch=4, sequence=512), "8xA100-80GB", (*ampere, "--memory-limit", "640MiB"),
             "weights in parts, gathered for their use"),
        cell("GPT-2 in 512 MiB a device", make_subject("gpt2", {"layers": 8, "hidden": 2048, "heads": 32}, batch=8, sequence=512), "8xcpu", ("--target", "cpu", "--memory-limit", "512MiB"),
             "weights in parts, gathered for their use"),
        cell("U-Net in 1 GiB a device", make_subject("unet", {"width": 64, "image": 1024, "depth": 4}, batch=1), "4xA100-80GB", (*ampere, "--memory-limit", "1GiB"),
             "parts of the picture"),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------------------
# The table
# ------------------------------------------------------------------------------------------------------------------------


def describe(comparison: Comparison) -> list[str]:
    ours, best = comparison.ours, comparison.best
    count = sum(result.milliseconds is not None for _, result in comparison.hands)
    return [
        comparison.cell.name,
        "none" if ours.milliseconds is None else f"{ours.milliseconds:.3f}",
        f"{best[1].milliseconds:.3f}" if best else "none fits",
        "" if comparison.ratio is None else f"{comparison.ratio:.3f}" + (" **lost**" if comparison.is_lost else ""),
        f"{count} of {len(comparison.hands)}" + ("" if comparison.is_whole else ", best-looking"),
        str(best[0]) if best else "",
        ours.strategy or ours.refusal,
    ]


HEAD = ["cell", "ours ms", "best by hand ms", "ratio", "by hand", "which", "ours"]


def tabulate(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |\n" for row in lines)


def summarise(done: list[Comparison]) -> str:
    ratios = sorted(c.ratio for c in done if c.ratio is not None)
    if not ratios:
        return "No cell has a hand plan that fits.\n"
    lost, won = sum(c.is_lost for c in done), sum(ratio < 0.95 for ratio in ratios)
    return (
        f"{len(done)} cells, {sum(c.is_whole for c in done)} of them against all hand plans: {len(ratios) - lost} no slower, {lost} slower, "
        f"{won} at least 5 % faster; ratio {ratios[0]:.3f} to {ratios[-1]:.3f}, median {ratios[len(ratios) // 2]:.3f}.\n"
    )


def report(done: list[Comparison], named: list[Comparison]) -> str:
    text = "Milliseconds of a step in the simulator, `gridloom plan --no-seeds` against hand plans (bench/hand_plans.py).\n\n"
    if done:
        text += summarise(done) + "\n" + tabulate(HEAD, [describe(comparison) for comparison in done])
    if named:
        text += "\nCases in which the search ought to win by 5 %:\n\n"
        rows = [[*describe(c), c.cell.expected, judge(c)] for c in named]
        text += tabulate([*HEAD, "what it has over them", "outcome"], rows)
    return text


def judge(comparison: Comparison) -> str:
    if comparison.ratio is None:
        return "won: no hand plan fits" if comparison.ours.milliseconds is not None else "nothing fits"
    return "won" if comparison.ratio <= 0.95 else "lost" if comparison.is_lost else f"not won: {1 - comparison.ratio:.1%} faster"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, help="folder of gridloom")
    parser.add_argument("--cells", type=int, default=60, help="cells that have all hand plans, drawn by the seed (default 60)")
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--family", action="append", choices=FAMILIES)
    parser.add_argument("--devices", action="append", type=int, choices=DEVICES)
    parser.add_argument("--preset", action="append", choices=PRESETS)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all-hand", action="store_true", help="only cells that have all hand plans")
    which.add_argument("--two-best", action="store_true", help="only the others")
    parser.add_argument("--named", action="store_true", help="only the named cases")
    parser.add_argument("--memo", type=Path, default=Path("build/hand_plans.jsonl"), help="what has been planned, a line each")
    parser.add_argument("--forget", choices=["search"], help="plan ours again; hand plans are kept")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="plans at a time")
    parser.add_argument("--limit", type=float, help="seconds for a plan; what takes longer does not count")
    parser.add_argument("--output", type=Path, help="the table as a file")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    options.memo.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        planner = Planner(find_tool("gridloom", options.bin), Path(folder), options.memo, options.jobs, options.limit)
        if options.forget:
            planner.forget_searches()
        cells = [make_cell(*each) for each in itertools.product(FAMILIES, DEVICES, PRESETS)]
        drawn = draw(cells, options.cells, options.seed)
        wanted = {
            make_cell(*each).name
            for each in itertools.product(options.family or FAMILIES, options.devices or DEVICES, options.preset or PRESETS)
        }
        cells = [cell for cell in cells if cell.name in wanted]
        cells = [cell for cell in cells if (cell.name in drawn or not options.all_hand) and not (cell.name in drawn and options.two_best)]
        cells.sort(key=lambda cell: (cell.name not in drawn, cell.devices))
        named = list_named(Path(folder)) if options.named else []
        done: list[Comparison] = []
        for cell in named or cells:
            start = time.monotonic()
            comparison = compare(planner, cell, whole=bool(named) or cell.name in drawn)
            done.append(comparison)
            print(f"{len(done)}/{len(named or cells)}, {time.monotonic() - start:.0f} s: " + "; ".join(describe(comparison)), flush=True)
            if options.output:
                options.output.write_text(report([], done) if named else report(done, []))
        print(report([], done) if named else report(done, []))
    return 0


if __name__ == "__main__":
    sys.exit(main())
