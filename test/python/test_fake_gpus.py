"""Compiled CUDA plans on fake GPUs: test/fake stands in for the driver, cuBLASLt and NCCL, interprets the plan's PTX, checks every
access against the events that order it, and reports errors on stderr."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from conftest import ROOT, onnxruntime_session
from onnx import TensorProto, helper, numpy_helper

from gridloom import zoo

ROWS, INNER, COLUMNS = 16, 64, 128


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """gelu(x w + b): a matmul and one elementwise kernel."""
    random = np.random.default_rng(0)
    weight = random.standard_normal((INNER, COLUMNS)).astype(np.float32) * 0.1
    bias = random.standard_normal(COLUMNS).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="/MatMul"),
        helper.make_node("Add", ["product", "b"], ["sum"], name="/Add"),
        helper.make_node("Gelu", ["sum"], ["y"], name="/Gelu"),
    ]
    graph = helper.make_graph(
        nodes,
        "mini",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, INNER])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [ROWS, COLUMNS])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    path = tmp_path_factory.mktemp("mini") / "mini.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def inputs():
    return {"x": np.random.default_rng(1).standard_normal((ROWS, INNER)).astype(np.float32)}


@pytest.mark.parametrize(
    "mesh,shard,groups",
    [
        ("model=2", "w=[{model},{}]", ["all_reduce"]),
        ("model=2", "w=[{},{model}]", []),
        ("model=4", "w=[{model},{}]", ["all_reduce"]),
        ("data=2", "x=[{data},{}]", []),
    ],
    ids=["rows of w over 2", "columns of w over 2", "rows of w over 4", "batch over 2"],
)
def test_split_over_fake_gpus_equals_onnxruntime(tools, fake_gpus, model, inputs, tmp_path, mesh, shard, groups):
    plan = tmp_path / "mini.plan"
    compiled = tools.compile(model, plan, "--mesh", mesh, "--shard", shard, "--target", "cuda:sm_90")
    for group in groups:
        assert group in compiled.stdout + compiled.stderr
    expected = onnxruntime_session(model).run(["y"], inputs)[0]
    for seed in (1, 2, 3):
        fake_gpus(int(mesh.split("=")[1]), seed)
        result = tools.run(plan, inputs, tmp_path / f"run{seed}", "--in-process")
        np.testing.assert_allclose(result.outputs["y"], expected, atol=1e-5, rtol=0)
        assert "fake GPU" not in result.text, result.text


def test_without_a_driver_one_line_says_so(tools, model, inputs, tmp_path, monkeypatch):
    plan = tmp_path / "mini.plan"
    tools.compile(model, plan, "--mesh", "data=2", "--target", "cuda:sm_90")
    np.save(tmp_path / "x.npy", inputs["x"])
    monkeypatch.setenv("GRIDLOOM_CUDA_DRIVER", "libcuda_missing.so.1")
    result = tools.call("run", plan, "--input", f"x={tmp_path}/x.npy", "--in-process", check=False)
    assert result.returncode != 0
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: libcuda_missing.so.1 not found: the NVIDIA driver is not installed")
    assert "--target cpu" in lines[0]


@pytest.mark.parametrize(
    "options",
    [("--mesh", "data=2,model=2"), ("--mesh", "pipe=2", "--microbatches", "2"), ("--mesh", "data=2,pipe=2")],
    ids=["grid", "pipeline of micro-batches", "pipeline of batches"],
)
def test_an_mlp_over_fake_gpus_equals_onnxruntime(tools, fake_gpus, tmp_path, options):
    path = zoo.save(zoo.mlp([16, 32, 8], zoo.Random(0, scale=0.2)), tmp_path / "mlp.onnx")
    plan = tmp_path / "mlp.plan"
    tools.compile(path, plan, "--dim", "batch=4", *options, "--target", "cuda:sm_90")
    inputs = {"x": np.random.default_rng(2).standard_normal((4, 16)).astype(np.float32)}
    expected = onnxruntime_session(path).run(["y"], inputs)[0]
    for seed in (1, 2, 3):
        fake_gpus(4 if "," in options[1] else 2, seed)
        result = tools.run(plan, inputs, tmp_path / f"run{seed}", "--in-process", "--repeat", 3)
        np.testing.assert_allclose(result.outputs["y"], expected, atol=1e-5, rtol=0)
        assert "fake GPU" not in result.text, result.text


def test_microbatches_may_begin_at_any_element(tools, fake_gpus, tmp_path):
    """Those of 9 floats follow each other without gaps, so most are aligned to 4 bytes."""
    nodes = [helper.make_node("Sigmoid", ["x"], ["a"]), helper.make_node("Tanh", ["a"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 9]) for name in "xy"]
    graph = helper.make_graph(nodes, "odd", ends[:1], ends[1:])
    path, plan = tmp_path / "odd.onnx", tmp_path / "odd.plan"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    tools.compile(path, plan, "--mesh", "pipe=2", "--microbatches", "4", "--target", "cuda:sm_90")
    inputs = {"x": np.random.default_rng(3).standard_normal((4, 9)).astype(np.float32)}
    fake_gpus(2, 1)
    result = tools.run(plan, inputs, tmp_path / "run", "--in-process")
    assert "fake GPU" not in result.text, result.text
    np.testing.assert_allclose(result.outputs["y"], onnxruntime_session(path).run(["y"], inputs)[0], atol=1e-5, rtol=0)


def write_halves(path, layers: int = 4, width: int = 16):
    """Layers that multiply both halves of their input and the whole, and add all to it: x + x[:w/2] A + x[w/2:] B + x C."""
    random = np.random.default_rng(0)
    nodes, weights = [], {"zero": np.array([0]), "middle": np.array([width // 2]), "end": np.array([width])}
    weights["axis"] = np.array([2])
    x = "x"
    for i in range(layers):
        nodes += [
            helper.make_node("Slice", [x, "zero", "middle", "axis"], [f"low{i}"]),
            helper.make_node("Slice", [x, "middle", "end", "axis"], [f"high{i}"]),
        ]
        for part, rows in (f"low{i}", width // 2), (f"high{i}", width // 2), (x, width):
            weights[f"w_{part}"] = random.standard_normal((rows, width)).astype(np.float32) / 4
            nodes.append(helper.make_node("MatMul", [part, f"w_{part}"], [f"{part}_w"]))
        nodes += [
            helper.make_node("Add", [f"low{i}_w", f"high{i}_w"], [f"halves{i}"]),
            helper.make_node("Add", [f"halves{i}", f"{x}_w"], [f"all{i}"]),
            helper.make_node("Add", [f"all{i}", x], [f"sum{i}"]),
            helper.make_node("Tanh", [f"sum{i}"], [f"x{i}" if i + 1 < layers else "y"]),
        ]
        x = f"x{i}"
    for i, node in enumerate(nodes):
        node.name = f"/{node.op_type}_{i}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [6, 8, width]) for name in "xy"]
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "halves", ends[:1], ends[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90"])
def test_a_stage_reads_parts_of_what_every_microbatch_sends(tools, fake_gpus, tmp_path, target):
    path = tmp_path / "halves.onnx"
    write_halves(path)
    inputs = {"x": np.random.default_rng(1).standard_normal((6, 8, 16)).astype(np.float32)}
    expected = onnxruntime_session(path).run(["y"], inputs)[0]
    outputs = []
    for mesh in ("data=1",), ("pipe=2", "--microbatches", "3"):
        plan = tmp_path / f"{mesh[0]}.plan"
        tools.compile(path, plan, "--mesh", *mesh, "--target", target)
        for seed in (1, 2, 3):
            fake_gpus(2, seed)
            result = tools.run(plan, inputs, tmp_path / f"{mesh[0]} {seed}", "--in-process", "--repeat", 3)
            assert "fake GPU" not in result.text, result.text
            np.testing.assert_allclose(result.outputs["y"], expected, atol=1e-5, rtol=0)
            outputs.append(result.outputs["y"])
    program = next((plan / "ir").glob("*-schedule.mlir")).read_text()
    registered = re.findall(r"plan\.buffer\s+registered (\{slots = 2 : i64\} )?:", program)
    assert sorted(registered) == ["", "{slots = 2 : i64} "], "what is sent, and what is received and read in part"
    for output in outputs:
        np.testing.assert_allclose(output, outputs[0], atol=1e-6, rtol=0)


@pytest.mark.parametrize("mesh", ["data=1", "data=2", "model=2", "model=4", "pipe=2", "data=2,model=2"])
def test_a_transformer_over_fake_gpus_equals_onnxruntime(tools, fake_gpus, tmp_path, mesh):
    config = zoo.BertConfig(layers=2, hidden=64, heads=4, intermediate=128, vocabulary=50, positions=32, head="embedding")
    path = zoo.save(zoo.bert(config, zoo.Random(0)), tmp_path / "bert.onnx")
    plan = tmp_path / "bert.plan"
    sizes = ["--dim", "batch=4", "--dim", "sequence=12"]
    tools.compile(path, plan, *sizes, "--mesh", mesh, "--target", "cuda:sm_90")
    random = np.random.default_rng(3)
    mask = (random.random((4, 12)) > 0.2).astype(np.int64)
    mask[:, 0] = 1
    inputs = {"input_ids": random.integers(0, 50, (4, 12)), "attention_mask": mask, "token_type_ids": 0 * mask}
    expected = onnxruntime_session(path).run(None, inputs)[0]
    fake_gpus(np.prod([int(axis.split("=")[1]) for axis in mesh.split(",")]), 1)
    result = tools.run(plan, inputs, tmp_path / "run", "--in-process")
    np.testing.assert_allclose(result.outputs["embedding"], expected, atol=1e-5, rtol=0)
    assert "fake GPU" not in result.text, result.text
    # Each layer has one product for query, key and value, of the device's own heads.
    schedule = tools.call("inspect", plan, "schedule").stdout
    merged = re.findall(r"matmul (\S+) \+ bias .*\.(\{query,key,value\}\.weight)", schedule)
    columns = 3 * 64 // int(dict(axis.split("=") for axis in mesh.split(",")).get("model", 1))
    found = [shape.split("x")[1] for shape, _ in merged]
    # The cut between two stages may be within a layer.
    layers = [1, 2] if "pipe" in mesh else [2]
    assert found in [[str(columns)] * count for count in layers], schedule


def test_rows_of_every_length_on_a_fake_gpu_equal_onnxruntime(tools, fake_gpus, tmp_path):
    """Rows computed by a warp and by a block, with and without a tail of vectors; columns; types other than f32."""
    shapes = {"short": [5, 7], "warp": [3, 132], "block": [2, 2560], "odd": [2, 2101], "cube": [4, 3, 40]}
    nodes, outputs = [], []

    def add(kind, name, output, dtype=TensorProto.FLOAT, **attributes):
        nodes.append(helper.make_node(kind, name, [output], name=f"/{output}", **attributes))
        outputs.append(helper.make_tensor_value_info(output, dtype, None))

    for name in shapes:
        add("Softmax", [name], f"{name}_softmax", axis=-1)
        add("ReduceSum", [name, "last"], f"{name}_sum", keepdims=0)
        add("ReduceMax", [name, "first"], f"{name}_columns")
        nodes.append(helper.make_node("Cast", [name], [f"{name}_whole"], to=TensorProto.INT64))
        add("ReduceMin", [f"{name}_whole", "last"], f"{name}_least", TensorProto.INT64, keepdims=0)
        nodes.append(helper.make_node("Cast", [name], [f"{name}_half"], to=TensorProto.FLOAT16))
        add("ReduceMax", [f"{name}_half", "last"], f"{name}_half_most", TensorProto.FLOAT16, keepdims=0)
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        outputs,
        [numpy_helper.from_array(np.array([value]), name) for name, value in [("last", -1), ("first", 0)]],
    )
    path = tmp_path / "rows.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    random = np.random.default_rng(5)
    inputs = {name: 4 * random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    names = [output.name for output in outputs]
    expected = dict(zip(names, onnxruntime_session(path).run(names, inputs), strict=True))
    tools.compile(path, tmp_path / "rows.plan", "--target", "cuda:sm_90")
    fake_gpus(1, 1)
    result = tools.run(tmp_path / "rows.plan", inputs, tmp_path / "run", "--in-process")
    for name in names:
        np.testing.assert_allclose(result.outputs[name], expected[name], atol=1e-5, rtol=1e-6, err_msg=name)
    assert "fake GPU" not in result.text, result.text


@pytest.mark.parametrize(
    "options",
    [("data=2",), ("model=2",), ("data=2,model=2",), ("pipe=2", "--microbatches", "2"), ("pipe=2,model=2",)],
    ids=["batch", "tensors", "grid", "pipeline", "pipeline of tensors"],
)
def test_graphs_equal_steps_bit_for_bit(tools, fake_gpus, tmp_path, options):
    path = zoo.save(zoo.mlp([16, 32, 16, 8], zoo.Random(0, scale=0.2)), tmp_path / "mlp.onnx")
    plan = tmp_path / "mlp.plan"
    tools.compile(path, plan, "--dim", "batch=4", "--mesh", *options, "--target", "cuda:sm_90")
    inputs = {"x": np.random.default_rng(2).standard_normal((4, 16)).astype(np.float32)}
    for seed in (1, 2, 3):
        fake_gpus(4 if "," in options[0] else 2, seed)
        steps = tools.run(plan, inputs, tmp_path / f"steps{seed}", "--in-process", "--no-graphs")
        graphs = tools.run(plan, inputs, tmp_path / f"graphs{seed}", "--in-process", "--repeat", 4, "--verbose")
        np.testing.assert_array_equal(graphs.outputs["y"], steps.outputs["y"])
        for result in (steps, graphs):
            assert "fake GPU" not in result.text and "no graphs" not in result.text, result.text


def test_ranks_of_one_process_have_no_graphs(tools, fake_gpus, tmp_path, monkeypatch):
    path = zoo.save(zoo.mlp([16, 32, 8], zoo.Random(0, scale=0.2)), tmp_path / "mlp.onnx")
    plan = tmp_path / "mlp.plan"
    tools.compile(path, plan, "--dim", "batch=4", "--mesh", "model=2", "--target", "cuda:sm_90")
    inputs = {"x": np.zeros((4, 16), np.float32)}
    fake_gpus(2, 1)
    monkeypatch.delenv("GRIDLOOM_IN_PROCESS_GRAPHS")
    result = tools.run(plan, inputs, tmp_path / "out", "--in-process", "--repeat", 3, "--verbose")
    assert "note: no graphs: NCCL may deadlock in graphs of several GPUs of one process" in result.text


# Uses GPU 1 itself, as PyTorch would, besides a session on GPU 0.
CALLER = """
import ctypes, os, sys
import numpy as np
import gridloom

