"""Cases: a random model, its compile options, and the comparison with ONNX Runtime."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import random
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import onnx

import gridloom
from gridloom import backend

from . import contrib, layers, moves  # noqa: F401  (they fill the table)
from .graph import EPSILON, Graph, Skip, Value, make_model
from .recipes import TABLE

MESHES = {
    "": 8, "data=2": 8, "model=2": 8, "data=2,model=2": 12, "x=2,y=2": 8, "model=3": 6, "data=3": 4, "x=3,y=2": 3,
    "pipe=2": 14, "data=2,pipe=2": 10, "model=2,pipe=2": 6, "x=2,y=2,pipe=2": 6, "pipe=3": 5, "pipe=2,model=3": 3, "x=4": 3,
}  # fmt: skip

# Refusals that the model or the options explain: a part of the message, and the reason under which they are counted.
REASONS = {
    "splits nothing of the model": "an axis has nothing to split",
    "use a smaller 'pipe' axis": "fewer operations than stages",
    "which is no input, output, weight or node of the model": "a pin of what is folded away",
    "which was folded into a constant": "a pin of what is folded away",
    "reads, once, when weights are loaded": "a pin of what is folded away",
}

LOOSE = "ill-conditioned: compared with a tolerance above 5 %"

NODES = (4, 4, 6, 6, 8, 10, 12, 14, 16, 20, 25, 30, 40)


@dataclasses.dataclass
class Setup:
    """The options to compile a model with."""

    mesh: str = ""
    strategy: str | None = None
    microbatches: int | None = None
    shard: dict[str, str] = dataclasses.field(default_factory=dict)
    unroll: int | None = None
    chunk_matmul: int | None = None

    def flags(self) -> list[str]:
        flags = ["--mesh", self.mesh] if self.mesh else []
        flags += ["--strategy", self.strategy] if self.strategy else []
        for name in ("microbatches", "unroll", "chunk_matmul"):
            value = getattr(self, name)
            flags += [] if value is None else ["--" + name.replace("_", "-"), str(value)]
        return flags + [part for name, text in self.shard.items() for part in ("--shard", f"{name}={text}")]


@dataclasses.dataclass
class Case:
    seed: int
    opset: int
    nodes: list[onnx.NodeProto]
    inputs: list[Value]
    initializers: list[Value]
    outputs: list[Value]
    values: dict[str, Value]  # all, by name
    setup: Setup
    skipped: collections.Counter
    by_reference: int = 0

    def model(self) -> onnx.ModelProto:
        return make_model(self.opset, self.nodes, self.inputs, self.initializers, self.outputs)


@dataclasses.dataclass
class Result:
    """The outcome of a case. `error` is empty when it passed; `refused` is the reason of a refusal that the model or the options
    explain."""

    seed: int
    error: str = ""
    refused: str = ""
    setup: str = ""
    operators: list[str] = dataclasses.field(default_factory=list)
    outputs: int = 0
    elements: int = 0
    not_compared: dict[str, int] = dataclasses.field(
        default_factory=dict
    )  # elements, by reason; LOOSE ones are compared
    by_reference: int = 0  # nodes that ONNX Runtime lacks
    split: int = 0
    stages: int = 1


def grow(seed: int, only: list[str] | None = None) -> tuple[Graph, collections.Counter]:
    graph, skipped = Graph(seed), collections.Counter()
    r = graph.random
    rows = [TABLE[name] for name in sorted(TABLE) if TABLE[name].since <= graph.opset <= TABLE[name].until]
    # Like real models, a model uses some operators often; any other may appear.
    home = [row for row in rows if row.qualified in only] if only else r.sample(rows, min(len(rows), 14))
    home = home or rows  # none of them is in this opset
    wanted, tries = r.choice(NODES), 0
    while len(graph.nodes) < wanted and tries < 6 * wanted:
        tries += 1
        pool = home if only or r.random() < 0.5 else rows
        row = r.choices(pool, [p.weight for p in pool])[0]
        try:
            row.make(graph)
        except Skip as reason:
            skipped[f"{row.qualified}: {reason}"] += 1
    if not graph.nodes:
        graph.add("Identity", [graph.source(np.dtype(np.float32), (2, 3), kind="input")], exact=True)
    return graph, skipped


def draw_shard(r: random.Random, mesh: str, values: list[Value]) -> dict[str, str]:
    """Pins one or two values to axes other than the pipeline's."""
    axes = [(a.split("=")[0], int(a.split("=")[1])) for a in mesh.split(",") if a and not a.startswith("pipe")]
    fits = [v for v in values if v.rank and max(v.shape) > 1]
    if not axes or not fits:
        return {}
    pins = {}
    for value in r.sample(fits, min(len(fits), r.choice([1, 1, 2]))):
        dims: list[list[str]] = [[] for _ in value.shape]
        for axis, size in axes:
            places = [i for i, d in enumerate(value.shape) if d >= size * 2 ** len(dims[i])]
            if places and r.random() < 0.7:
                dims[r.choice(places)].append(axis)
        pins[value.name] = "[" + ",".join("{" + ",".join(d) + "}" for d in dims) + "]"
    return pins


