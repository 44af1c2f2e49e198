"""Makes a failing case smaller. The results of every node are known, so a node can be removed and its results become inputs."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import re
import shlex
import time
from pathlib import Path

import numpy as np
import onnx

from . import cases
from .cases import Case, Setup
from .graph import reads

SECONDS = float(os.environ.get("GRIDLOOM_SHRINK_SECONDS", "150"))  # for all attempts together


def kind(error: str) -> str:
    """The part of the error that stays the same while a case shrinks, without numbers and names."""
    words = re.sub(r"'[^']*'|\d+", "", error)
    return words[:24] if error.startswith("wrong") else words[:60]


def prune(case: Case) -> Case:
    """Removes everything that no output needs."""
    needed = {v.name for v in case.outputs}
    nodes = []
    for node in reversed(case.nodes):
        if needed & set(node.output):
            nodes.append(node)
            needed |= reads(node)
    nodes.reverse()
    read = {name for node in nodes for name in reads(node)}
    there = read | {v.name for v in case.outputs}
    pins = {name: text for name, text in case.setup.shard.items() if name in there}
    return dataclasses.replace(
        case,
        setup=dataclasses.replace(case.setup, shard=pins),
        nodes=nodes,
        inputs=[v for v in case.inputs if v.name in read],
        initializers=[v for v in case.initializers if v.name in read],
    )


def without(case: Case, index: int) -> Case | None:
    """Removes a node and makes its results inputs."""
    node = case.nodes[index]
    made = [name for name in node.output if name]
    outputs = [v for v in case.outputs if v.name not in made]
    if not outputs:
        return None
    read = {name for other in case.nodes for name in reads(other)}
    inputs = case.inputs + [case.values[name] for name in made if name in read]
    return prune(
        dataclasses.replace(case, nodes=case.nodes[:index] + case.nodes[index + 1 :], inputs=inputs, outputs=outputs)
    )


def smaller_setups(setup: Setup):
    for name in setup.shard:
        yield dataclasses.replace(setup, shard={k: v for k, v in setup.shard.items() if k != name})
    if setup.microbatches:
        yield dataclasses.replace(setup, microbatches=None)
        if setup.microbatches > 2:
            yield dataclasses.replace(setup, microbatches=2)
    for name in ("unroll", "chunk_matmul"):
        if getattr(setup, name) is not None:
            yield dataclasses.replace(setup, **{name: None})
    axes = setup.mesh.split(",") if setup.mesh else []
    for axis in axes:
        if all(axis.split("=")[0] not in text for text in setup.shard.values()):
            mesh = ",".join(a for a in axes if a != axis)
            yield dataclasses.replace(setup, mesh=mesh, strategy=setup.strategy if mesh else None)
    if setup.strategy and not setup.strategy.startswith("random"):
        yield dataclasses.replace(setup, strategy=None)


def smaller(case: Case):
    if len(case.outputs) > 1:
        for output in case.outputs:
            yield prune(dataclasses.replace(case, outputs=[output]))
        for output in case.outputs:
            yield prune(dataclasses.replace(case, outputs=[v for v in case.outputs if v is not output]))
    for setup in smaller_setups(case.setup):
        yield dataclasses.replace(case, setup=setup)
    for index in range(len(case.nodes)):
        yield without(case, index)
    for index in reversed(range(len(case.nodes))):  # cuts the model off earlier
        made = [case.values[n] for n in case.nodes[index].output if n]
        if not any(v in case.outputs for v in made):
            yield prune(dataclasses.replace(case, outputs=made))
    for value in case.inputs:
        inputs = [v for v in case.inputs if v is not value]
        yield dataclasses.replace(case, inputs=inputs, initializers=[*case.initializers, value])


def size(case: Case) -> tuple:
    setup = case.setup
    return (
        len(case.nodes),
        len(case.outputs),
        len(setup.mesh),
        len(setup.shard),
        setup.microbatches or 0,
        len(case.inputs),
    )


def attempt(case: Case, folder: Path) -> str:
    """Runs the case in a process of its own, which may crash, and returns its error."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        sender.send(cases.check(case, folder).error)

    process = context.Process(target=child)
    process.start()
    sender.close()
    try:
        error = receiver.recv() if receiver.poll(180) else "no answer"
    except EOFError:
        process.join()
        error = f"the process died with {process.exitcode}"
    if process.is_alive() and error == "no answer":
        process.kill()
    process.join()
    return error


def shrink(case: Case, folder: Path) -> tuple[Case, str]:
    """The smallest case found that fails in the same way, and its error."""
    error = attempt(case, folder)
    if not error:
        return case, ""
    wanted, end = kind(error), time.monotonic() + SECONDS
    found = True
    while found and time.monotonic() < end:
        found = False
        for other in smaller(case):
            if other is None or not other.nodes or size(other) >= size(case):
                continue
            message = attempt(other, folder)
            if message and kind(message) == wanted:
                case, error, found = other, message, True
                break
            if time.monotonic() > end:
                break
    return case, error


def keep(case: Case, folder: Path) -> str:
    """Writes model, inputs and expected outputs. Returns the commands that show the failure."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(case.model(), str(folder / "model.onnx"))
    given = []
    for value in case.inputs:
        np.save(folder / f"{value.name}.npy", value.array)
        given += ["--input", f"{value.name}={folder / value.name}.npy"]
    for value in case.outputs:
        np.save(folder / f"expected-{value.name}.npy", value.array)
    compile_line = [
        "gridloom",
        "compile",
        str(folder / "model.onnx"),
        "-o",
        str(folder / "model.plan"),
        *case.setup.flags(),
    ]
    run_line = ["gridloom", "run", str(folder / "model.plan"), *given, "--output", str(folder / "out")]
    return shlex.join(compile_line) + "\n    " + shlex.join(run_line)


def shrink_seed(seed: int, only: list[str] | None, folder: Path) -> str:
    case, error = shrink(cases.make(seed, only), cases.scratch() / "shrink")
    if not error:
        return f"    seed {seed} does not fail again"
    nodes = "; ".join(
        f"{','.join(n.output)} = {n.op_type}({', '.join(n.input)})"
        + "".join(f" {a.name}={onnx.helper.printable_attribute(a).partition(' = ')[2][:60]}" for a in n.attribute)
        for n in case.nodes
    )
    shapes = {v.name: f"{v.dtype}{list(v.shape)}" for v in [*case.inputs, *case.initializers, *case.outputs]}
    return f"    shrunk to {len(case.nodes)} nodes: {nodes}\n    {shapes}\n    {error}\n    {keep(case, folder / str(seed))}"
