"""Training steps on one machine: our time over that of JAX's jit with optax, same threads, same run.

    .venv/bin/python bench/train_vs_jax.py [--bin build/release/bin] [--model mlp|bert-tiny|minilm|gpt|resnet-50]... [--threads N]...
        [--rounds 10] [--seconds 2] [--jax-python PATH]
    .venv/bin/python bench/train_vs_jax.py --ranks 2 [--zero 1] [--model minilm]...     two ranks of one core against one; no peer is needed

Forward, cross entropy, backward and AdamW in float32, from the same weights, on one batch. JAX donates weights and states. Each
side is a process of its own, limited to the first N processors by its affinity mask, which is how XLA's pool is limited, too;
`--jax-python` is an interpreter that has jax and optax, where this one has not. Rounds alternate between the two, and a row has
the medians: `ms` by the clock, `cpu` in processor time of all threads, which other programs disturb less. `MiB` is the peak resident
memory of three steps above what the process had when it was ready. The losses of the first steps must agree.

ResNet-50 takes the statistics of its batch; its peer is PyTorch where the interpreter has torch, else JAX. With `--ranks N` there is
no peer: N ranks that split the batch, a core and a thread each, against one rank on one core, by default on MiniLM and bert-tiny."""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib.util
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS = 3  # whose losses are compared
TOLERANCE = 2e-4  # relative
LEARNING_RATE, WEIGHT_DECAY = 1e-4, 0.01
DIMS = {
    "mlp": {"batch": 256},
    "bert-tiny": {"batch": 32, "sequence": 128},
    "minilm": {"batch": 8, "sequence": 128},
    "gpt": {"batch": 4, "sequence": 256},
    "resnet-50": {"batch": 4},
}
SCALED = ("minilm", "bert-tiny")


# Models to train


def make(name: str, folder: Path) -> Path:
    """Writes the model's file with random weights, and a batch next to it."""
    import numpy as np
    import onnx
    from gridloom import zoo

    weights = zoo.Random(0)
    if name == "mlp":
        model = zoo.mlp([1024] * 5, weights)
    elif name == "gpt":
        model = zoo.gpt2(zoo.Gpt2Config(layers=4, hidden=256, heads=4), weights)
    elif name == "resnet-50":
        model = zoo.MODELS["resnet"].make(training=True)
    else:
        model = zoo.bert(zoo.BERTS[name], weights, name)
    path = folder / f"{name}.onnx"
    onnx.save_model(model, str(path))
    inputs = zoo.random_inputs(model.graph, DIMS[name], zoo.BERTS["bert-base"].vocabulary)
    inputs |= {key: np.ones_like(value) for key, value in inputs.items() if key == "attention_mask"}
    inputs |= {key: value % 2 for key, value in inputs.items() if key == "token_type_ids"}
    shape = [d.dim_value or DIMS[name][d.dim_param] for d in model.graph.output[0].type.tensor_type.shape.dim]
    inputs["labels"] = np.random.default_rng(0).integers(0, shape[-1], shape[:-1])
    np.savez(folder / f"{name}.npz", **inputs)
    return path


# One side


def make_ours(model: Path, options) -> tuple:
    """Returns a function that takes a step and returns its loss, and versions."""
    import gridloom
    import numpy as np
    import onnx
    from gridloom._tools import find_tool

    output = onnx.load(str(model), load_external_data=False).graph.output[0].name
    mesh = {"data": options.ranks} if options.ranks > 1 else None
    plan = gridloom.compile(
        model, model.with_suffix(f".{options.ranks}.plan"), mesh=mesh, tools=options.bin, dims=DIMS[model.stem], train=True,
        loss=f"cross_entropy({output}, labels)", optimizer=f"adamw(lr={LEARNING_RATE}, weight_decay={WEIGHT_DECAY})",
        zero=options.zero if mesh else None,
    )  # fmt: skip
    trainer = gridloom.Trainer(plan, threads=options.threads[0])
    batch = dict(np.load(model.with_suffix(".npz")))
    return lambda: trainer.step(batch)["loss"], subprocess.check_output([find_tool("gridloom", options.bin), "--version"], text=True).strip()


