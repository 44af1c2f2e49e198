"""Convolutions and attention of CUDA plans, which cuDNN computes, on fake GPUs."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from conftest import onnxruntime_session
from onnx import TensorProto, helper, numpy_helper

from gridloom import zoo

TARGET = ("--target", "cuda:sm_90")


def count_steps(tools, plan) -> dict[str, int]:
    """The number of steps of each kind in a plan."""
    summary = json.loads(tools.call("inspect", plan, "--format", "json").stdout)
    return {key.removesuffix("_steps"): value for key, value in summary.items() if key.endswith("_steps")}


def check(tools, fake_gpus, model, folder, inputs, options=(), devices=1, tolerance=1e-5) -> dict[str, int]:
    """Compiles, runs on fake GPUs, compares with ONNX Runtime; returns the plan's number of steps by kind."""
    plan = folder / "plan"
    tools.compile(model, plan, *options, *TARGET)
    expected = onnxruntime_session(model).run(None, inputs)
    fake_gpus(devices, 1)
    result = tools.run(plan, inputs, folder / "run", "--in-process")
    assert "fake GPU" not in result.text, result.text
    assert len(result.outputs) == len(expected)
    for output, value in zip(onnx.load(model).graph.output, expected):
        got = result.outputs[output.name]
        assert got.dtype == value.dtype
        scale = max(1.0, float(np.abs(value).max()))
        np.testing.assert_allclose(got / scale, value / scale, atol=tolerance, rtol=0)
    return count_steps(tools, plan)


@pytest.mark.parametrize("mesh", ["data=1", "data=2", "model=2"])
def test_a_resnet_equals_onnxruntime(tools, fake_gpus, tmp_path, mesh):
    model = zoo.save(zoo.resnet(zoo.Random(0), blocks=(1, 1), width=8, image=32, classes=10), tmp_path / "resnet.onnx")
    inputs = {"pixels": np.random.default_rng(1).standard_normal((2, 3, 32, 32)).astype(np.float32)}
    options = ["--dim", "batch=2", "--mesh", mesh]
    steps = check(tools, fake_gpus, model, tmp_path, inputs, options, int(mesh[-1]))
    assert steps["convolution"] == 9
    if mesh != "model=2":  # unless partial sums prevent epilogues
        # Bias, residual and relu are epilogues: only the pools and the classifier of two rows remain as kernels.
        assert steps["kernel"] <= 5 and "matmul" not in steps, steps


@pytest.mark.parametrize("mesh", ["data=2", "model=2"])
def test_a_unet_equals_onnxruntime(tools, fake_gpus, tmp_path, mesh):
    model = zoo.save(zoo.unet(zoo.Random(0), depth=2, width=8, image=16), tmp_path / "unet.onnx")
    inputs = {"pixels": np.random.default_rng(1).standard_normal((2, 3, 16, 16)).astype(np.float32)}
    steps = check(tools, fake_gpus, model, tmp_path, inputs, ["--dim", "batch=2", "--mesh", mesh], 2)
    assert steps["convolution"] >= 11


