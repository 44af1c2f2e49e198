"""Weights that share one parameter: compile --tie."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import gridloom

VOCABULARY, HIDDEN, BATCH = 6, 4, 8
RANDOM = np.random.default_rng(2)
TABLE = RANDOM.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32)


def save(path, form: str, table=TABLE, head=None, **others):
    """logits = (table[ids] + shift) head, where head is [hidden, vocabulary], or [vocabulary, hidden] and transposed by Gemm."""
    isTransposed = form == "transposed"
    head = (table.T if isTransposed else table) if head is None else head
    project = helper.make_node("MatMul", ["h", "head"], ["logits"], name="project") if isTransposed else helper.make_node("Gemm", ["h", "head"], ["logits"], name="project", transB=1)
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"], name="embed"), helper.make_node("Add", ["e", "shift"], ["h"], name="add"), project]
    weights = {"table": table, "shift": np.full(HIDDEN, 0.5, np.float32), "head": head} | others
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch"])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(table)])]
    tensors = [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in weights.items()]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, tensors), opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


TIES = {"equal": "head", "transposed": "transpose(head)"}


def compile_tied(tools, path, plan, form, mesh="", **options):
    options = {"train": True, "loss": "cross_entropy(logits, labels)", "optimizer": "sgd(lr=0.3)", "tie": {"table": TIES[form]}} | options
    return gridloom.compile(path, plan, mesh=mesh or None, dims={"batch": BATCH}, tools=tools.folder, **options)


def steps_by_hand(ids, labels, count: int):
    """The table after `count` steps of rate 0.3: one matrix, whose gradient is the sum over both uses."""
    table, shift = TABLE.astype(np.float64), np.full(HIDDEN, 0.5)
    for _ in range(count):
        h = table[ids] + shift
        shares = np.exp(h @ table.T)
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(len(ids)), labels] -= 1
        shares /= len(ids)
        gradient = shares.T @ h
        dh = shares @ table
        np.add.at(gradient, ids, dh)
        table, shift = table - 0.3 * gradient, shift - 0.3 * dh.sum(axis=0)
    return table, shift


@pytest.mark.parametrize(("form", "mesh", "zero"), [("equal", "", None), ("transposed", "", None), ("equal", "data=2", 3), ("transposed", "model=2", None)])
def test_training(tools, tmp_path, form, mesh, zero):
    path = save(tmp_path / "m.onnx", form)
    plan = compile_tied(tools, path, tmp_path / "m.plan", form, mesh, zero=zero)
    ids, labels = RANDOM.integers(0, VOCABULARY, BATCH), RANDOM.integers(0, VOCABULARY, BATCH)
    table, shift = steps_by_hand(ids, labels, 3)
    with gridloom.load(plan.path) as session:
        before = session.run({"ids": ids}, entry="main")["logits"]
        for _ in range(3):
            session.run({"ids": ids, "labels": labels, "learning_rate": np.float32(0.3)}, entry="train_step")
        np.testing.assert_allclose(session.get_state("table"), table, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(session.get_state("shift"), shift, rtol=1e-4, atol=1e-5)
        after = session.run({"ids": ids}, entry="main")["logits"]
        with pytest.raises(gridloom.Error):
            session.get_state("head")
    np.testing.assert_allclose(before, (TABLE[ids] + 0.5) @ TABLE.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after, (table[ids] + shift) @ table.T, rtol=1e-3, atol=1e-4)
    assert "PASS" in tools.call("check", plan.path, "--exact").stdout


@pytest.mark.parametrize("form", TIES)
def test_checkpoints_have_both(tools, tmp_path, form):
    """Exported models and other plans get the value for both weights; a run continues from the checkpoint."""
    path = save(tmp_path / "m.onnx", form)
    plan = compile_tied(tools, path, tmp_path / "m.plan", form)
    ids, labels = np.arange(BATCH) % VOCABULARY, np.arange(BATCH) % 3
    np.savez(tmp_path / "data.npz", ids=ids, labels=labels)
    run = ["train", plan.path, "--data", tmp_path / "data.npz", "--checkpoint-dir", tmp_path / "run"]
    tools.call(*run, "--steps", 3)
    for source in (["--plan", plan.path], ["--model", path]):
        tools.call("checkpoint", "export", tmp_path / "run", *source, "-o", tmp_path / "trained.onnx", "--force")
        weights = {each.name: numpy_helper.to_array(each) for each in onnx.load(tmp_path / "trained.onnx").graph.initializer}
        head = weights["head"].T if form == "transposed" else weights["head"]
        np.testing.assert_array_equal(weights["table"], head)
        assert np.abs(weights["table"] - TABLE).max() > 1e-3
    expected = onnxruntime.InferenceSession(tmp_path / "trained.onnx").run(None, {"ids": ids})[0]
    with gridloom.load(plan.path, weights=tmp_path / "trained.onnx") as session:
        np.testing.assert_allclose(session.run({"ids": ids}, entry="main")["logits"], expected, rtol=1e-4, atol=1e-5)
    untied = gridloom.compile(path, tmp_path / "run.plan", dims={"batch": BATCH}, tools=tools.folder)
    with gridloom.load(untied.path, weights=sorted((tmp_path / "run").glob("step-*"))[-1]) as session:
        np.testing.assert_allclose(session.run({"ids": ids})["logits"], expected, rtol=1e-4, atol=1e-5)
    tools.call("checkpoint", "export", tmp_path / "run", "-o", tmp_path / "trained.safetensors")
    assert b'"head"' in (tmp_path / "trained.safetensors").read_bytes()
    tools.call(*run, "--steps", 5, "--resume")


def test_ties_of_a_tied_weight_follow_it(tools, tmp_path):
    """third = table, and table = head transposed: an exported model has the trained values in all three."""
    model = onnx.load(save(tmp_path / "m.onnx", "transposed", third=TABLE))
    model.graph.node.insert(1, helper.make_node("Gather", ["third", "ids"], ["t"], name="look"))
    model.graph.node.insert(2, helper.make_node("Add", ["e", "t"], ["u"], name="join"))
    model.graph.node[3].input[0] = "u"
    onnx.save(model, tmp_path / "m.onnx")
    tie = {"table": "third", "head": "transpose(table)"}
    plan = compile_tied(tools, tmp_path / "m.onnx", tmp_path / "m.plan", "transposed", tie=tie)
    np.savez(tmp_path / "data.npz", ids=np.arange(BATCH) % VOCABULARY, labels=np.arange(BATCH) % 3)
    tools.call("train", plan.path, "--data", tmp_path / "data.npz", "--checkpoint-dir", tmp_path / "run", "--steps", 2)
    tools.call("checkpoint", "export", tmp_path / "run", "--model", tmp_path / "m.onnx", "-o", tmp_path / "trained.onnx")
    weights = {each.name: numpy_helper.to_array(each) for each in onnx.load(tmp_path / "trained.onnx").graph.initializer}
    assert np.abs(weights["head"].T - TABLE).max() > 1e-3
    for name in "table", "third":
        np.testing.assert_array_equal(weights[name], weights["head"].T, err_msg=name)


def test_the_doctor_names_the_option(tools, tmp_path):
    path = save(tmp_path / "m.onnx", "transposed")
    text = tools.call("doctor", path, "--train").stdout
    assert "both together with --tie 'table=transpose(head)'" in text
    text = tools.call("doctor", path, "--train", "--tie", "table=transpose(head)").stdout
    assert "'head' is the transpose of 'table'" in text and "hold the same numbers" not in text and "--tie 'table=transpose(head)'" in text.splitlines()[-1]


OTHER = TABLE.copy()
OTHER[2, 1] = 9
SQUARE = RANDOM.standard_normal((4, 4)).astype(np.float32)
REFUSED = {
    "no such weight": ("equal", {}, "table=heed", "the program reads no weight 'heed'"),
    "no such first weight": ("equal", {}, "tabel=head", "the program reads no weight 'tabel'"),
    "no option": ("equal", {}, "table", "is not of the form"),
    "shapes": ("equal", {}, "table=shift", "'table' of tensor<6x4xf32> and 'shift' of tensor<4xf32> have different shapes"),
    "a transpose": ("transposed", {}, "table=head", "have different shapes; give --tie 'table=transpose(head)'"),
    "no transpose": ("equal", {}, "table=transpose(head)", "have different shapes; give --tie 'table=head'"),
    "values": ("equal", {"head": OTHER}, "table=head", "and 'head' is 9 there; neither wins: give both the same values"),
    "a square": ("equal", {"table": SQUARE, "head": SQUARE.T}, "table=head", "; give --tie 'table=transpose(head)'"),
    "a square's transpose": ("transposed", {"table": SQUARE, "head": SQUARE}, "table=transpose(head)", "; give --tie 'table=head'"),
    "itself": ("equal", {}, "table=table", "a weight is not tied to itself"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tools, tmp_path, case):
    form, weights, tie, message = REFUSED[case]
    command = ["compile", save(tmp_path / "m.onnx", form, **weights), "--train", "--loss", "cross_entropy(logits, labels)", "--dim", "batch=8"]
    result = tools.call(*command, "-o", tmp_path / "m.plan", "--tie", tie, check=False)
    assert result.returncode == 1 and f"--tie '{tie}': " in result.stderr and message in result.stderr, result.stderr
    assert result.stderr.count("error:") == 1


def test_values_that_differ_may_begin_otherwise(tools, tmp_path):
    path = save(tmp_path / "m.onnx", "equal", head=OTHER)
    plan = compile_tied(tools, path, tmp_path / "m.plan", "equal", init={"table": "normal(0, 0.1)"})
    with gridloom.load(plan.path) as session:
        assert 0 < np.abs(session.get_state("table")).max() < 1


def test_ties_twice_and_without_training(tools, tmp_path):
    path = save(tmp_path / "m.onnx", "equal")
    command = ["compile", path, "--dim", "batch=8", "-o", tmp_path / "m.plan", "--tie", "table=head"]
    assert "goes with --train" in tools.call(*command, check=False).stderr
    result = tools.call(*command, "--tie", "head=shift", "--train", "--loss", "cross_entropy(logits, labels)", check=False)
    assert "'head' is tied to 'table' already" in result.stderr
