"""Every GPU kernel of many models, assembled: what it costs to make them and what they need.

    .venv/bin/python bench/gpu_kernels.py [--bin build/release/bin] [--chip sm_90]... [--models bert-base,voice]
        [--small] [--onnx-nodes] [--train] [--precision bf16] [--work FOLDER]

Compiles the zoo's models at their true sizes and trained models for sm_80, sm_90 and sm_100, and prints per model and
chip: kernels, how many of them differ, the most registers and shared memory of one, bytes of spilled registers, and
milliseconds of processor time per kernel (lowering, PTX and cubin together). The exit status is 1 where something does
not compile or a register is spilled; a median above 25 ms (for models of sorts and the like, 200 ms) is marked.
`--small` takes small models, `--onnx-nodes` adds every node test of ONNX that passes, `--train` has the models' plans train: AdamW on the
squared error of the first output. Needs a CUDA toolkit, no GPU."""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import warnings
from pathlib import Path

import gridloom
import onnx
from gridloom import backend, zoo

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "scripts"), str(ROOT / "test" / "python"), str(ROOT / "test" / "onnx")]

from hardware.models import CHIPS, REAL, TRUE, Model  # noqa: E402

MEDIAN_MS, LANES_MEDIAN_MS = 25, 200
SMALL_SIZES = {"batch": 2, "sequence": 6, "past": 3}


@dataclasses.dataclass
class Row:
    """The kernels of one model's plan for one chip."""

    model: str
    chip: str
    kernels: list[dict]  # as in report.json
    error: str = ""

    def key(self, kernel: dict) -> tuple:
        return (self.chip, kernel["symbol"], kernel["registers"], kernel["shared_bytes"])


def total_ms(kernel: dict) -> float:
    return kernel["lowering_ms"] + kernel["ptx_ms"] + kernel["cubin_ms"]


def write_zoo(model: Model, folder: Path) -> tuple[Path, dict]:
    """Writes the ONNX file. Returns it and further options of compile."""
    kind, name = model.source.split(":")
    path = folder / f"{model.name}.onnx"
    if kind == "real":
        import real_models

        found = real_models.MODELS[name]
        onnx.save_model(backend.specialise(onnx.load(str(found.path())), found.inputs()), str(path))
        return path, {}
    if not path.exists():
        if name == "bert":
            store = zoo.ExternalFile(path)
            onnx.save_model(zoo.bert(zoo.BertConfig(**model.options), zoo.Random(0), name, store), str(path))
        else:
            zoo.MODELS[name].write(path, external_data=True, **model.options)
    state = dict([model.state.split("=")]) if model.state else None
    return path, {"dims": {key: list(sizes) for key, sizes in model.dims.items()}, "state": state}


