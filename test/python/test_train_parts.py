"""A batch in parts draws the random numbers of the whole batch, in whichever dimension its rows are."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import gridloom
from gridloom import zoo

ROWS, STEPS, WIDTH = 4, 5, 6


def save(path, layout):
    """x -> x w, dropped out, v; the rows are first, second, or merged with the steps where numbers are dropped."""
    random = np.random.default_rng(5)
    weights = {name: random.standard_normal((WIDTH, WIDTH)).astype(np.float32) for name in "wv"}
    constants = {"ratio": np.float32(0.5), "training": np.bool_(True), "merged": np.array([-1, WIDTH]), "apart": np.array([STEPS, -1, WIDTH])}
    to = {"first": [], "second": [("Transpose", {"perm": [1, 0, 2]})], "merged": [("Transpose", {"perm": [1, 0, 2]}), ("Reshape", "merged")]}
    back = {"first": [], "second": [("Transpose", {"perm": [1, 0, 2]})], "merged": [("Reshape", "apart"), ("Transpose", {"perm": [1, 0, 2]})]}
    nodes, value = [helper.make_node("MatMul", ["x", "w"], ["h"])], "h"
    for place, (kind, option) in enumerate([*to[layout], ("Dropout", None), *back[layout]]):
        inputs = [value, *([option] if isinstance(option, str) else []), *(["ratio", "training"] if kind == "Dropout" else [])]
        value = f"{kind}{place}"
        nodes.append(helper.make_node(kind, inputs, [value], **(option if isinstance(option, dict) else {}), **({"seed": 1} if kind == "Dropout" else {})))
    nodes.append(helper.make_node("MatMul", [value, "v"], ["y"]))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", STEPS, WIDTH]) for name in "xy")
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in {**weights, **constants}.items()]
    return zoo.save(helper.make_model(helper.make_graph(nodes, "parts", [x], [y], initializers), opset_imports=[helper.make_opsetid("", 17)]), path)


@pytest.mark.parametrize("layout", ["first", "second", "merged"])
def test_parts_drop_what_the_whole_drops(tools, tmp_path, layout):
    path = save(tmp_path / "m.onnx", layout)
    random = np.random.default_rng(6)
    batch = {name: random.standard_normal((ROWS, STEPS, WIDTH)).astype(np.float32) for name in "xt"}
    losses = []
    for parts in (1, 2, 4):
        plan = gridloom.compile(path, tmp_path / f"{parts}.plan", train=True, loss="mse(y, t)", optimizer="sgd(lr=0.1)",
                                dims={"batch": ROWS}, microbatches=parts, tools=tools.folder)  # fmt: skip
        with gridloom.Trainer(plan) as trainer:
            losses.append([float(trainer.step(batch)["loss"]) for _ in range(2)])
    np.testing.assert_allclose(losses, [losses[0]] * 3, rtol=1e-6)


def test_a_sum_over_the_batch_is_warned_of_once(tools, tmp_path):
    """Not for each specialisation."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "steps", WIDTH]) for name in "xy")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("ReduceMean", ["h"], ["m"], axes=[0], name="mean"),
        helper.make_node("Sub", ["h", "m"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "centred", [x], [y], [numpy_helper.from_array(np.eye(WIDTH, dtype=np.float32), "w")])
    path = zoo.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    options = ["--train", "--loss", "mse(y, t)", "--dim", "batch=4", "--dim", "steps=2,3,5", "--microbatches", "2"]
    told = tools.compile(path, tmp_path / "m.plan", *options).stderr
    assert told.count("warning: node 'mean': sums over the batch, of which --microbatches 2 gives it a part at a time") == 1
