"""`gridloom.compile`: the compiler as a function, which runs the `gridloom-compile` program."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ._tools import find_tool
from .plan import Plan


class CompileError(RuntimeError):
    """The compiler refused; the message is what it printed."""


def compile(
    model: str | os.PathLike,
    output: str | os.PathLike | None = None,
    *,
    mesh: str | Mapping[str, int] | None = None,
    devices: int | str | None = None,
    cluster: str | os.PathLike | None = None,
    dims: Mapping[str, int | Sequence[int]] | None = None,
    strategy: str | os.PathLike | None = None,
    seeds: bool = True,
    shard: Mapping[str, str] | None = None,
    microbatches: int | None = None,
    state: Mapping[str, str] | None = None,
    unroll: int | None = None,
    target: str | None = None,
    precision: str | None = None,
    cudnn: bool = True,
    memory_limit: str | int | None = None,
    chunk_matmul: int | None = None,
    train: bool = False,
    loss: str | Sequence[str] = (),
    metric: str | Sequence[str] = (),
    optimizer: str | None = None,
    clip: str | None = None,
    loss_scale: str | float | None = None,
    param: Mapping[str, str] | None = None,
    tie: Mapping[str, str] | None = None,
    init: Mapping[str, str] | None = None,
    seed: int | None = None,
    zero: int | None = None,
    bucket_size: str | int | None = None,
    dump_ir: str | os.PathLike | None = None,
    emit_onnx: str | os.PathLike | None = None,
    save_strategy: str | os.PathLike | None = None,
    stop_after: str | None = None,
    tools: str | os.PathLike | None = None,
) -> Plan | str:
    """Compiles the ONNX file `model` for a mesh of devices and returns the plan, a folder at `output`.

    `output` defaults to `model` with the suffix .plan. `mesh` is "data=2,model=2" or the same as a mapping. `devices` is 4 or
    "8xH100-80GB": without a `mesh` the planner chooses one for these devices, with it the mesh takes the first of them. Without both the
    plan is for one device. `cluster` is a file or a preset such as "HGX-H100x2" (docs/clusters.md): a mesh takes its first devices; without
    a mesh all are used. `dims` binds the model's symbolic dimensions to one size each, or to several for several specialisations.
    `strategy` is auto, search, dp, tp, pp, dp+tp …, or the path of a .strategy file (docs/strategy-files.md); without `seeds`, auto skips
    known strategies and only searches. `shard` maps value names to shardings such as "[{data},{model}]". `state` maps inputs to the outputs
    that are their values in the next call, such as {"past_*": "present_*"}: the session keeps them. Loops of at most `unroll` iterations
    become copies of their body. `target` is cpu, the default, or a GPU: cuda:sm_80, cuda:sm_90, cuda:sm_100; without `cudnn`, convolutions
    and attention on GPUs become matrix multiplications and kernels. `precision` is the type that the model's f32 may become: f32, tf32,
    bf16 or f16. `memory_limit` is per device, such as "16GiB"; `chunk_matmul` splits matmuls next to a collective into that many chunks.

    With `train` the plan trains the model (`gridloom.Trainer`), and the following options are written as on the command line. `loss` and
    `metric` are one or several, such as "cross_entropy(logits, labels)" and "accuracy(logits, labels)". `optimizer` is such as
    "adamw(lr=3e-4, weight_decay=0.1)", `clip` limits gradients, `loss_scale` is "dynamic", a number or "off" (by default dynamic with f16).
    `param` maps patterns of weights to their settings, such as {"*.bias": "weight_decay=0"}; `tie` maps weights to those with which they
    become one parameter, such as {"embed": "transpose(head)"}; `init` maps patterns of weights to the distributions from which they are
    drawn with `seed`, such as {"*": "normal(0, 0.02)", "*.bias": "zeros"}. `zero`, 1 to 3, splits the training states over the axes of the
    batch. `microbatches` is then the number of parts of a step's batch, `bucket_size` the bytes of gradients per message, such as "25MiB".

    `dump_ir` is a folder for the program after each phase, `emit_onnx` a file for the model with its shardings, `save_strategy` a file
    for the split as text. With `stop_after`, a phase's name, no plan is made and the result is the program after that phase, empty with
    `dump_ir`. `tools` is the folder of the compiler's program. The compiler's messages are in the plan's `log`. The plan keeps reading
    weights from the model file, so leave that in place. Raises CompileError with the compiler's message."""
    model = Path(model)
    output = Path(output) if output is not None else model.with_suffix(".plan")
    for name, value in [("dims", dims), ("shard", shard), ("state", state), ("param", param), ("tie", tie), ("init", init)]:
        if value is not None and not isinstance(value, Mapping):
            raise TypeError(f"{name} is a mapping, as dims={{'batch': 8}}, not {value!r}")
    command = [find_tool("gridloom-compile", tools), "compile", model, "-o", output]
    if isinstance(mesh, Mapping):
        mesh = ",".join(f"{axis}={size}" for axis, size in mesh.items())
    if mesh:  # a plan for one device has an empty one
        command += ["--mesh", mesh]
    for name, sizes in (dims or {}).items():
        sizes = [sizes] if isinstance(sizes, int) else sizes
        command += ["--dim", f"{name}={','.join(map(str, sizes))}"]
    for name, sharding in (shard or {}).items():
        command += ["--shard", f"{name}={sharding}"]
    for inputs, outputs in (state or {}).items():
        command += ["--state", f"{inputs}={outputs}"]
    if train:
        command.append("--train")
    for flag, values in (("--loss", loss), ("--metric", metric)):
        for value in [values] if isinstance(values, str) else values:
            command += [flag, value]
    for pattern, settings in (param or {}).items():
        command += ["--param", f"{pattern}: {settings}"]
    for kept, other in (tie or {}).items():
        command += ["--tie", f"{kept}={other}"]
    for pattern, distribution in (init or {}).items():
        command += ["--init", f"{pattern}: {distribution}"]
    options = {"optimizer": optimizer, "clip": clip, "unroll": unroll, "strategy": strategy, "microbatches": microbatches, "target": target, "precision": precision}
    options |= {"devices": devices, "cluster": cluster, "memory-limit": memory_limit, "chunk-matmul": chunk_matmul, "dump-ir": dump_ir}
    options |= {"zero": zero, "bucket-size": bucket_size, "seed": seed, "loss-scale": loss_scale}
    options |= {"emit-onnx": emit_onnx, "save-strategy": save_strategy, "stop-after": stop_after}
    for flag, value in options.items():
        if value is not None:
            command += [f"--{flag}", value]
    if not seeds:
        command.append("--no-seeds")
    if not cudnn:
        command.append("--no-cudnn")
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if result.returncode:
        raise CompileError(_for_python(result.stderr.strip()) or f"gridloom-compile exited with {result.returncode}")
    if stop_after is not None:
        return result.stdout
    return Plan.read(output, log=result.stdout)


def _for_python(message: str) -> str:
    """`message`, with the sizes that it asks for also in the form of `compile`."""
    if not (names := re.findall(r"--dim (?:'([^'=]+)|([^\s=]+))=SIZE", message)):
        return message
    sizes = ", ".join(f"{quoted or plain!r}: SIZE" for quoted, plain in names)
    return f"{message} (in Python dims={{{sizes}}})"
