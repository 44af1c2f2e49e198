"""Models on one machine: our time over that of ONNX Runtime and of OpenVINO, same threads, same run.

    .venv/bin/python bench/cpu_vs_peers.py [--bin build/release/bin] [--model NAME]... [--threads N]... [--mesh model=2]...
        [--rounds 20]

All sides of one number of threads run in one process, on as many cores as they have threads (`--threads`, default 1 and all cores:
ranks x intra-op threads), in f32; each number has a geometric mean of its own. In a round each side runs for a moment, in an order that changes from round to round; figures are medians over
rounds, the ratio is of a round's times, ours over the faster peer's, with a bootstrap interval of 95 % of its median. OpenVINO takes part where
it is installed (`pip install openvino`). MiniLM and the readers of text have their trained weights, the others random ones, of
which only the time is of interest; outputs are compared for all. `peak` is our share of what the machine multiplies in a large
matrix product with as many threads, by the fastest side."""

from __future__ import annotations

import argparse
import math
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from multiprocessing import get_context
from pathlib import Path

import gridloom
import numpy as np
import onnx
import onnxruntime
from gridloom import zoo

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test" / "python"))

import real_models  # noqa: E402


@dataclass(frozen=True)
class Case:
    """A model and the sizes of its named dimensions; `inputs` makes what it reads, drawn where it is None, `state` is what our plan keeps
    between runs, and the peers take in and give back."""

    make: Callable[[Path], Path]
    dims: dict[str, int]
    inputs: Callable[[], dict[str, np.ndarray]] | None = None
    state: dict[str, str] | None = None

    def make_inputs(self, path: Path) -> dict[str, np.ndarray]:
        """What the model at `path` reads, the state included."""
        if self.inputs:
            return self.inputs()
        inputs = zoo.random_inputs(onnx.load(path, load_external_data=False).graph, self.dims, 1000)
        # Token types and masks are 0 or 1.
        return {key: value % 2 if key in ("attention_mask", "token_type_ids") else value for key, value in inputs.items()}

    def drop_states(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What our plan reads of `inputs`."""
        return {key: value for key, value in inputs.items() if not any(fnmatch(key, pattern) for pattern in self.state or ())}


def _zoo(name: str, **options) -> Callable[[Path], Path]:
    return lambda folder: zoo.MODELS[name].write(folder / f"{name}.onnx", **options)


def _bert(name: str) -> Callable[[Path], Path]:
    return lambda folder: zoo.save(zoo.bert(zoo.BERTS[name], zoo.Random(0)), folder / f"{name}.onnx")


def _real(name: str) -> Callable[[Path], Path]:
    return lambda folder: real_models.MODELS[name].path()


def _sentences() -> dict[str, np.ndarray]:
    return zoo.encode([zoo.SENTENCES[i % len(zoo.SENTENCES)] for i in range(8)], 128)


def _token() -> dict[str, np.ndarray]:
    """A token at position 64 of 128, and empty caches of GPT-2's 12 layers of 12 heads of 64."""
    cache = np.zeros((1, 12, 128, 64), np.float32)
    caches = {f"past_{kind}_{layer}": cache.copy() for kind in ("key", "value") for layer in range(12)}
    return {"input_ids": np.full((1, 1), 1000), "position": np.full(1, 64), **caches}


CASES = {
    "minilm 8x128": Case(lambda folder: zoo.save(zoo.minilm(), folder / "minilm.onnx"), {"batch": 8, "sequence": 128}, _sentences),
    "bert-base 1x128": Case(_bert("bert-base"), {"batch": 1, "sequence": 128}),
    "bert-base 8x128": Case(_bert("bert-base"), {"batch": 8, "sequence": 128}),
    "gpt2 1x128": Case(_zoo("gpt2"), {"batch": 1, "sequence": 128}),
    "gpt2 decode": Case(_zoo("gpt2", cache="static", positions=128), {"batch": 1, "sequence": 1}, _token, {"past_*": "present_*"}),
    "vit-b/16 1": Case(_zoo("vit"), {"batch": 1}),
    "resnet-50 1": Case(_zoo("resnet"), {"batch": 1}),
    "resnet-50 8": Case(_zoo("resnet"), {"batch": 8}),
    "unet 1": Case(_zoo("unet"), {"batch": 1}),
    "lstm 4x64": Case(_zoo("lstm"), {"batch": 4, "sequence": 64}),
    "ocr-detector": Case(_real("ocr-detector"), {}, real_models.detector_inputs),
    "ocr-recogniser": Case(_real("ocr-recogniser"), {}, real_models.recogniser_inputs),
}


def open_dims(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, int]:
    """What the inputs' shapes say of the model's named dimensions."""
    dims = {}
    for value in onnx.load(path, load_external_data=False).graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, inputs[value.name].shape if value.name in inputs else ()):
            if dim.dim_param:
                dims[dim.dim_param] = size
    return dims