driver = ctypes.CDLL(os.environ["GRIDLOOM_CUDA_DRIVER"])
mine, now = ctypes.c_void_p(), ctypes.c_void_p()
assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(mine), 1) == 0
driver.cuCtxSetCurrent(mine)

def check():
    driver.cuCtxGetCurrent(ctypes.byref(now))
    assert now.value == mine.value

with gridloom.load(sys.argv[1], ranks="environment") as session:
    check()
    session.run({"x": np.zeros((4, 16), np.float32)})
    check()
check()
driver.cuDevicePrimaryCtxRelease_v2(1)
"""


def test_callers_context_stays_current(tools, fake_gpus, tmp_path):
    path = zoo.save(zoo.mlp([16, 32, 8], zoo.Random(0, scale=0.2)), tmp_path / "mlp.onnx")
    tools.compile(path, tmp_path / "mlp.plan", "--dim", "batch=4", "--target", "cuda:sm_90")
    fake_gpus(2, 1)
    world = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    result = subprocess.run(
        [sys.executable, "-c", CALLER, tmp_path / "mlp.plan"],
        capture_output=True, text=True, timeout=120, cwd=ROOT / "python", env={**os.environ, **world},
    )  # fmt: skip
    assert result.returncode == 0 and not result.stderr, result.stderr


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("mesh,batch", [("model=1", 1), ("model=1", 3), ("model=2", 1)])
def test_decoding_over_fake_gpus_equals_onnxruntime(tools, fake_gpus, tmp_path, name, mesh, batch):
    """One token per sequence: all products are kernels, also those of attention and of heads that share keys."""
    sizes = {"layers": 1, "hidden": 64, "heads": 4, "positions": 40, "vocabulary": 97, "cache": "static"}
    config = zoo.Gpt2Config(**sizes) if name == "gpt2" else zoo.LlamaConfig(kv_heads=2, intermediate=96, **sizes)
    model = getattr(zoo, name)(config, zoo.Random(3, scale=0.2))
    path, plan = zoo.save(model, tmp_path / "model.onnx"), tmp_path / "model.plan"
    dims = "--dim", f"batch={batch}", "--dim", "sequence=1"
    tools.compile(path, plan, *dims, "--mesh", mesh, "--target", "cuda:sm_90", "--no-cudnn")
    assert "product" in tools.call("inspect", plan, "kernels").stdout
    assert "matmul" not in tools.call("inspect", plan, "schedule").stdout
    random = np.random.default_rng(4)
    inputs = {"input_ids": random.integers(0, 97, (batch, 1)), "position": np.array([21])}
    for value in model.graph.input:
        if value.name.startswith("past_"):
            shape = [batch, *(dim.dim_value for dim in value.type.tensor_type.shape.dim[1:])]
            inputs[value.name] = random.standard_normal(shape).astype(np.float32)
    session = onnxruntime_session(path)
    expected = dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs), strict=True))
    fake_gpus(int(mesh[-1]), 1)
    result = tools.run(plan, inputs, tmp_path / "run", "--in-process")
    assert "fake GPU" not in result.text, result.text
    for output, value in expected.items():
        scale = max(1.0, float(np.abs(value).max()))
        np.testing.assert_allclose(result.outputs[output] / scale, value / scale, atol=1e-5, rtol=0)
    assert "PASS" in tools.call("check", plan, "--exact", "--no-run").stdout