def make_torch(model: Path, options) -> tuple:
    """ResNet-50 as a PyTorch module of torch_models."""
    import numpy as np
    import onnx
    import torch
    import torch_models
    from onnx import numpy_helper

    torch.set_num_threads(options.threads[0])
    module = torch_models.resnet().train()
    torch_models.load_in_order(module, [numpy_helper.to_array(tensor) for tensor in onnx.load(str(model)).graph.initializer])
    batch = np.load(model.with_suffix(".npz"))
    pixels, labels = torch.from_numpy(batch["pixels"]), torch.from_numpy(batch["labels"])
    optimizer = torch.optim.AdamW(module.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)

    def run():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(pixels), labels)
        loss.backward()
        optimizer.step()
        return float(loss)

    return run, f"torch {torch.__version__}"


def make_theirs(model: Path, options) -> tuple:
    if model.stem == "resnet-50" and importlib.util.find_spec("torch"):
        return make_torch(model, options)
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    import jax_models
    import numpy as np
    import onnx
    import optax

    proto = onnx.load(str(model))
    forward, (weights, _) = jax_models.function(proto), jax_models.split(proto)
    batch = {name: jnp.asarray(value.astype(np.int32) if value.dtype == np.int64 else value)
             for name, value in np.load(model.with_suffix(".npz")).items()}  # fmt: skip
    labels = batch.pop("labels")
    optimizer = optax.adamw(LEARNING_RATE, weight_decay=WEIGHT_DECAY)

    def loss(weights):
        logits = forward(weights, batch)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def step(weights, states):
        value, gradients = jax.value_and_grad(loss)(weights)
        updates, states = optimizer.update(gradients, states, weights)
        return optax.apply_updates(weights, updates), states, value

    weights = {name: jnp.array(value) for name, value in weights.items()}
    now = [weights, optimizer.init(weights)]
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(*now).compile()

    def run():
        now[0], now[1], value = compiled(*now)
        return float(value)

    return run, f"jax {jax.__version__}, jaxlib {jax.lib.__version__}, optax {optax.__version__}"


def read_status(key: str) -> float:
    """MiB of a line of /proc/self/status."""
    return int(re.search(key + r":\s+(\d+)", Path("/proc/self/status").read_text()).group(1)) / 1024