def write_small(name: str, folder: Path) -> tuple[Path, dict]:
    model, options = zoo.SMALL[name]
    path = folder / f"small-{name}.onnx"
    zoo.MODELS[model].write(path, **options) if model in zoo.MODELS else zoo.save(zoo.bert(zoo.BertConfig(**options)), path)
    inputs = {d.dim_param for i in onnx.load(str(path)).graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
    return path, {"dims": {key: size for key, size in SMALL_SIZES.items() if key in inputs}}


def train_arguments(path: Path) -> dict:
    """The options of compile for a training step, evaluation and the model. Caches, which are states otherwise, become inputs."""
    output = onnx.load(str(path), load_external_data=False).graph.output[0]
    return {"train": True, "loss": f"mse({output.name}, target)", "optimizer": "adamw", "state": None}


def compile_for(name: str, chip: str, path: Path, arguments: dict, folder: Path, tools) -> Row:
    plan = folder / f"{path.stem}-{chip}.plan"
    try:
        gridloom.compile(path, plan, mesh="data=1", target=f"cuda:{chip}", tools=tools, **arguments)
    except gridloom.Error as error:
        return Row(name, chip, [], str(error))
    kernels = json.loads((plan / "report.json").read_text())["kernels"]
    for file in (plan / "kernels").glob("*"):
        file.unlink()
    return Row(name, chip, kernels, "" if all(k["registers"] >= 0 for k in kernels) else "not assembled; set CUDA_HOME")


def node_rows(chips: list[str], folder: Path, tools, limit: int | None) -> list[Row]:
    """All node tests that pass on one rank, as one row per chip."""
    import suite

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = suite.tests()
    lines = (ROOT / "test" / "onnx" / "failing.txt").read_text().splitlines()
    names = sorted(tests.keys() - {line.partition(":")[0] for line in lines})[:limit]

    def one(name: str, chip: str) -> Row:
        path = folder / f"{name}.onnx"
        if not path.exists():
            model, (inputs, _) = tests[name].model, tests[name].data_sets[0]
            initialised = {tensor.name for tensor in model.graph.initializer}
            names = [i.name for i in model.graph.input if i.name not in initialised]
            values = dict(zip(names, map(suite.to_array, inputs)))
            onnx.save_model(backend.specialise(model, values), str(path))
        return compile_for(name, chip, path, {}, folder, tools)

    rows = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for chip in chips:
            found = list(pool.map(lambda name: one(name, chip), names))
            bad = [f"{row.model}: {row.error}" for row in found if row.error]
            for text in bad:
                print(f"  {chip} {text}", flush=True)
            kernels = [kernel for row in found for kernel in row.kernels]
            rows.append(Row(f"{len(names)} node tests", chip, kernels, f"{len(bad)} do not compile" if bad else ""))
    return rows


def distinct(row: Row) -> dict[tuple, dict]:
    return {row.key(kernel): kernel for kernel in row.kernels}


def complaints(row: Row) -> list[str]:
    found = [row.error] if row.error else []
    spills = [kernel["symbol"] for kernel in row.kernels if kernel["spill_bytes"] > 0]
    if spills:
        found.append(f"spills in {', '.join(spills)}")
    return found


def remarks(row: Row) -> list[str]:
    """Findings that depend on the machine's load as well, and so are no failures."""
    found = []
    for kind, limit in (("lanes", LANES_MEDIAN_MS), ("", MEDIAN_MS)):
        times = [total_ms(k) for k in row.kernels if (k["skeleton"] == "lanes") == (kind == "lanes")]
        if times and statistics.median(times) > limit:
            found.append(f"median {statistics.median(times):.0f} ms per kernel, more than {limit}")
    return found


def print_row(row: Row) -> None:
    times = [total_ms(kernel) for kernel in row.kernels] or [0]
    spills = sum(kernel["spill_bytes"] for kernel in row.kernels)
    most = max((kernel["registers"] for kernel in row.kernels), default=0)
    shared = max((kernel["shared_bytes"] for kernel in row.kernels), default=0)
    print(
        f"{row.model:<22}{row.chip:>8}{len(row.kernels):>9}{len(distinct(row)):>10}{most:>11}{shared:>8}{spills:>8}"
        f"{statistics.median(times):>11.1f}{max(times):>9.1f}  {'; '.join(complaints(row) + remarks(row))}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=None, help="folder of the tools (default: found by gridloom)")
    parser.add_argument("--chip", action="append", help="repeatable; default sm_80, sm_90 and sm_100")
    parser.add_argument("--models", default=None, help="names with commas between; default all")
    parser.add_argument("--small", action="store_true", help="small models in place of true sizes")
    parser.add_argument("--onnx-nodes", action="store_true", help="also the node tests of ONNX that pass")
    parser.add_argument("--nodes", type=int, default=None, help="only so many of them")
    parser.add_argument("--train", action="store_true", help="the models' training steps")
    parser.add_argument("--precision", default=None, help="f32, tf32, bf16 or f16")
    parser.add_argument("--work", type=Path, default=None, help="folder that keeps the models for a next time")
    options = parser.parse_args()

    chips = options.chip or list(CHIPS)
    wanted = options.models.split(",") if options.models is not None else None
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.work or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{'model':<22}{'chip':>8}{'kernels':>9}{'distinct':>10}{'registers':>11}{'shared':>8}{'spills':>8}"
              f"{'median ms':>11}{'max ms':>9}")  # fmt: skip
        writers = {name: lambda name=name: write_small(name, folder) for name in zoo.SMALL}
        if not options.small:
            writers = {model.name: lambda model=model: write_zoo(model, folder) for model in (*TRUE, *REAL)}
        for name, write in writers.items():
            if wanted is not None and name not in wanted:
                continue
            path, arguments = write()
            arguments |= train_arguments(path) if options.train else {}
            arguments |= {"precision": options.precision} if options.precision else {}
            for chip in chips:
                rows.append(compile_for(name, chip, path, arguments, folder, options.bin))
                print_row(rows[-1])
            if not options.work:
                for file in folder.glob(f"{path.stem}.onnx*"):
                    file.unlink()
        if options.onnx_nodes:
            for row in node_rows(chips, folder, options.bin, options.nodes):
                rows.append(row)
                print_row(row)
    times = [total_ms(kernel) for row in rows for kernel in row.kernels]
    skeletons = collections.Counter(kernel["skeleton"] for row in rows for kernel in row.kernels)
    if times:
        spills = sum(kernel["spill_bytes"] > 0 for row in rows for kernel in row.kernels)
        print(f"{len(times)} kernels ({', '.join(f'{n} {kind}' for kind, n in skeletons.most_common())}), {spills} with "
              f"spills, median {statistics.median(times):.1f} ms, largest {max(times):.1f} ms")  # fmt: skip
    return 1 if not times or any(complaints(row) for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