def save_convolutions(path, kind=np.float32, batch=2):
    """One convolution of each kind, some with an activation, each with its own output."""
    random = np.random.default_rng(0)
    nodes, inputs, outputs, weights = [], {}, [], []
    onnx_type = helper.np_dtype_to_tensor_dtype(np.dtype(kind))

    def add(name, shape, weight, activation=None, **attributes):
        if name not in inputs:
            inputs[name] = random.standard_normal((batch, *shape)).astype(kind)
        output = f"{name}_{len(outputs)}"
        for part, size in [("w", weight), ("b", weight[:1])]:
            values = random.standard_normal(size).astype(kind) / np.sqrt(np.prod(weight[1:])).astype(kind)
            weights.append(numpy_helper.from_array(values.astype(kind), f"{output}_{part}"))
        result = f"{output}_sum" if activation else output
        nodes.append(helper.make_node("Conv", [name, f"{output}_w", f"{output}_b"], [result], f"/{output}", **attributes))
        if activation:
            nodes.append(helper.make_node(activation, [result], [output], f"/{output}/{activation}"))
        outputs.append(helper.make_tensor_value_info(output, onnx_type, None))

    add("line", (4, 21), (8, 4, 5), "Relu", strides=[2], pads=[2, 1])
    add("line", (4, 21), (4, 1, 3), group=4, dilations=[2])
    add("picture", (8, 11, 9), (8, 2, 3, 3), "Relu", group=4, pads=[1, 0, 0, 2])
    add("picture", (8, 11, 9), (16, 1, 3, 3), group=8, strides=[2, 1], pads=[1] * 4)
    add("picture", (8, 11, 9), (4, 8, 1, 1), "Sigmoid")
    add("volume", (2, 5, 6, 7), (4, 2, 3, 2, 1), "Relu", dilations=[1, 2, 1], pads=[1, 0, 0, 1, 0, 0])
    values = [helper.make_tensor_value_info(name, onnx_type, array.shape) for name, array in inputs.items()]
    graph = helper.make_graph(nodes, "convolutions", values, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return inputs


@pytest.mark.parametrize("kind,tolerance", [(np.float32, 1e-5), (np.float16, 2e-3)], ids=["f32", "f16"])
def test_convolutions_of_every_kind_equal_onnxruntime(tools, fake_gpus, tmp_path, kind, tolerance):
    inputs = save_convolutions(tmp_path / "model.onnx", kind)
    steps = check(tools, fake_gpus, tmp_path / "model.onnx", tmp_path, inputs, tolerance=tolerance)
    assert steps["convolution"] == 6 and "matmul" not in steps
    # The sigmoid; in 16 bits with channels last, also transposes of three inputs and six outputs.
    assert steps["kernel"] == (1 if kind == np.float32 else 10)


@pytest.mark.parametrize(
    "shard",
    ["picture=[{data},{},{},{}]", "picture=[{},{},{data},{}]", "picture=[{},{data},{},{}]"],
    ids=["batch", "rows with a halo", "channels"],
)
def test_split_convolutions_equal_onnxruntime(tools, fake_gpus, tmp_path, shard):
    inputs = save_convolutions(tmp_path / "model.onnx")
    options = ["--mesh", "data=2", "--shard", shard]
    assert check(tools, fake_gpus, tmp_path / "model.onnx", tmp_path, inputs, options, 2)["convolution"] == 6


def test_without_cudnn_columns_are_multiplied(tools, fake_gpus, tmp_path):
    inputs = save_convolutions(tmp_path / "model.onnx")
    steps = check(tools, fake_gpus, tmp_path / "model.onnx", tmp_path, inputs, ["--no-cudnn"])
    # Groups of two channels run as products of rows.
    assert "convolution" not in steps and steps["matmul"] == 3


def test_a_plan_that_needs_cudnn_says_so_without_it(tools, fake_gpus, tmp_path, monkeypatch):
    inputs = save_convolutions(tmp_path / "model.onnx")
    tools.compile(tmp_path / "model.onnx", tmp_path / "plan", *TARGET)
    fake_gpus(1, 1)
    monkeypatch.setenv("GRIDLOOM_CUDNN", "libcudnn_missing.so.9")
    given = []
    for name, array in inputs.items():
        np.save(tmp_path / f"{name}.npy", array)
        given += ["--input", f"{name}={tmp_path / name}.npy"]
    result = tools.call("run", tmp_path / "plan", *given, "--in-process", check=False)
    assert result.returncode != 0
    lines = [line for line in result.stderr.splitlines() if line.startswith("error")]
    assert len(lines) == 1 and "libcudnn_missing.so.9 not found" in lines[0] and "onnx node" in lines[0]


def test_calls_are_listed_with_their_work(tools, tmp_path):
    save_convolutions(tmp_path / "model.onnx")
    tools.compile(tmp_path / "model.onnx", tmp_path / "plan", *TARGET)
    text = tools.call("inspect", tmp_path / "plan", "kernels", "--format", "json").stdout
    calls = {row["call"]: row for row in json.loads(text)["library_calls"]}
    row = calls["convolution 2x4x21 with 8x4x5 + bias + relu"]
    assert row["flops"] == 2 * (2 * 8 * 10) * (4 * 5)
    assert row["bytes"] == 4 * (2 * 4 * 21 + 8 * 4 * 5 + 8 + 2 * 8 * 10)
    assert "line_0" in row["nodes"]


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("mesh", ["data=1", "data=2", "model=2"])
def test_attention_of_f16_equals_onnxruntime(tools, fake_gpus, tmp_path, mesh, masked):
    """Heads sliced from packed products, scaled, masked, softmax, and joined again."""
    batch, length, heads, size = 2, 10, 4, 16
    width = heads * size
    random = np.random.default_rng(0)
    weights = [numpy_helper.from_array(np.array([0, 0, heads, size], np.int64), "split"),
               numpy_helper.from_array(np.array([0, 0, width], np.int64), "join"),
               numpy_helper.from_array(np.array(size**-0.5, np.float16), "scale")]  # fmt: skip
    nodes = []
    for name, order in [("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])]:
        matrix = random.standard_normal((width, width)) / np.sqrt(width)
        weights.append(numpy_helper.from_array(matrix.astype(np.float16), f"w{name}"))
        nodes += [helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}0"], f"/{name}/MatMul"),
                  helper.make_node("Reshape", [f"{name}0", "split"], [f"{name}1"], f"/{name}/Reshape"),
                  helper.make_node("Transpose", [f"{name}1"], [name], f"/{name}/Transpose", perm=order)]  # fmt: skip
    nodes += [helper.make_node("MatMul", ["q", "k"], ["scores"], "/scores"),
              helper.make_node("Mul", ["scores", "scale"], ["scaled"], "/scale")]  # fmt: skip
    inputs = {"x": random.standard_normal((batch, length, width)).astype(np.float16)}
    if masked:
        nodes.append(helper.make_node("Add", ["scaled", "mask"], ["biased"], "/mask"))
        inputs["mask"] = np.where(random.random((batch, 1, 1, length)) < 0.3, -1e4, 0).astype(np.float16)
        inputs["mask"][..., 0] = 0
    nodes += [helper.make_node("Softmax", ["biased" if masked else "scaled"], ["weights"], "/softmax", axis=-1),
              helper.make_node("MatMul", ["weights", "v"], ["heads"], "/attend"),
              helper.make_node("Transpose", ["heads"], ["joined"], "/join", perm=[0, 2, 1, 3]),
              helper.make_node("Reshape", ["joined", "join"], ["y"], "/y")]  # fmt: skip
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, array.shape) for name, array in inputs.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [batch, length, width])]
    graph = helper.make_graph(nodes, "attention", values, outputs, weights)
    model = tmp_path / "attention.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    shards = [option for name in "qkv" for option in ("--shard", f"w{name}=[{{}},{{model}}]") if mesh == "model=2"]
    options = ["--mesh", mesh, *shards]
    steps = check(tools, fake_gpus, model, tmp_path, inputs, options, int(mesh[-1]), tolerance=4e-3)
    assert steps["attention"] == 1


