"""Runs ONNX's node tests compiled, on real ranks, split at random.

Each test is compiled by `gridloom.backend` once for 1, once for 2 and once for 4 ranks; on several ranks with the
strategy random:SEED, a seed that depends on the test's name. Nothing here uses the interpreter. Worker processes take
tests one by one, so that one that crashes or hangs costs itself only. With a target of cuda the ranks are fake GPUs, and
what these complain about fails the test."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import worker_process
from onnx import TensorProto, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test" / "fake")]

import fakes  # noqa: E402

from gridloom import backend  # noqa: E402

RANKS = (1, 2, 4)
SECONDS = 120  # for one test on one number of ranks

_CONTROL = {"If", "Loop", "Scan"}
# Their outputs were drawn with numpy's generator.
DRAWN = {f"test_training_dropout{suffix}" for suffix in ("", "_default", "_default_mask", "_mask")}
_RANDOM = {"Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
_SIGNAL = {"DFT", "STFT", "BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix"}
_QUANTISED = {
    "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul",
    "QuantizeLinear",
}  # fmt: skip
NARROW = {"int2", "int4", "uint2", "uint4", "float4_e2m1fn"}
_LOW = {v for k, v in TensorProto.DataType.items() if re.match(r"FLOAT[48]|U?INT[24]$", k)}


@cache
def tests() -> dict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {test.name: test for test in load_model_tests(kind="node")}


def _types(model: onnx.ModelProto) -> Iterable[tuple[str, int]]:
    """Kinds and element types of inputs, outputs and types named in attributes."""
    for value in [*model.graph.input, *model.graph.output]:
        kind = value.type.WhichOneof("value")
        yield kind, value.type.tensor_type.elem_type if kind == "tensor_type" else 0
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype", "output_dtype"):
                yield "tensor_type", attribute.i


def classify(test) -> str:
    """The category of a test; `core` takes and returns tensors, without control flow or random numbers."""
    model = test.model
    operators = {node.op_type for node in model.graph.node}
    domains = {node.domain for node in model.graph.node}
    types = list(_types(model))
    kinds = {kind for kind, _ in types}
    if "ai.onnx.preview.training" in domains:
        return "training"
    if "ai.onnx.ml" in domains:
        return "ai.onnx.ml"
    if "ImageDecoder" in operators:
        return "image"
    if "optional_type" in kinds or any(o.startswith("Optional") for o in operators):
        return "optional"
    if "sequence_type" in kinds or any("Sequence" in o and o != "ReverseSequence" for o in operators):
        return "sequence"
    if any(t == TensorProto.STRING for _, t in types) or "TfIdfVectorizer" in operators:
        return "string"
    if operators & _CONTROL:
        return "control_flow"
    if operators & _RANDOM:
        return "random"
    if operators & _SIGNAL:
        return "signal"
    if any(t in _LOW for _, t in types):
        return "low_precision"
    if operators & _QUANTISED:
        return "int8_quant"
    is_loss = {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"} & operators or test.name.startswith("test_sce_")
    return "loss" if is_loss else "core"


def operators(test) -> set[str]:
    """The operators that a test covers; for an expanded function those of the function's own test."""
    base = tests().get(re.sub(r"_expanded.*", "", test.name))
    if base and base is not test:
        return operators(base)
    return {node.op_type for node in test.model.graph.node}


@dataclasses.dataclass
class Result:
    """One test on one number of ranks. `error` is empty when it passed."""

    name: str
    ranks: int
    error: str = ""
    splittable: bool = False  # some value has a dimension > 1
    values: int = 0
    sharded: int = 0
    collectives: int = 0
    kernels: int = 0
    seconds: float = 0.0