def draw_setup(r: random.Random, graph: Graph, outputs: list[Value]) -> Setup:
    mesh = r.choices(list(MESHES), list(MESHES.values()))[0]
    setup = Setup(mesh)
    if r.random() < 0.5 and any(node.op_type in ("Loop", "Scan", "LSTM", "GRU", "RNN") for node in graph.nodes):
        setup.unroll = 0
    if not mesh:
        return setup
    if r.random() < 0.1:
        setup.chunk_matmul = r.choice([2, 3])
    others = [a for a in mesh.split(",") if not a.startswith("pipe")]
    how = r.random()
    if how < 0.75:
        setup.strategy = f"random:{r.randrange(1000)}"
    elif how < 0.8 and others:
        setup.strategy = r.choice(["dp", "tp"])
    elif how < 0.85 and len(others) > 1:
        setup.strategy = "dp+tp" if "pipe" not in mesh else "dp+tp+pp"
    if "pipe" in mesh and r.random() < 0.8:
        setup.microbatches = r.choice([1, 2, 2, 3, 4])
    if r.random() < 0.3:
        # Weights, except those that are likely to be folded or to become part of another.
        direct = {
            name for node in graph.nodes if node.op_type in ("MatMul", "Add", "Mul", "Where") for name in node.input
        }
        weights = [v for v in graph.initializers if v.name in direct and v.rank]
        setup.shard = draw_shard(r, mesh, [*graph.inputs, *weights, *outputs])
    return setup


def make(seed: int, only: list[str] | None = None) -> Case:
    graph, skipped = grow(seed, only)
    r = graph.random
    made = {name for node in graph.nodes for name in node.output if name}
    outputs = [v for v in graph.values if v.name in made and (r.random() < 0.95 if v.uses == 0 else r.random() < 0.15)]
    outputs += graph.last
    if not outputs:
        outputs = [[v for v in graph.values if v.name in made][-1]]
    graph.prune()
    setup = draw_setup(r, graph, outputs)
    values = {v.name: v for v in [*graph.values, *graph.last, *graph.initializers]}
    return Case(
        seed,
        graph.opset,
        graph.nodes,
        graph.inputs,
        graph.initializers,
        outputs,
        values,
        setup,
        skipped,
        graph.by_reference,
    )


# Comparison


def describe(array: np.ndarray, at: tuple) -> str:
    return f"{array[at]!s}" if array.ndim else str(array)


