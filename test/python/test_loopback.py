"""Plans for several GPUs with all ranks on one GPU: `--transport loopback`, on a fake GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from conftest import onnxruntime_session
from onnx import TensorProto, helper

from gridloom import zoo


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    """30 and 18 hidden units: not divisible by 4."""
    return zoo.save(zoo.mlp([16, 30, 18, 8], zoo.Random(0, scale=0.2)), tmp_path_factory.mktemp("loopback") / "mlp.onnx")


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    config = zoo.BertConfig(layers=2, hidden=32, heads=8, intermediate=64, vocabulary=50, positions=16, head="embedding")
    return zoo.save(zoo.bert(config, zoo.Random(0)), tmp_path_factory.mktemp("loopback") / "bert.onnx")


def run_loopback(tools, fake_gpus, model, inputs, dims, mesh, tmp_path, *options, repeat=1):
    """The outputs with all ranks of `mesh` on one GPU, and ONNX Runtime's."""
    plan = tmp_path / "model.plan"
    sizes = [option for name, size in dims.items() for option in ("--dim", f"{name}={size}")]
    tools.compile(model, plan, "--mesh", mesh, *sizes, *options, "--target", "cuda:sm_90")
    fake_gpus(1, 1)
    result = tools.run(plan, inputs, tmp_path / "run", "--transport", "loopback", "--repeat", repeat)
    assert "fake GPU" not in result.text, result.text
    ranks = int(np.prod([int(axis.split("=")[1]) for axis in mesh.split(",")]))
    assert f"loopback: {ranks} logical ranks on one GPU | compute" in result.text
    session = onnxruntime_session(model)
    names = [output.name for output in session.get_outputs()]
    return result.outputs, dict(zip(names, session.run(names, inputs), strict=True))