def to_array(value) -> np.ndarray | list | None:
    if value is None or isinstance(value, list):
        return value  # a sequence, or an optional without a value
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def check(test, outputs, expected) -> None:
    """Raises AssertionError unless `outputs` are what the test expects."""
    assert len(outputs) == len(expected), f"{len(outputs)} outputs, expected {len(expected)}"
    for actual, want in zip(outputs, map(to_array, expected)):
        assert actual.dtype == want.dtype, f"type {actual.dtype}, expected {want.dtype}"
        assert actual.shape == want.shape, f"shape {actual.shape}, expected {want.shape}"
        rtol = test.rtol
        if want.dtype.name in NARROW or want.dtype.name.startswith("float8"):
            actual, want = actual.astype(np.float32), want.astype(np.float32)
        if want.dtype.name in ("bfloat16", "float16"):
            # Intermediate results are rounded as well: allow a few units in the last of 8 bits, two in the last of 11.
            rtol = max(rtol, 2**-6 if want.dtype.name == "bfloat16" else 2**-9)
            actual, want = actual.astype(np.float32), want.astype(np.float32)
        drawn = test.name in DRAWN and not np.allclose(actual, want)
        assert not drawn, "outputs are drawn with numpy's generator; test_training.py has those of ours"
        np.testing.assert_allclose(actual, want, rtol=rtol, atol=max(test.atol, 1e-6))


def mesh_for(test, ranks: int, seed: int) -> str:
    """Four ranks form one axis or two; two if no input dimension can be split into four."""
    fixed = backend.fixed_inputs(test.model)
    sizes = [
        d.dim_value for i in test.model.graph.input if i.name not in fixed for d in i.type.tensor_type.shape.dim
    ]
    wide = max(sizes, default=0) >= 4
    return {1: "", 2: "x=2", 4: "x=4" if wide and seed % 2 else "x=2,y=2"}[ranks]


def run_test(name: str, ranks: int, seed: int, target: str = "cpu") -> Result:
    result, begin = Result(name, ranks), time.monotonic()
    test = tests()[name]
    seed = zlib.crc32(f"{seed}/{name}".encode())
    strategy = f"random:{seed}" if ranks > 1 else None
    program = None
    try:
        program = backend.prepare(test.model, mesh=mesh_for(test, ranks, seed), strategy=strategy, target=target)
        for inputs, expected in test.data_sets:
            check(test, program.run([to_array(value) for value in inputs]), expected)
    except Exception as error:  # any exception is the test's result
        result.error = re.sub(r"\s+", " ", f"{type(error).__name__}: {error}").strip()[:400]
    if program and program.plan:
        report = program.plan.report
        values = report.get("values", [])
        result.values = len(values)
        result.sharded = sum('{"' in value["sharding"].partition("[")[2] for value in values)
        result.splittable = any(
            int(size) > 1 for value in values for size in re.findall(r"(\d+)x", value["type"])
        )
        result.collectives = len(report.get("collectives", []))
        fused = (program.plan.path / "ir" / "07-fuse.mlir").read_text()
        result.kernels = len(re.findall(r"^\s*plan\.kernel ", fused, re.M))
        program.close()
    result.seconds = time.monotonic() - begin
    return result


class _Worker:
    """A process that runs tests. A crash or a timeout is the test's result, and a new process continues."""

    def __init__(self, target: str):
        self.target = target
        self.process = None
        self.errors = None

    def start(self) -> None:
        command = [sys.executable, str(Path(__file__)), "--worker", "--target", self.target]
        extra = fakes.environment(max(RANKS), seed=1) if self.target.startswith("cuda") else {}
        written = tempfile.NamedTemporaryFile("w")
        self.errors = open(written.name, errors="replace")  # separate read position
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=written,
            text=True,
            env={**os.environ, **extra},
        )

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def complaints(self) -> str:
        """New complaints of the fake GPUs since the last call."""
        return "; ".join(line.strip() for line in self.errors if line.startswith(fakes.COMPLAINT))

    def ask(self, name: str, ranks: int, seed: int) -> Result:
        if not self.process:
            self.start()
        line, error = worker_process.ask(self.process, f"{name} {ranks} {seed}", SECONDS)
        if line:
            result = Result(**json.loads(line))
            complaints = self.complaints()
            result.error = "; ".join(filter(None, [result.error, complaints]))
            if complaints:
                self.stop()  # a process prints each complaint once
            return result
        self.process = None
        return Result(name, ranks, error)