def test_a_transformer_in_bf16_attends_through_cudnn(tools, fake_gpus, tmp_path):
    sizes = {"hidden": 32, "heads": 2, "intermediate": 64, "vocabulary": 50, "positions": 32}
    config = zoo.BertConfig(layers=1, head="embedding", **sizes)
    model = zoo.save(zoo.bert(config, zoo.Random(0)), tmp_path / "bert.onnx")
    random = np.random.default_rng(3)
    mask = (random.random((2, 12)) > 0.2).astype(np.int64)
    mask[:, 0] = 1
    inputs = {"input_ids": random.integers(0, 50, (2, 12)), "attention_mask": mask, "token_type_ids": 0 * mask}
    options = ["--dim", "batch=2", "--dim", "sequence=12", "--precision", "bf16", "--mesh", "model=2"]
    steps = check(tools, fake_gpus, model, tmp_path, inputs, options, 2, tolerance=3e-2)
    assert steps["attention"] == config.layers


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_causal_attention_in_bf16_is_cudnns(tools, fake_gpus, tmp_path, kind):
    sizes = {"layers": 1, "hidden": 32, "heads": 2, "vocabulary": 50, "positions": 32}
    if kind == "gpt2":
        model = zoo.gpt2(zoo.Gpt2Config(**sizes), zoo.Random(0))
    else:
        model = zoo.llama(zoo.LlamaConfig(**sizes, kv_heads=1, intermediate=64), zoo.Random(0))
    path = zoo.save(model, tmp_path / "model.onnx")
    inputs = {"input_ids": np.random.default_rng(3).integers(0, 50, (2, 12))}
    options = ["--dim", "batch=2", "--dim", "sequence=12", "--precision", "bf16"]
    assert check(tools, fake_gpus, path, tmp_path, inputs, options, tolerance=3e-2)["attention"] == 1
    schedule = tools.call("inspect", tmp_path / "plan", "schedule").stdout
    assert "attention 2x2x12x12x16x16 causal" in schedule
