"""The shard phase's dump has each operation's splits, and partitioning follows them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from onnx import TensorProto, helper

from gridloom import zoo

PRODUCT = re.compile(r"loom\.dot_general .*?dist\.splits = (#dist\.splits<\[.*?\]>)")


@pytest.fixture
def dump(tools, tmp_path, monkeypatch):
    """The shard phase's dump of an MLP of two products on two devices."""
    monkeypatch.chdir(tmp_path)
    zoo.save(zoo.mlp([16, 32, 8], zoo.Random(0, scale=0.2)), "mlp.onnx")
    tools.compile("mlp.onnx", "m.plan", "--dim", "batch=4", "--mesh", "model=2", "--dump-ir", "dumps")
    return tmp_path / "dumps" / "03-shard.mlir"


def products(folder):
    """The types of operands and results of the partitioned program's products."""
    (after,) = folder.glob("*-partition.mlir")
    return re.findall(r"loom\.dot_general .* : (\(.*\) -> \S+)", after.read_text())


def test_partitioning_does_what_is_written(tools, dump, tmp_path):
    """Splits by columns and by the contraction are edited into splits by rows: the output is the same."""
    text = dump.read_text()
    assert PRODUCT.findall(text) == ['#dist.splits<[{}, {"model"}, {}]>', '#dist.splits<[{}, {}, {"model"}]>']
    assert products(tmp_path / "dumps")[0] == "(tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>"
    written = '#dist.splits<[{"model"}, {}, {}]>'
    dump.write_text(text.replace('#dist.splits<[{}, {"model"}, {}]>', written, 1).replace('#dist.splits<[{}, {}, {"model"}]>', written, 1))
    tools.call("compile", "--start-from", "partition", dump, "-o", "by-hand.plan", "--dump-ir", "by-hand")
    assert products(tmp_path / "by-hand") == [
        "(tensor<2x16xf32>, tensor<16x32xf32>) -> tensor<2x32xf32>",
        "(tensor<2x32xf32>, tensor<32x8xf32>) -> tensor<2x8xf32>",
    ]
    inputs = {"x": np.random.default_rng(0).standard_normal((4, 16), dtype=np.float32)}
    expected, actual = (tools.run(plan, inputs, tmp_path / f"{plan}.values").outputs["y"] for plan in ("m.plan", "by-hand.plan"))
    assert np.allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize(
    "old,new,message",
    [
        (r"dist\.splits = #dist\.splits<\[\{\}, \{\"model\"\}, \{\}\]>, ", "", "has no dist.splits; dist-choose-splits writes an entry for each of its 3 factors"),
        (r"\[\{\}, \{\"model\"\}, \{\}\]>", '[{"model"}, {}]>', "has dist.splits of 2 factors; its sharding rule has 3"),
        (r"\[\{\}, \{\"model\"\}, \{\}\]>", '[{"model"}, {"model"}, {}]>', "splits over axis 'model' twice"),
        (r"\[\{\}, \{\"model\"\}, \{\}\]>", '[{}, {"modl"}, {}]>', "axis 'modl' is not in the mesh (axes: model)"),
        (r"\[\{\}, \{\"model\"\}, \{\}\]>", '[{}, {}, {}], unreduced = {"model"}>', "is not linear, so its operands cannot stay unreduced"),
    ],
)
def test_splits_that_cannot_be(tools, dump, old, new, message):
    text, count = re.subn(old, lambda _: new, dump.read_text(), count=1)
    assert count == 1
    dump.write_text(text)
    result = tools.call("compile", "--start-from", "partition", dump, "-o", "edited.plan", check=False)
    (line,) = result.stderr.splitlines()
    assert result.returncode == 1 and line.startswith("error: ") and message in line, line


# Storage


def test_weights_that_lie_in_parts(tools, tmp_path, monkeypatch):
    """Each device stores a quarter of the weights' rows and gathers a weight where it is read: the computation is still split by the
    batch."""
    monkeypatch.chdir(tmp_path)
    zoo.save(zoo.mlp([16, 32, 8], zoo.Random(0, scale=0.2)), "mlp.onnx")
    options = ["--dim", "batch=8", "--mesh", "data=4", "--dump-ir"]
    tools.compile("mlp.onnx", "whole.plan", *options, "whole")
    tools.compile("mlp.onnx", "parts.plan", *options, "parts", "--shard", "*weight=stored[{data},{}]")
    assert products(tmp_path / "whole") == products(tmp_path / "parts")
    values = json.loads((tmp_path / "parts.plan" / "report.json").read_text())["values"]
    stored = {v["name"]: v["storage"] for v in values if "storage" in v and v["storage"] != v["sharding"]}
    assert len(stored) == 2 and set(stored.values()) == {'#dist.sharding<@mesh, [{"data"}, {}]>'}
    (dump,) = (tmp_path / "parts").glob("*-partition.mlir")
    assert len(re.findall(r"loom\.get_weight .*sharding = #dist\.sharding<@mesh, \[\{\"data\"\}, \{\}\]>\}", dump.read_text())) == 2
    collectives = re.findall(r"dist\.(\w+) .*? over .*?dist\.because = \"(.*?)\"", dump.read_text())
    assert [kind for kind, _ in collectives] == ["all_gather"] * 2
    assert all("needs all of a value that 'data' splits" in cause for _, cause in collectives)
    inputs = {"x": np.random.default_rng(0).standard_normal((8, 16), dtype=np.float32)}
    expected, actual = (tools.run(plan, inputs, tmp_path / f"{plan}.values").outputs["y"] for plan in ("whole.plan", "parts.plan"))
    assert np.allclose(actual, expected, atol=1e-5)
    assert "PASS" in tools.call("check", "parts.plan", "--exact").stdout