def serve(options) -> int:
    """One side: reads seconds to run from lines of standard input, and answers each with a line of JSON."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads[0] * options.ranks])
    step, versions = (make_ours if options.side == "ours" else make_theirs)(options.file, options)
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = read_status("VmRSS")
    losses = [step() for _ in range(STEPS)]
    print(json.dumps({"losses": losses, "mib": read_status("VmHWM") - before, "versions": versions}), flush=True)
    for line in sys.stdin:
        clock, cpu, end = [], [], time.perf_counter() + float(line)
        while len(clock) < 3 or time.perf_counter() < end:
            begin = time.perf_counter(), time.process_time()
            step()
            clock.append((time.perf_counter() - begin[0]) * 1e3)
            cpu.append((time.process_time() - begin[1]) * 1e3)
        print(json.dumps({"ms": statistics.median(clock), "cpu": statistics.median(cpu)}), flush=True)
    return 0


# Both sides


class Side:
    """A process that runs steps of one side."""

    def __init__(self, side: str, model: Path, threads: int, options, ranks: int = 1):
        python = options.jax_python if side == "theirs" else sys.executable
        command = [python, __file__, "--side", side, "--file", model, "--threads", str(threads), "--ranks", str(ranks)]
        command += ["--zero", str(options.zero)] if options.zero else []
        if options.bin:
            command += ["--bin", options.bin]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = self.read()

    def read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"error: {self.process.args[0]} ended with exit code {self.process.wait()}; see above")
        return json.loads(line)

    def run(self, seconds: float) -> dict:
        print(seconds, file=self.process.stdin, flush=True)
        return self.read()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def require_equal_losses(model: str, ours: Side, theirs: Side) -> None:
    for number, (a, b) in enumerate(zip(ours.first["losses"], theirs.first["losses"])):
        if not math.isclose(a, b, rel_tol=TOLERANCE):
            raise SystemExit(f"error: {model}: the loss of step {number + 1} is {a}, the other's {b}; there is nothing to compare")


def scale(model: Path, options) -> str:
    """A row of the times of one rank and of several, with one core per rank."""
    alone, many = Side("ours", model, 1, options), Side("ours", model, 1, options, options.ranks)
    require_equal_losses(model.stem, alone, many)
    rounds = [(alone.run(options.seconds), many.run(options.seconds)) for _ in range(options.rounds)]
    alone.close()
    many.close()
    one, several = (statistics.median(each["ms"] for each in side) for side in zip(*rounds))
    ratio = statistics.median(a["ms"] / b["ms"] for a, b in rounds)
    return f"{model.stem:<10}{options.ranks:>8}{one:>12.1f}{several:>12.1f}{ratio:>10.2f}"


def compare(model: Path, threads: int, options) -> str:
    """A row of both sides' figures for one model and number of threads."""
    ours, theirs = Side("ours", model, threads, options), Side("theirs", model, threads, options)
    require_equal_losses(model.stem, ours, theirs)
    rounds = [(ours.run(options.seconds), theirs.run(options.seconds)) for _ in range(options.rounds)]
    ours.close()
    theirs.close()
    row = f"{model.stem:<10}{threads:>8}"
    for key in ("ms", "cpu"):
        a, b = (statistics.median(each[key] for each in side) for side in zip(*rounds))
        ratio = statistics.median(a[key] / b[key] for a, b in rounds)
        row += f"{a:>10.1f}{b:>9.1f}{ratio:>7.2f}"
    a, b = ours.first["mib"], theirs.first["mib"]
    return row + f"{a:>8.0f}{b:>7.0f}{a / b:>7.2f}\n  {ours.first['versions']}; {theirs.first['versions']}"


def has_jax(python: str) -> bool:
    if python == sys.executable:
        return all(importlib.util.find_spec(name) for name in ("jax", "optax"))
    return subprocess.run([python, "-c", "import jax, optax"], capture_output=True).returncode == 0


def has_torch(python: str) -> bool:
    return subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, default=None, help="folder of the tools (default: found by gridloom)")
    parser.add_argument("--model", action="append", choices=list(DIMS), help="repeatable; default all")
    parser.add_argument("--threads", type=int, action="append", help="repeatable; default 1, and all processors")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2.0, help="per side and round, at least three steps")
    parser.add_argument("--jax-python", default=sys.executable, help="interpreter that has jax and optax; default: this one")
    parser.add_argument("--ranks", type=int, default=1, help="so many ranks of one core against one, in place of a peer")
    parser.add_argument("--zero", type=int, help="with --ranks: what the ranks split, as `compile --zero`")
    parser.add_argument("--side", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        return serve(options)
    if options.ranks > 1:
        if options.ranks > len(os.sched_getaffinity(0)):
            print(f"error: {options.ranks} ranks need as many cores; here are {len(os.sched_getaffinity(0))}")
            return 1
        print(f"{'model':<10}{'ranks':>8}{'1 rank, ms':>12}{'ranks, ms':>12}{'faster':>10}")
        with tempfile.TemporaryDirectory() as folder:
            for name in options.model or SCALED:
                print(scale(make(name, Path(folder)), options), flush=True)
        return 0
    only_torch = options.model == ["resnet-50"] and has_torch(options.jax_python)
    if not only_torch and not has_jax(options.jax_python):
        print(f"error: {options.jax_python} has no jax and optax; pip install jax optax, or name another with --jax-python")
        return 1

    print(f"{'':18}{'clock, ms':>26}{'processor time, ms':>26}{'peak, MiB':>22}")
    print(f"{'model':<10}{'threads':>8}" + f"{'ours':>10}{'jax':>9}{'ratio':>7}" * 2 + f"{'ours':>8}{'jax':>7}{'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.model or DIMS:
            model = make(name, Path(folder))
            for threads in options.threads or sorted({1, len(os.sched_getaffinity(0))}):
                print(compare(model, threads, options), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