@pytest.mark.parametrize(
    "mesh,options",
    [
        ("data=2", ()), ("model=2", ()), ("pipe=2", ()), ("data=4", ()), ("model=4", ()), ("data=2,model=2", ()),
        ("model=2,pipe=2", ()), ("pipe=2", ("--microbatches", "5")), ("data=8", ()), ("data=2,model=2,pipe=2", ()),
        ("data=2,pipe=2", ("--microbatches", "5")), ("model=8", ()),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)  # fmt: skip
def test_an_uneven_mlp_on_one_gpu_equals_onnxruntime(tools, fake_gpus, mlp, tmp_path, mesh, options):
    x = np.random.default_rng(2).standard_normal((10, 16)).astype(np.float32)
    outputs, expected = run_loopback(
        tools, fake_gpus, mlp, {"x": x}, {"batch": 10}, mesh, tmp_path, *options, repeat=2
    )
    np.testing.assert_allclose(outputs["y"], expected["y"], atol=1e-5, rtol=0)
    single = tmp_path / "single.plan"
    tools.compile(mlp, single, "--dim", "batch=10", "--target", "cuda:sm_90")
    one = tools.run(single, {"x": x}, tmp_path / "one")
    np.testing.assert_allclose(outputs["y"], one.outputs["y"], atol=1e-6, rtol=0)


@pytest.mark.parametrize("mesh", ["data=2", "model=4", "data=2,model=2", "data=2,model=2,pipe=2"])
def test_a_transformer_on_one_gpu_equals_onnxruntime(tools, fake_gpus, transformer, tmp_path, mesh):
    random = np.random.default_rng(3)
    ones = np.ones((4, 5), np.int64)
    inputs = {"input_ids": random.integers(0, 50, (4, 5)), "attention_mask": ones, "token_type_ids": 0 * ones}
    outputs, expected = run_loopback(
        tools, fake_gpus, transformer, inputs, {"batch": 4, "sequence": 5}, mesh, tmp_path
    )
    np.testing.assert_allclose(outputs["embedding"], expected["embedding"], atol=1e-5, rtol=0)


def test_a_python_session_takes_a_transport(tools, fake_gpus, mlp, tmp_path):
    plan = tmp_path / "mlp.plan"
    tools.compile(mlp, plan, "--dim", "batch=10", "--mesh", "data=2,model=2", "--target", "cuda:sm_90")
    x = np.random.default_rng(2).standard_normal((10, 16)).astype(np.float32)
    script = """
import sys, numpy, gridloom
with gridloom.load(sys.argv[1], transport="loopback") as session:
    numpy.save(sys.argv[3], session.run({"x": numpy.load(sys.argv[2])})["y"])
"""
    np.save(tmp_path / "x.npy", x)
    fake_gpus(1, 1)
    command = [sys.executable, "-c", script, plan, tmp_path / "x.npy", tmp_path / "y.npy"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0 and "fake GPU" not in result.stderr, result.stderr
    expected = onnxruntime_session(mlp).run(["y"], {"x": x})[0]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, atol=1e-5, rtol=0)


def write_halving_loop(path):
    """x w is halved while its largest element is above 1: body and condition of the loop need all shards."""
    f, b, i = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"], name="/loop/MatMul"),
            helper.make_node("Mul", ["product", "half"], ["smaller"], name="/loop/Mul"),
            helper.make_node("ReduceMax", ["smaller"], ["most"], keepdims=0, name="/loop/ReduceMax"),
            helper.make_node("Greater", ["most", "one"], ["more"], name="/loop/Greater"),
        ],
        "body",
        [
            helper.make_tensor_value_info("iteration", i, []),
            helper.make_tensor_value_info("go", b, []),
            helper.make_tensor_value_info("x", f, [4, 8]),
        ],
        [helper.make_tensor_value_info("more", b, []), helper.make_tensor_value_info("smaller", f, [4, 8])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["limit", "start", "given"], ["y"], name="/loop", body=body)],
        "halving",
        [helper.make_tensor_value_info("given", f, [4, 8])],
        [helper.make_tensor_value_info("y", f, [4, 8])],
        [
            helper.make_tensor("limit", i, [], [20]),
            helper.make_tensor("start", b, [], [True]),
            helper.make_tensor("half", f, [], [0.5]),
            helper.make_tensor("one", f, [], [1.0]),
            helper.make_tensor("w", f, [8, 8], np.eye(8, dtype=np.float32).ravel()),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize("transport", ["nccl", "loopback"])
@pytest.mark.parametrize("mesh,shard", [("model=2", "w=[{model},{}]"), ("data=2", "given=[{data},{}]")])
def test_a_condition_that_guards_communication_is_agreed_on(tools, fake_gpus, tmp_path, transport, mesh, shard):
    model = write_halving_loop(tmp_path / "loop.onnx")
    plan = tmp_path / "loop.plan"
    tools.compile(model, plan, "--mesh", mesh, "--shard", shard, "--target", "cuda:sm_90")
    program = next((plan / "ir").glob("*-schedule.mlir")).read_text()
    assert "plan.group" in program.partition("plan.while")[2], "the loop has no collective in its body"
    x = np.random.default_rng(4).standard_normal((4, 8)).astype(np.float32) * 100
    expected = onnxruntime_session(model).run(["y"], {"given": x})[0]
    fake_gpus(2, 1)
    result = tools.run(plan, {"given": x}, tmp_path / "run", "--in-process", "--transport", transport)
    assert "fake GPU" not in result.text, result.text
    np.testing.assert_allclose(result.outputs["y"], expected, atol=1e-6, rtol=0)


def test_bench_says_what_it_ran_on(tools, fake_gpus):
    fake_gpus(1, 1)
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv"):
        result = tools.call(
            "bench", collective, "-n", "4", "-b", "1K", "-e", "4K", "-f", "4", "--iters", "2", "--transport", "loopback"
        )
        assert f"# gridloom bench {collective}, loopback: 4 logical ranks on one GPU" in result.stdout
        rows = [line.split() for line in result.stdout.splitlines() if re.match(r"\s+\d", line)]
        assert [row[0] for row in rows] == ["1024", "4096"] and all(row[-1] == "0" for row in rows), result.stdout
        assert "fake GPU" not in result.stderr, result.stderr


def test_bench_of_a_plan_has_one_session_after_another(tools, fake_gpus, mlp, tmp_path):
    plan = tmp_path / "mlp.plan"
    tools.compile(mlp, plan, "--dim", "batch=10", "--mesh", "data=2,model=2", "--target", "cuda:sm_90")
    fake_gpus(1, 1)
    result = tools.call("bench", plan, "--iters", "2", "--warmup", "1", "--transport", "loopback")
    assert "loopback: 4 logical ranks on one GPU" in result.stdout and "serial" in result.stdout, result.stdout
    assert "fake GPU" not in result.stderr, result.stderr


@pytest.mark.parametrize("collective", ["all_reduce", "sendrecv"])
def test_bench_of_nccl(tools, fake_gpus, collective):
    fake_gpus(4, 1)
    result = tools.call(
        "bench", collective, "-n", "4", "-b", "1K", "-e", "1K", "--iters", "2", "--in-process", "--transport", "nccl"
    )
    assert f"# gridloom bench {collective}, 4 ranks, transport nccl" in result.stdout
    assert "fake GPU" not in result.stderr, result.stderr


def test_nccl_may_be_tried_on_one_gpu(tools, fake_gpus, tmp_path, monkeypatch):
    fake_gpus(1, 1)
    monkeypatch.setenv("GRIDLOOM_FAKE_NCCL_FOLDER", str(tmp_path))
    command = ("bench", "all_reduce", "-n", "2", "-b", "1K", "-e", "1K", "--iters", "2", "--transport", "nccl")
    result = tools.call(*command, "--share-gpu")
    assert "# one GPU for all ranks" in result.stdout and "NCCL_HOSTID=gridloom-rank-RANK" in result.stdout
    assert "2 ranks on one GPU, transport nccl" in result.stdout
    monkeypatch.setenv("GRIDLOOM_FAKE_DEVICES", "1")
    refused = tools.call(*command, check=False)
    assert refused.returncode == 1 and "ranks 0 and 1 have the same GPU" in refused.stderr


def test_contradictions_are_refused(tools, fake_gpus, mlp, tmp_path):
    fake_gpus(2, 1)
    cpu, gpu = tmp_path / "cpu.plan", tmp_path / "gpu.plan"
    tools.compile(mlp, cpu, "--dim", "batch=6", "--mesh", "data=2")
    tools.compile(mlp, gpu, "--dim", "batch=6", "--mesh", "data=2", "--target", "cuda:sm_90")

    def refuse(plan, *options, env=None):
        result = tools.call("run", plan, "--input", "x=ones", *options, check=False, env=env)
        assert result.returncode != 0 and len(result.stderr.strip().splitlines()) == 1, result.stderr
        return result.stderr

    for transport in ("nccl", "loopback"):
        assert f"--transport {transport} joins GPUs, but" in refuse(cpu, "--transport", transport)
    assert "--transport local joins CPU ranks" in refuse(gpu, "--transport", "local")
    assert "--device names a GPU" in refuse(cpu, "--device", "0")
    assert "--threads is for CPU ranks" in refuse(gpu, "--threads", "2")
    assert "--transport nccl has one GPU for each rank" in refuse(gpu, "--device", "1")
    assert "--copy-engines is for --transport nccl" in refuse(gpu, "--transport", "loopback", "--copy-engines")
    launched = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    assert "threads of one process" in refuse(gpu, "--transport", "loopback", "--timeout", "0.1", env=launched)
    assert "no GPU 7" in refuse(gpu, "--transport", "loopback", "--device", "7")
    result = tools.call("bench", "all_reduce", "--share-gpu", check=False)
    assert "--share-gpu is for --transport nccl" in result.stderr
