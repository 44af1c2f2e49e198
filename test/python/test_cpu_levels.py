"""A plan's kernels for wider registers give the bits of the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import sentences
from onnx import TensorProto, helper

import gridloom
from gridloom import zoo

SIZES = {"batch": 4, "sequence": 8, "past": 4}
# Around the ends of the ranges of integers, and what is in none of them.
EDGES = np.array([sign * np.ldexp(np.float32(scale), bits) for bits in (7, 8, 15, 16, 31, 32, 63, 64, 100) for scale in (0.75, 1, 1.5)
                  for sign in (1, -1)] + [0.0, -0.5, 2.5, np.nan, np.inf, -np.inf], np.float32)  # fmt: skip
LEVELS = ("x86-64-v3", "x86-64-v4")

# Runs each plan of a list and writes its outputs to its file.
PROGRAM = """
import json, os, sys
import numpy as np
import gridloom

for plan, inputs, outputs in json.loads(sys.argv[1]):
    with gridloom.load(plan, threads=1) as session:
        np.savez(outputs, **session.run(dict(np.load(inputs))))
        is_wide = "memfd:cpu.x86-64-v4.so" in open("/proc/self/maps").read()
        assert is_wide == (os.environ["GRIDLOOM_CPU_LEVEL"] == "x86-64-v4"), plan
"""


def run_on(level: str, plans: list[tuple[str, str, str]]) -> None:
    environment = {**os.environ, "GRIDLOOM_CPU_LEVEL": level}
    subprocess.run([sys.executable, "-c", PROGRAM, json.dumps(plans)], check=True, env=environment, timeout=300)


def write_casts(path: Path) -> Path:
    """Casts of f32 to every type of integers."""
    kinds = ["INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64"]
    nodes = [helper.make_node("Cast", ["x"], [kind], to=getattr(TensorProto, kind)) for kind in kinds]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [len(EDGES)])
    outputs = [helper.make_tensor_value_info(kind, getattr(TensorProto, kind), [len(EDGES)]) for kind in kinds]
    return zoo.save(helper.make_model(helper.make_graph(nodes, "casts", [x], outputs), opset_imports=[helper.make_opsetid("", 17)]), path)


def sizes_of(model: Path) -> dict[str, int]:
    inputs = onnx.load(str(model), load_external_data=False).graph.input
    names = {dim.dim_param for value in inputs for dim in value.type.tensor_type.shape.dim}
    return {name: size for name, size in SIZES.items() if name in names}


def test_wider_registers_change_no_bit(tools, tmp_path, minilm_path):
    models = {name: zoo.MODELS[model].write(tmp_path / f"{name}.onnx", **options) for name, (model, options) in zoo.SMALL.items()}
    inputs = {
        name: zoo.random_inputs(onnx.load(path, load_external_data=False).graph, sizes_of(path), 50) for name, path in models.items()
    }
    models["minilm"], inputs["minilm"] = minilm_path, sentences(2, 32)
    models["casts"], inputs["casts"] = write_casts(tmp_path / "casts.onnx"), {"x": EDGES}
    for name, path in models.items():
        dims = {"batch": 2, "sequence": 32} if name == "minilm" else sizes_of(path)
        plan = gridloom.compile(path, tmp_path / f"{name}.plan", dims=dims, tools=tools.folder)
        assert (plan.path / "kernels" / "cpu.x86-64-v4.so").exists(), name
        np.savez(tmp_path / f"{name}.npz", **inputs[name])
    if "avx512vl" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU is not x86-64-v4")
    for level in LEVELS:
        run_on(level, [(f"{tmp_path / name}.plan", f"{tmp_path / name}.npz", f"{tmp_path / name}.{level}.npz") for name in models])
    for name in models:
        narrow, wide = (dict(np.load(tmp_path / f"{name}.{level}.npz")) for level in LEVELS)
        for output, value in narrow.items():
            assert value.tobytes() == wide[output].tobytes(), (name, output)
    casts = np.load(tmp_path / f"casts.{LEVELS[0]}.npz")["UINT64"]
    fits = (EDGES >= 0) & (EDGES < 2**64)
    assert (casts[fits] == EDGES[fits].astype(np.uint64)).all()


def test_a_plan_for_the_widest_has_one_library(tools, tmp_path):
    path = zoo.save(zoo.mlp([16, 64, 8], zoo.Random(0)), tmp_path / "mlp.onnx")
    tools.compile(path, tmp_path / "mlp.plan", "--dim", "batch=4", "--cpu-arch", "x86-64-v4")
    assert [file.name for file in (tmp_path / "mlp.plan" / "kernels").iterdir()] == ["cpu.so"]


def test_halves_need_a_processor_that_converts_them(tools, tmp_path):
    path = zoo.save(zoo.mlp([16, 64, 8], zoo.Random(0)), tmp_path / "mlp.onnx")
    options = ["--dim", "batch=4", "--cpu-arch", "x86-64-v2", "--precision", "f16"]
    result = tools.call("compile", path, "-o", tmp_path / "mlp.plan", *options, check=False)
    assert result.returncode == 1
    assert "f16 needs a processor that converts it; use --cpu-arch x86-64-v3 or newer" in result.stderr
