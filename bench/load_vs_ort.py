"""Time to load a model and memory after loading, against ONNX Runtime; and whether memory grows while it runs.

    .venv/bin/python bench/load_vs_ort.py [--bin build/release/bin] [--model bert-base] [--rounds 5] [--runs 1000] [--threads N]

Each load is a separate process; the sides alternate, with the files in the page cache. `load` ends when the session can run, `first run`
with its first outputs. Memory is the resident set (VmRSS) above that after importing all modules; mapped pages of the weights' file
count. The last lines are of --runs runs in one process of ours. Medians over --rounds, after one that does not count."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import gridloom
import numpy as np
import onnx
from gridloom import zoo

MODELS = {
    "bert-base": (lambda path: zoo.save(zoo.bert(zoo.BERTS["bert-base"], zoo.Random(0)), path), {"batch": 1, "sequence": 128}),
    "minilm": (lambda path: zoo.save(zoo.minilm(), path), {"batch": 1, "sequence": 128}),
    "resnet": (lambda path: zoo.MODELS["resnet"].write(path), {"batch": 1}),
    "gpt2": (lambda path: zoo.MODELS["gpt2"].write(path), {"batch": 1, "sequence": 128}),
}

# The program of each process; its arguments are side, model, plan, inputs, threads, runs.
PROGRAM = """
import gc, json, sys, time
import numpy as np
import gridloom, onnxruntime

side, model, plan, inputs, threads, runs, dims = sys.argv[1:]
inputs = dict(np.load(inputs))

def resident():
    gc.collect()
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmRSS"))

base, begin = resident(), time.perf_counter()
if side == "ours":
    session = gridloom.load(plan, threads=int(threads))
    run = lambda: session.run(inputs)
else:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = int(threads)
    settings.log_severity_level = 3
    for name, size in json.loads(dims).items():
        settings.add_free_dimension_override_by_name(name, size)
    session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    run = lambda: session.run(None, inputs)
loaded = time.perf_counter()
memory = resident() - base
run()
first = time.perf_counter()
found = {"load": (loaded - begin) * 1e3, "first": (first - begin) * 1e3, "memory": memory, "memory first": resident() - base}
for i in range(int(runs)):
    run()
    if i + 1 == max(1, int(runs) // 10):
        found["memory tenth"] = resident() - base
found["memory last"] = resident() - base
print(json.dumps(found))
"""


def load(side: str, model: Path, plan: Path, inputs: Path, dims: dict[str, int], threads: int, runs: int = 0) -> dict[str, float]:
    """Runs one process. Returns milliseconds and MiB by name."""
    words = [sys.executable, "-c", PROGRAM, side, str(model), str(plan), str(inputs), str(threads), str(runs), json.dumps(dims)]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=None, help="folder of the tools (default: found by gridloom)")
    parser.add_argument("--model", action="append", choices=list(MODELS), help="repeatable; default bert-base")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if options.rounds < 1 or options.runs < 1:
        parser.error("--rounds and --runs are at least 1")

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{'model':<12}{'side':<6}{'load ms':>9}{'first run ms':>14}{'MiB loaded':>12}{'MiB first run':>15}")
        for model in options.model or ["bert-base"]:
            make, dims = MODELS[model]
            path = make(folder / f"{model}.onnx")
            plan = gridloom.compile(path, folder / f"{model}.plan", tools=options.bin, dims=dims)
            values = zoo.random_inputs(onnx.load(path, load_external_data=False).graph, dims, 1000)
            np.savez(folder / "inputs.npz", **{k: v % 2 if k in ("attention_mask", "token_type_ids") else v for k, v in values.items()})
            arguments = (path, plan.path, folder / "inputs.npz", dims, options.threads)
            found = {"ours": [], "ort": []}
            for _ in range(options.rounds + 1):
                for side, each in found.items():
                    each.append(load(side, *arguments))
            medians = {side: {key: statistics.median(one[key] for one in each[1:]) for key in each[0]} for side, each in found.items()}
            for side, row in medians.items():
                print(f"{model:<12}{side:<6}{row['load']:>9.0f}{row['first']:>14.0f}{row['memory']:>12.0f}{row['memory first']:>15.0f}")
            ratios = [medians["ours"][key] / medians["ort"][key] for key in ("load", "first", "memory", "memory first")]
            print(f"{model:<12}{'ratio':<6}{ratios[0]:>9.2f}{ratios[1]:>14.2f}{ratios[2]:>12.2f}{ratios[3]:>15.2f}", flush=True)
            long = load("ours", *arguments, runs=options.runs)
            print(f"{model}: {long['memory tenth']:.1f} MiB after {max(1, options.runs // 10)} runs, {long['memory last']:.1f} after {options.runs}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