def count_flops(path: Path, dims: dict[str, int], folder: Path) -> float:
    """Floating-point operations of matrix products, convolutions and LSTMs, two for a product and a sum; NaN where a shape is not known."""
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    settings.optimized_model_filepath = str(folder / "folded.onnx")  # with what makes shapes computed
    for name, size in dims.items():
        settings.add_free_dimension_override_by_name(name, size)
    onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    graph = onnx.shape_inference.infer_shapes(onnx.load(folder / "folded.onnx"), data_prop=True).graph
    shapes = {t.name: list(t.dims) for t in graph.initializer}
    for value in [*graph.value_info, *graph.input, *graph.output]:
        shapes[value.name] = [d.dim_value if d.HasField("dim_value") else math.nan for d in value.type.tensor_type.shape.dim]
    total = 0.0
    for node in graph.node:
        if node.op_type in ("MatMul", "Gemm", "Conv", "FusedConv", "FusedGemm", "FusedMatMul"):
            second, result = shapes.get(node.input[1]), shapes.get(node.output[0])
            if second is None or result is None:
                return math.nan
            transposed = any(a.name == "transB" and a.i for a in node.attribute)
            depth = math.prod(second[1:]) if "Conv" in node.op_type else second[-1] if transposed else second[-2]
            total += 2 * math.prod(result) * depth
        elif node.op_type == "ConvTranspose":
            total += 2 * math.prod(shapes.get(node.input[0], [math.nan])) * math.prod(shapes[node.input[1]][1:])
        elif node.op_type == "LSTM":
            length, batch, _ = shapes.get(node.input[0], [math.nan] * 3)
            total += 2 * length * batch * (math.prod(shapes[node.input[1]]) + math.prod(shapes[node.input[2]]))
    return total


def run_onnxruntime(path: Path, inputs, dims: dict[str, int], threads: int):
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.log_severity_level = 3
    for name, size in dims.items():
        settings.add_free_dimension_override_by_name(name, size)
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda: dict(zip(names, session.run(None, inputs)))


def run_openvino(path: Path, inputs, dims: dict[str, int], threads: int):
    """None where OpenVINO is not installed, or cannot read the model."""
    try:
        import openvino
    except ImportError:
        return None
    core = openvino.Core()
    try:
        model = core.read_model(path)
        names = [output.get_any_name() for output in model.outputs]
        model.reshape({port.get_any_name(): list(inputs[port.get_any_name()].shape) for port in model.inputs})
        settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        request = core.compile_model(model, "CPU", settings).create_infer_request()
    except RuntimeError as error:
        print(f"note: OpenVINO cannot run {path.stem}: {str(error).splitlines()[0]}", file=sys.stderr)
        return None

    def run():
        results = request.infer(inputs, share_inputs=True, share_outputs=True)
        return {name: results[i] for i, name in enumerate(names)}

    return run


def measure(call, seconds: float) -> float:
    """Median milliseconds of `call` over at least `seconds`, and three calls or more."""
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def bootstrap(ratios: list[float]) -> tuple[float, float]:
    """95 % of the medians of samples drawn from these, with their seed."""
    draws = np.random.default_rng(0).choice(ratios, (2000, len(ratios)))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return float(low), float(high)