def run(
    names: Iterable[str],
    ranks: Iterable[int] = RANKS,
    seed: int = 0,
    workers: int | None = None,
    target: str = "cpu",
    has_time: Callable[[], bool] = lambda: True,
) -> list[Result]:
    """Results in the order of names, then ranks; no test begins once the time is up. A test that fails on one rank does not run on more."""
    names, ranks = list(names), sorted(ranks)
    waiting: queue.SimpleQueue = queue.SimpleQueue()
    for index, name in enumerate(names):
        waiting.put((index, name))
    found: dict[int, list[Result]] = {}

    def work() -> None:
        worker = _Worker(target)
        try:
            while has_time():
                index, name = waiting.get_nowait()
                results = found[index] = []
                for number in ranks:
                    results.append(worker.ask(name, number, seed))
                    if results[-1].error and number == 1:
                        break
        except queue.Empty:
            pass
        finally:
            worker.stop()

    threads = [threading.Thread(target=work) for _ in range(workers or os.cpu_count() or 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [result for index in sorted(found) for result in found[index]]


def summarise(results: list[Result], detailed: bool = True) -> str:
    """Counts per number of ranks; `detailed` adds counts that depend on the compiler's choices."""
    lines = []
    for ranks in sorted({r.ranks for r in results}):
        mine = [r for r in results if r.ranks == ranks]
        good = [r for r in mine if not r.error]
        able = [r for r in good if r.splittable]
        line = f"{ranks} rank{'s' * (ranks > 1)}: {len(good)} of {len(mine)} tests pass"
        if ranks > 1:
            split = sum(r.sharded > 0 for r in able)
            line += f"; of {len(able)} with a dimension above 1, {split} are really split"
            line += f" ({100 * split / max(1, len(able)):.1f} %)"
        if detailed:
            line += f"; {sum(r.sharded for r in good)} of {sum(r.values for r in good)} values sharded"
            line += f", {sum(r.collectives for r in good)} collectives, {sum(r.kernels for r in good)} kernels"
        lines.append(line)
    return "\n".join(lines)


def _serve(target: str) -> None:
    for line in sys.stdin:
        name, ranks, seed = line.split()
        print(json.dumps(dataclasses.asdict(run_test(name, int(ranks), int(seed), target))), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-k", default="", help="only tests whose name matches this regular expression")
    parser.add_argument("--class", dest="kind", default="", help="only tests of this class, e.g. core")
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="cpu", help="cpu, or cuda:sm_90 or the like for fake GPUs")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--failures", action="store_true", help="print what failed, and why")
    parser.add_argument("--json", help="file for all results")
    options = parser.parse_args()
    if options.worker:
        return _serve(options.target)
    chosen = [n for n, t in tests().items() if re.search(options.k, n) and options.kind in ("", classify(t))]
    begin = time.monotonic()
    results = run(chosen, map(int, options.ranks.split(",")), options.seed, options.workers, options.target)
    if options.failures:
        for result in results:
            if result.error:
                print(f"{result.name} on {result.ranks}: {result.error}")
    print(summarise(results))
    kinds = collections.Counter(classify(tests()[r.name]) for r in results if r.ranks == 1 and not r.error)
    print(f"by class, on 1 rank: {dict(kinds)}")
    print(f"{len(chosen)} tests in {time.monotonic() - begin:.0f} s")
    if options.json:
        Path(options.json).write_text(json.dumps([dataclasses.asdict(r) for r in results]))


if __name__ == "__main__":
    main()
