"""What planning takes: processor seconds and memory of `gridloom plan` for large models and many devices.

    .venv/bin/python bench/planning_time.py [--bin build/release/bin] [--only llama-8b,irregular] [--nodes 100000]
        [--jobs 2] [--keep FOLDER]

Transformers are the zoo's, with shapes alone. `irregular` and `stream` are programs of --nodes nodes no stretch of which is
like another: products, norms, joins and pointwise operations of many widths; in `stream` most of them are added to one
value that runs through all of the program; both are planned for a mesh whose axes are named, and `irregular-auto` for all
meshes. Processor seconds are those of all threads, user and system, whatever else the
machine does; memory is the most that was resident. With --keep the models and what was planned stay in FOLDER."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "python")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402

from gridloom import zoo  # noqa: E402
from gridloom._tools import find_tool  # noqa: E402
from gridloom.zoo.graph import FLOAT, ExternalFile, GraphBuilder  # noqa: E402

WIDTHS = [256, 384, 512, 640, 768, 1024, 1536, 2048]
UNARY = ["Relu", "Tanh", "Sigmoid", "Neg", "Erf"]
BINARY = ["Add", "Mul", "Sub"]


class Irregular:
    """Adds random operations to a graph. The last one reads all remaining values. With `stream`, about half of the operations are
    branches of one value, and their results are added to it."""

    def __init__(self, path: Path, seed: int, stream: bool):
        self.random = random.Random(seed)
        self.graph = GraphBuilder("irregular", 17, ExternalFile(path))
        inputs = [(self.graph.input(f"x{width}", FLOAT, ["batch", 64, width]), width) for width in WIDTHS]
        self.live = inputs * 3
        self.stream = inputs[2] if stream else None
        self.weights = self.nodes = 0

    def op(self, kind: str, *inputs: str, **attributes) -> str:
        self.nodes += 1
        return self.graph.op(kind, *inputs, **attributes)

    def weight(self, *shape: int) -> str:
        self.weights += 1
        return self.graph.weight(f"w{self.weights}", np.broadcast_to(np.float32(0), shape))

    def unary(self, value: str, width: int) -> tuple[str, int]:
        return self.op(self.random.choice(UNARY), value), width

    def product(self, value: str, width: int, wanted: int = 0) -> tuple[str, int]:
        wanted = wanted or self.random.choice(WIDTHS)
        return self.op("MatMul", value, self.weight(width, wanted)), wanted

    def pair(self, value: str, width: int) -> tuple[str, int]:
        """Joins with another value of the same width."""
        others = [name for name, size in self.live if size == width and name != value]
        if not others:
            return self.product(value, width)
        return self.op(self.random.choice(BINARY), value, self.random.choice(others)), width

    def join(self, value: str, width: int) -> tuple[str, int]:
        other, size = self.random.choice(self.live)
        return self.product(self.op("Concat", value, other, axis=2), width + size)

    def norm(self, value: str, width: int) -> tuple[str, int]:
        return self.op("LayerNormalization", value, self.weight(width), self.weight(width), axis=-1), width

    def branch(self, value: str, width: int) -> tuple[str, int]:
        hidden, inner = self.unary(*self.product(value, width))
        return self.op("Add", value, self.product(hidden, inner, width)[0]), width

    def add(self) -> None:
        """Adds a step of one node or a few."""
        kinds = {self.product: 25, self.unary: 35, self.pair: 25, self.join: 3, self.norm: 5}
        place = self.random.randrange(len(self.live))
        if self.stream and self.random.random() < 0.5:
            self.live[place] = self.stream = self.branch(*self.stream)
        else:
            (kind,) = self.random.choices(list(kinds), list(kinds.values()))
            self.live[place] = kind(*self.live[place])

    def build(self, nodes: int) -> onnx.ModelProto:
        while self.nodes < nodes - len(self.live) - 1:
            self.add()
        result = self.op("Sum", *(self.product(value, width, WIDTHS[0])[0] for value, width in self.live))
        self.graph.output("y", result, FLOAT, ["batch", 64, WIDTHS[0]])
        return self.graph.build()


def write_irregular(stream: bool) -> Callable[[Path, int], None]:
    def write(path: Path, nodes: int) -> None:
        onnx.save_model(Irregular(path, 0, stream).build(nodes), str(path))

    return write


def write_zoo(name: str, **options) -> Callable[[Path, int], None]:
    def write(path: Path, _: int) -> None:
        zoo.MODELS[name].write(path, shapes_only=True, **options)

    return write


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model and the options to plan it with."""

    write: Callable[[Path, int], None]
    options: list[str]


