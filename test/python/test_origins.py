"""Every collective of a plan names the node of the ONNX file that it is for, and why it is needed."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import pytest

from gridloom import zoo

BERT = zoo.BertConfig(layers=2, hidden=32, heads=4, intermediate=64, vocabulary=50, positions=16)


def bert(path):
    return zoo.save(zoo.bert(BERT, zoo.Random(0)), path), ["--dim", "batch=8", "--dim", "sequence=8"]


def mlp(path):
    return zoo.save(zoo.mlp([16, 32, 8, 32, 8], zoo.Random(0)), path), ["--dim", "batch=8"]


def gpt2(path):
    config = zoo.Gpt2Config(layers=2, hidden=32, heads=4, vocabulary=50, positions=16)
    dims = {"batch": 4, "sequence": 8, "past": 0, "past_sequence": 0, "total": 8}
    model = zoo.gpt2(config, zoo.Random(0))
    used = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
    return zoo.save(model, path), [part for d in sorted(used) for part in ("--dim", f"{d}={dims[d]}")]


def show_collectives(tools, plan):
    return json.loads(tools.call("inspect", plan, "collectives", "--format", "json").stdout)["collectives"]


def check_causes(path, collectives):
    """A cause quotes the node, or the output, that needs the communicated value."""
    graph = onnx.load(path, load_external_data=False).graph
    names = {node.name for node in graph.node} | {output.name for output in graph.output}
    assert collectives, "nothing is communicated"
    for collective in collectives:
        quoted = re.findall(r"'([^']*)'", collective["because"])
        nodes = [part for name in quoted for part in name.split(" + ")]
        assert names & set(nodes), f"{collective['kind']} for {collective['onnx_node']}: '{collective['because']}'"


def check_prices(report):
    """Each collective has a time in the simulated step, and the part of it that is exposed."""
    for collective in report["collectives"]:
        assert collective["because"] and collective["time_us"] > 0, collective
        assert 0 <= collective["exposed_us"] <= collective["time_us"] * (1 + 1e-9) + 1e-6, collective
        behind = sum(step["us"] for step in collective["hidden_behind"])
        hidden = collective["time_us"] - collective["exposed_us"]
        assert bool(behind) == (hidden > 1e-3) and collective["waiting_us"] >= 0, collective
    for stage in report["stages"]:
        own = [c for c in report["collectives"] if c["stage"] == stage["stage"] and c["kind"] not in ("send", "recv")]
        assert sum(c["exposed_us"] for c in own) / 1e3 >= stage["exposed_ms"] * (1 - 1e-3)


MODELS = "gpt2", "llama", "moe", "resnet", "unet", "vit"
CAUSED = [(name, mesh) for name in MODELS for mesh in ("data=2,model=2", "pipe=2", "model=3")]


@pytest.mark.parametrize(("name", "mesh"), [*CAUSED, ("lstm", "pipe=2")])
def test_collectives_have_causes(tools, tmp_path, name, mesh):
    model, options = zoo.SMALL[name]
    path = zoo.MODELS[model].write(tmp_path / "model.onnx", **options)
    used = {d.dim_param for i in onnx.load(path).graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
    dims = [part for d in sorted(used) for part in ("--dim", f"{d}={dict(batch=6, sequence=6, past=3)[d]}")]
    tools.compile(path, tmp_path / "model.plan", "--mesh", mesh, *dims)
    check_causes(path, show_collectives(tools, tmp_path / "model.plan"))
    check_prices(json.loads((tmp_path / "model.plan" / "report.json").read_text()))


def test_parts_of_an_input_have_an_origin(tools, tmp_path):
    """The bias of a packed projection is an input: its slices, made in stage 0 and read in stage 1, have the reading node as origin."""
    make = onnx.helper.make_node
    nodes = [make("Tanh", ["y"], ["t"], name="first"), make("MatMul", ["x", "w"], ["m"], name="packed"), make("Add", ["m", "b"], ["s"], name="shift")]
    nodes += [make("Split", ["s", "sizes"], ["p", "q"], axis=1, name="split"), make("Mul", ["p", "q"], ["z"], name="join")]
    shapes = {"x": [6, 4], "b": [8], "y": [6, 4], "z": [6, 4], "t": [6, 4]}
    values = {name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    tensors = [onnx.numpy_helper.from_array(np.ones((4, 8), np.float32), "w"), onnx.numpy_helper.from_array(np.array([4, 4]), "sizes")]
    graph = onnx.helper.make_graph(nodes, "g", [values[n] for n in "xby"], [values[n] for n in "zt"], tensors)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    tools.compile(tmp_path / "m.onnx", tmp_path / "m.plan", "--mesh", "model=2,pipe=2", "--shard", "x=[{model},{}]")
    sent = show_collectives(tools, tmp_path / "m.plan")
    assert any(c["onnx_node"] == "shift" for c in sent), sent


def test_a_halo_has_a_cause(tools, tmp_path):
    """An image split into strips: convolutions read their neighbours' rows."""
    path = zoo.save(zoo.unet(zoo.Random(0), depth=2, width=8, image=32), tmp_path / "unet.onnx")
    split = ["--mesh", "x=4", "--shard", "pixels=[{},{},{x},{}]", "--strategy", "dp"]
    tools.compile(path, tmp_path / "m.plan", "--dim", "batch=1", *split)
    collectives = show_collectives(tools, tmp_path / "m.plan")
    check_causes(path, collectives)
    permutes = [c["because"] for c in collectives if c["kind"] == "permute"]
    assert permutes and any("reads the shards of its neighbours along 'x'" in because for because in permutes)


@pytest.mark.parametrize("mesh", ["model=2", "data=2,model=2", "pipe=2", "model=3"])
@pytest.mark.parametrize("make", [bert, mlp, gpt2])
def test_collectives_name_nodes(tools, tmp_path, make, mesh):
    path, options = make(tmp_path / "model.onnx")
    tools.compile(path, tmp_path / "model.plan", "--mesh", mesh, *options)
    nodes = {node.name for node in onnx.load(path).graph.node}
    origins = [c["onnx_node"] for c in show_collectives(tools, tmp_path / "model.plan")]
    assert origins, "nothing is communicated"
    for origin in origins:
        parts = [part for part in origin.split(" + ") if part]
        assert parts and set(parts) <= nodes, f"'{origin}' is no node of the model"