def test_pins_of_a_state_that_contradict(tools, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = zoo.Gpt2Config(layers=1, hidden=32, heads=4, vocabulary=50, positions=32, cache="static")
    zoo.save(zoo.gpt2(config, zoo.Random(0)), "gpt2.onnx")
    options = ["--dim", "batch=2", "--dim", "sequence=1", "--state", "past_*=present_*", "--mesh", "model=2"]
    pins = ["past_key_0=[{},{model},{},{}]", "present_key_0=[{},{},{model},{}]"]
    result = tools.call("compile", "gpt2.onnx", "-o", "m.plan", *options, "--shard", pins[0], "--shard", pins[1], check=False)
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: --shard '{pins[1]}' contradicts --shard '{pins[0]}': input 'past_key_0' and output 'present_key_0' are one state"), line


def save(path, nodes, inputs, outputs):
    """A model of f32 tensors, but for indices 'i'; `inputs` and `outputs` map names to shapes."""
    kind = lambda name: TensorProto.INT64 if name == "i" else TensorProto.FLOAT  # noqa: E731
    values = [[helper.make_tensor_value_info(name, kind(name), shape) for name, shape in each.items()] for each in (inputs, outputs)]
    graph = helper.make_graph([helper.make_node(*node) for node in nodes], "graph", *values)
    return zoo.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def test_a_lookup_in_a_split_table_keeps_signs_of_zeros(tools, tmp_path):
    table = np.ones((6, 8), np.float32)
    table[0], table[4] = -0.0, 0.0
    inputs = {"t": table, "i": np.array([0, 4, 5])}
    nodes = [("Gather", ["t", "i"], ["rows"]), ("Reciprocal", ["rows"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, {"t": (6, 8), "i": (3,)}, {"y": (3, 8)})
    tools.compile(path, tmp_path / "m.plan", "--mesh", "m=2", "--shard", "t=[{m},{}]")
    y = tools.run(tmp_path / "m.plan", inputs, tmp_path / "values").outputs["y"]
    assert (y[0] == -np.inf).all() and (y[1] == np.inf).all() and (y[2] == 1).all()


@pytest.mark.parametrize(
    "node,inputs,output,pins",
    [
        (("Relu", ["x"], ["y"]), {"x": (4, 0)}, (4, 0), ["y=[{},{m}]"]),
        (("Identity", ["x"], ["y"]), {"x": (4, 0)}, (4, 0), ["x=[{},{m}]", "y=[{},{}]"]),
        (("MatMul", ["x", "b"], ["y"]), {"x": (4, 0), "b": (0, 3)}, (4, 3), ["x=[{},{m}]"]),
    ],
    ids=["Relu", "Identity", "MatMul"],
)
def test_a_dimension_without_elements_is_split(tools, tmp_path, node, inputs, output, pins):
    path = save(tmp_path / "m.onnx", [node], inputs, {"y": output})
    tools.compile(path, tmp_path / "m.plan", "--mesh", "m=2", *[word for pin in pins for word in ("--shard", pin)])
    assert "PASS" in tools.call("check", tmp_path / "m.plan").stdout


def test_a_product_with_itself_in_chunks(tools, tmp_path):
    nodes = [("Transpose", ["x"], ["t"]), ("MatMul", ["x", "t"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, {"x": (256, 8)}, {"y": (256, 256)})
    tools.compile(path, tmp_path / "m.plan", "--mesh", "model=2", "--shard", "x=[{},{model}]", "--chunk-matmul", "4")
    x = np.random.default_rng(0).standard_normal((256, 8), dtype=np.float32)
    y = tools.run(tmp_path / "m.plan", {"x": x}, tmp_path / "values").outputs["y"]
    np.testing.assert_allclose(y, x @ x.T, rtol=1e-5, atol=1e-5)