def interleave(sides: dict[str, Callable], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each side in each round."""
    times = {name: [] for name in sides}
    for call in sides.values():
        call()
    for i in range(rounds):
        names = list(sides)
        for name in names[i % len(names) :] + names[: i % len(names)]:
            times[name].append(measure(sides[name], seconds))
    return times


def measure_peak(folder: Path, threads: int, bin: Path | None) -> float:
    """GFLOP/s of a product of 1536 x 1536 matrices, of the fastest side."""
    size = 1536
    value = lambda name: onnx.helper.make_tensor_value_info(name, 1, [size, size])  # noqa: E731
    weight = onnx.numpy_helper.from_array(np.random.default_rng(0).standard_normal((size, size), dtype=np.float32), "w")
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "product", [value("x")], [value("y")], [weight])
    path = zoo.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), folder / "product.onnx")
    inputs = {"x": np.random.default_rng(1).standard_normal((size, size), dtype=np.float32)}
    plan = gridloom.compile(path, folder / f"product{threads}.plan", tools=bin)
    with gridloom.load(plan, threads=threads) as session:
        sides = {"ours": lambda: session.run(inputs), "ort": run_onnxruntime(path, inputs, {}, threads), "ov": run_openvino(path, inputs, {}, threads)}
        times = interleave({name: call for name, call in sides.items() if call}, 5, 0.3)
    return 2 * size**3 / min(min(each) for each in times.values()) / 1e6


def compare(name: str, mesh: str, threads: int, peak: float, folder: Path, options) -> float:
    """Prints a row; the ratio to the faster peer."""
    case = CASES[name]
    path = case.make(folder)
    inputs = case.make_inputs(path)
    dims = case.dims or open_dims(path, inputs)
    file = re.sub(r"\W", "-", f"{name}-{mesh}-{threads}") + ".plan"
    plan = gridloom.compile(path, folder / file, mesh=mesh, tools=options.bin, dims=dims, state=case.state)
    own = case.drop_states(inputs)
    with gridloom.load(plan, threads=max(1, threads // plan.ranks)) as session:
        sides = {
            "ours": lambda: session.run(own),
            "ort": run_onnxruntime(path, inputs, dims, threads),
            "ov": run_openvino(path, inputs, dims, threads),
        }
        sides = {side: call for side, call in sides.items() if call}
        ours, expected = sides["ours"](), sides["ort"]()
        error = max(float(np.abs(ours[key] - value).max(initial=0)) for key, value in expected.items() if not any(fnmatch(key, kept) for kept in (case.state or {}).values()))
        times = interleave(sides, options.rounds, options.seconds)
    medians = {side: statistics.median(each) for side, each in times.items()}
    peer = min((side for side in medians if side != "ours"), key=medians.get)
    ratios = [a / b for a, b in zip(times["ours"], times[peer])]
    ratio, (low, high) = statistics.median(ratios), bootstrap(ratios)
    share = count_flops(path, dims, folder) / medians["ours"] / 1e6 / peak
    print(
        f"{name:<16}{threads:>8}  {mesh:<9}{medians['ours']:>9.2f}{medians['ort']:>9.2f}{medians.get('ov', math.nan):>9.2f}"
        f"{ratio:>7.3f} [{low:.3f}, {high:.3f}]{100 * share:>6.0f} %{error:>10.1e}",
        flush=True,
    )
    return ratio


def compare_all(threads: int, options) -> None:
    """Prints the table of one number of threads."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:threads]))
    versions = [f"onnxruntime {onnxruntime.__version__}"]
    try:
        import openvino

        versions.append(f"openvino {openvino.__version__}")
    except ImportError:
        versions.append("without openvino")
    with tempfile.TemporaryDirectory() as folder:
        peak = measure_peak(Path(folder), threads, options.bin)
        print(f"{', '.join(versions)}; {threads} thread{'s' * (threads > 1)}: {peak:.0f} GFLOP/s in a product of 1536 x 1536 matrices")
        print(f"{'model':<16}{'threads':>8}  {'mesh':<9}{'ours ms':>9}{'ort ms':>9}{'ov ms':>9}{'ratio':>7} {'95 %':<14}{'peak':>8}{'max error':>10}", flush=True)
        ratios = [
            compare(name, mesh, threads, peak, Path(folder), options)
            for name in options.model or CASES
            for mesh in options.mesh or ["data=1"]
        ]
    print(f"geometric mean of the ratios: {statistics.geometric_mean(ratios):.3f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=None, help="folder of the tools (default: found by gridloom)")
    parser.add_argument("--model", action="append", choices=list(CASES), help="repeatable; default all")
    parser.add_argument("--mesh", action="append", help="repeatable; default data=1, a single rank")
    parser.add_argument("--threads", type=int, action="append", help="repeatable; default 1 and all cores")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.3, help="per side and round, and three calls at least")
    options = parser.parse_args()

    # Peers count the cores once, so each number of threads is a process of its own.
    for threads in options.threads or sorted({1, len(os.sched_getaffinity(0))}):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            pool.submit(compare_all, threads, options).result()
    return 0


if __name__ == "__main__":
    sys.exit(main())
