"""Models on one machine: our time over ONNX Runtime's, same threads, same run.

    .venv/bin/python bench/cpu_vs_ort.py [--bin build/release/bin] [--model minilm|bert-base|resnet50]... [--mesh model=2]...
        [--threads N]... [--rounds 5]

Both sides use the same number of threads in total (`--threads`, default all cores: ranks x intra-op threads). Rounds
alternate between the two, so that a slow moment of the machine hits both; the figure is the median. MiniLM has its trained
weights, the others random ones, of which only the time is of interest; errors are compared for all."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import gridloom
import numpy as np
import onnx
import onnxruntime
from gridloom import zoo

# The sizes of named dimensions.
MODELS = {
    "minilm": {"batch": 8, "sequence": 128},
    "bert-base": {"batch": 1, "sequence": 128},
    "resnet50": {"batch": 1},
}


def make(name: str, dims: dict[str, int], folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """The model's file, and its inputs."""
    if name == "minilm":
        sentences = [zoo.SENTENCES[i % len(zoo.SENTENCES)] for i in range(dims["batch"])]
        return zoo.save(zoo.minilm(), folder / "minilm.onnx"), zoo.encode(sentences, dims["sequence"])
    model = zoo.MODELS["resnet"].make() if name == "resnet50" else zoo.bert(zoo.BERTS[name], zoo.Random(0))
    inputs = zoo.random_inputs(model.graph, dims, zoo.BERTS["bert-base"].vocabulary)
    # Token types and masks are 0 or 1.
    inputs = {key: value % 2 if key in ("attention_mask", "token_type_ids") else value for key, value in inputs.items()}
    path = folder / f"{name}.onnx"
    onnx.save_model(model, str(path))
    return path, inputs


def median_ms(call, seconds: float) -> float:
    """Median milliseconds of `call` over at least `seconds` and five calls, after one to warm up."""
    call()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def compare(model: Path, inputs: dict[str, np.ndarray], dims: dict[str, int], mesh: str, threads: int, options) -> str:
    """The times of both sides for one model, mesh and number of threads, as a row."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    reference = onnxruntime.InferenceSession(str(model), settings, providers=["CPUExecutionProvider"])
    ranks = int(np.prod([int(axis.split("=")[1]) for axis in mesh.split(",")]))
    plan = gridloom.compile(
        model, model.with_name(f"{model.stem}-{mesh}-{threads}.plan"), mesh=mesh, tools=options.bin, dims=dims
    )
    with gridloom.load(plan, threads=max(1, threads // ranks)) as session:
        outputs, expected = session.run(inputs), reference.run(None, inputs)
        names = [output.name for output in reference.get_outputs()]
        error = max(float(np.abs(outputs[name] - value).max()) for name, value in zip(names, expected))
        rounds = [
            (median_ms(lambda: session.run(inputs), options.seconds),
             median_ms(lambda: reference.run(None, inputs), options.seconds))
            for _ in range(options.rounds)
        ]  # fmt: skip
    ours, theirs = (statistics.median(side) for side in zip(*rounds))
    ratio = statistics.median(a / b for a, b in rounds)
    return f"{model.stem:<12}{threads:>8}  {mesh:<10}{ours:>10.2f}{theirs:>10.2f}{ratio:>8.2f}{error:>12.1e}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=None, help="folder of the tools (default: found by gridloom)")
    parser.add_argument("--model", action="append", choices=list(MODELS), help="repeatable; default all")
    parser.add_argument("--mesh", action="append", help="repeatable; default data=1, and data=2 and model=2 where there "
                        "are threads for two ranks; a model whose batch is 1 is not split over data")  # fmt: skip
    parser.add_argument("--threads", type=int, action="append", help="repeatable; default all cores")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="per side and round")
    options = parser.parse_args()

    print(f"{'model':<12}{'threads':>8}  {'mesh':<10}{'ours ms':>10}{'ort ms':>10}{'ratio':>8}{'max error':>12}")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.model or MODELS:
            dims = MODELS[name]
            model, inputs = make(name, dims, Path(folder))
            for threads in options.threads or [os.cpu_count()]:
                usual = ["data=1"] + (["data=2", "model=2"] if threads > 1 else [])
                for mesh in options.mesh or [m for m in usual if m != "data=2" or dims["batch"] > 1]:
                    print(compare(model, inputs, dims, mesh, threads, options), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
