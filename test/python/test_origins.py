"""Every collective of a plan says which node of the ONNX file it is for."""

from __future__ import annotations

import json

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


@pytest.mark.parametrize("mesh", ["model=2", "data=2,model=2", "pipe=2", "model=3"])
@pytest.mark.parametrize("make", [bert, mlp, gpt2])
def test_collectives_name_nodes(tools, tmp_path, make, mesh):
    path, options = make(tmp_path / "model.onnx")
    tools.compile(path, tmp_path / "model.plan", "--mesh", mesh, *options)
    shown = tools.call("inspect", tmp_path / "model.plan", "collectives", "--format", "json").stdout
    nodes = {node.name for node in onnx.load(path).graph.node}
    origins = [c["onnx_node"] for c in json.loads(shown)["collectives"]]
    assert origins, "nothing is communicated"
    for origin in origins:
        parts = [part for part in origin.split(" + ") if part]
        assert parts and set(parts) <= nodes, f"'{origin}' is no node of the model"