def compare(value: Value, actual: np.ndarray, counts: collections.Counter) -> str:
    """What is wrong with `actual`, empty if nothing. Counts elements that cannot be compared, by reason."""
    want = value.array
    if actual.dtype != want.dtype:
        return f"'{value.name}' is {actual.dtype}, ONNX Runtime's {want.dtype}"
    if actual.shape != want.shape:
        return f"'{value.name}' is {list(actual.shape)}, ONNX Runtime's {list(want.shape)}"
    if want.size == 0:
        return ""
    if want.dtype not in EPSILON:
        stable = np.all([n == want for n in value.noisy], axis=0)
        counts["an integer that hangs on a rounding"] += int((~stable).sum())
        wrong = stable & (actual != want)
    else:
        reference, got = want.astype(np.float64), actual.astype(np.float64)
        noisy = np.stack([n.astype(np.float64) for n in value.noisy])
        with np.errstate(all="ignore"):
            finite = np.isfinite(reference) & np.isfinite(noisy).all(axis=0)
            spread = np.abs(noisy - reference).max(axis=0)
            scale = np.abs(reference[finite]).mean() if finite.any() else 0.0
            typical = spread[finite].mean() if finite.any() else 0.0
            unit = EPSILON[want.dtype]
            tolerance = 64 * unit * (np.abs(reference) + min(1.0, scale)) + 24 * spread + 4 * typical
            tolerance += 256 * float(np.finfo(want.dtype).smallest_subnormal)
            wrong = finite & ~(np.abs(got - reference) <= tolerance)
            # Infinities and NaNs must match where all noisy values agree on them.
            same = np.all([(n == reference) | (np.isnan(n) & np.isnan(reference)) for n in noisy], axis=0)
            special = ~finite & same
            wrong |= special & ~((got == reference) | (np.isnan(got) & np.isnan(reference)))
        counts["infinite or NaN by a rounding"] += int((~finite & ~same).sum())
        counts[LOOSE] += int((finite & (tolerance > 0.05 * (np.abs(reference) + scale))).sum())
    if not wrong.any():
        return ""
    at = tuple(np.argwhere(wrong)[0])
    place = list(map(int, at))
    return f"'{value.name}' is wrong in {int(wrong.sum())} of {wrong.size} elements; at {place} {describe(actual, at)}, ONNX Runtime's {describe(want, at)}"


def classify(message: str) -> str:
    return next((reason for part, reason in REASONS.items() if part in message), "")


@contextlib.contextmanager
def quiet_numpy():
    with np.errstate(all="ignore"):
        yield


def compile(setup: Setup, model: Path, plan: Path, **options) -> gridloom.Plan:
    """Compiles `model` to `plan` with the options of `setup` and further `options` of gridloom.compile. Raises CompileError."""
    mesh = {"mesh": setup.mesh} if setup.mesh else {}
    rest = {f.name: getattr(setup, f.name) for f in dataclasses.fields(setup) if f.name != "mesh"}
    return gridloom.compile(model, plan, **mesh, **rest, **options)


def check(case: Case, folder: Path) -> Result:
    """Compiles the case in `folder`, runs it twice on real ranks in this process, and compares the results."""
    folder.mkdir(parents=True, exist_ok=True)
    model, plan = folder / "model.onnx", folder / "model.plan"
    onnx.save(case.model(), str(model))
    setup = case.setup
    result = Result(
        case.seed,
        setup=shlex.join(setup.flags()),
        operators=sorted({f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in case.nodes}),
        outputs=len(case.outputs),
        elements=sum(v.array.size for v in case.outputs),
        by_reference=case.by_reference,
        stages=int(m[1]) if (m := re.search(r"pipe=(\d+)", setup.mesh)) else 1,
    )
    try:
        compiled = compile(setup, model, plan)
    except gridloom.CompileError as error:
        message = " ".join(str(error).split())
        result.refused = classify(message)
        result.error = "" if result.refused else f"refused: {message[:600]}"
        return result
    result.split = sum('{"' in v["sharding"].partition("[")[2] for v in compiled.report.get("values", []))
    counts: collections.Counter = collections.Counter()
    try:
        with gridloom.load(compiled, threads=1, deadline=60.0) as session:
            read = {b.name for b in compiled.entries[0].specialisations[0].inputs}
            first = session.run({v.name: v.array for v in case.inputs if v.name in read})
            second = session.run()
            first, second = (backend.trim(r, [v.name for v in case.outputs]) for r in (first, second))
    except Exception as error:  # any exception is the result
        result.error = f"{type(error).__name__}: {error}"
        return result
    with quiet_numpy():
        for value in case.outputs:
            wrong = compare(value, first[value.name], counts)
            if not wrong and first[value.name].tobytes() != second[value.name].tobytes():
                wrong = f"'{value.name}' differs between the first and the second run"
            if wrong:
                result.error = f"wrong: {wrong}"
                break
    result.not_compared = {k: v for k, v in counts.items() if v}
    return result


def scratch() -> Path:
    """A folder for models and plans, in memory if the machine has one there."""
    base = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(os.environ.get("TMPDIR", "/tmp"))
    return base / f"gridloom-random-{os.getpid()}"


def run_seed(seed: int, folder: Path, only: list[str] | None = None) -> Result:
    try:
        return check(make(seed, only), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