def on_hosts(hosts: int, batch: int, *more: str) -> list[str]:
    gpus = ["--cluster", f"HGX-H100x{hosts}", "--target", "cuda:sm_90", "--precision", "bf16"]
    return [*gpus, "--dim", f"batch={batch}", *more]


TOKENS = ["--dim", "sequence=2048"]
LLAMA_70B = {"layers": 80, "hidden": 8192, "heads": 64, "intermediate": 28672}
GPT3 = {"layers": 96, "hidden": 12288, "heads": 96}
NAMED = ["--mesh", "data=8,model=8"]
TWELVE = ["--mesh", ",".join(f"{axis}=2" for axis in "abcdefghijkl")]

SUBJECTS = {
    "llama-8b": Subject(write_zoo("llama", layers=32), on_hosts(8, 8, *TOKENS)),
    "llama-70b": Subject(write_zoo("llama", head="logits", **LLAMA_70B), on_hosts(128, 64, *TOKENS)),
    "gpt3-175b": Subject(write_zoo("gpt2", positions=2048, **GPT3), on_hosts(128, 64, *TOKENS)),
    "twelve-axes": Subject(write_zoo("llama", layers=32), on_hosts(512, 8, *TOKENS, *TWELVE)),
    "irregular": Subject(write_irregular(stream=False), on_hosts(8, 64, *NAMED)),
    "stream": Subject(write_irregular(stream=True), on_hosts(8, 64, *NAMED)),
    "irregular-auto": Subject(write_irregular(stream=False), on_hosts(8, 64)),
}


def plan(program: str, options: list[str]) -> tuple[dict, float, float, float]:
    """The result of `gridloom plan`, its seconds, processor seconds and GiB. Both times are the compiler's alone."""
    begin = time.perf_counter()
    process = subprocess.Popen([program, "plan", *options, "--json"], stdout=subprocess.PIPE, text=True)
    text = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"gridloom plan {' '.join(options)} failed")
    return json.loads(text), time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=None, help="folder of gridloom; default: as python -m gridloom finds it")
    parser.add_argument("--only", default="", help="subjects, e.g. llama-8b,irregular")
    parser.add_argument("--nodes", type=int, default=100_000, help="of the irregular models")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, default=None, help="folder for the models and what was planned")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name] or list(SUBJECTS)
    program = str(options.bin / "gridloom") if options.bin else find_tool("gridloom")

    print(f"{'':12}{'nodes':>8}{'devices':>9}{'candidates':>12}{'seconds':>9}{'cpu':>8}{'GiB':>6}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            subject = SUBJECTS[name]
            model, planned = folder / f"{name}.onnx", folder / name
            subject.write(model, options.nodes)
            nodes = len(onnx.load(str(model), load_external_data=False).graph.node)
            arguments = [str(model), *subject.options, "--jobs", str(options.jobs), "-o", str(planned)]
            _, seconds, used, memory = plan(program, arguments)
            report = json.loads((planned / "report.json").read_text())
            devices, candidates = math.prod(int(axis.split("=")[1]) for axis in report["mesh"].split(",")), len(report.get("candidates", [{}]))
            print(f"{name:12}{nodes:8}{devices:9}{candidates:12}{seconds:9.1f}{used:8.1f}{memory:6.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
