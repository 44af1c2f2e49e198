"""Labels in training: class weights, ignored rows, and labels that are no class."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from training_models import Mlp

import gridloom

WEIGHTS = [0.2, 1.0, 3.0, 0.0, 0.5]


def draw_normal(seed: int):
    random = np.random.default_rng(seed)
    return lambda *shape: random.standard_normal(shape) * 0.4


def weighted_cross_entropy(y, labels, weights, smoothing: float = 0.0, ignored: int | None = None):
    """torch.nn.functional.cross_entropy by its documentation, its derivative by y, and the mean's divisor."""
    kept = labels != ignored
    rows = np.flatnonzero(kept)
    wanted = np.full(y.shape, smoothing / y.shape[1])
    wanted[rows, labels[rows]] += 1 - smoothing
    wanted = wanted * weights * kept[:, None]
    shares = np.exp(y - y.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    count = weights[labels[rows]].sum()
    loss = -(wanted * np.log(shares)).sum() / count
    return loss, (wanted.sum(axis=1, keepdims=True) * shares - wanted) / count, count


CASES = [
    ("", {}),
    (", label_smoothing=0.1", {"smoothing": 0.1}),
    (", ignore_index=2", {"ignored": 2}),
    (", label_smoothing=0.3, ignore_index=-100", {"smoothing": 0.3, "ignored": -100}),
]
PLACES = [
    (7, {}),
    (7, {"mesh": "data=3"}),
    (9, {"mesh": "data=2,model=2", "zero": 1}),
    (8, {"microbatches": 4}),
    (6, {"mesh": "data=2", "microbatches": 3}),
]


@pytest.mark.parametrize(("batch", "options"), PLACES)
@pytest.mark.parametrize(("text", "settings"), CASES)
def test_weights_of_classes_are_those_of_the_formula(tools, tmp_path, batch, options, text, settings):
    """In f64, so within its rounding for sums of at most 50 products."""
    model = Mlp(draw_normal(1))
    random = np.random.default_rng(batch)
    x, labels = random.standard_normal((batch, 10)), random.integers(0, 5, batch)
    labels[[0, 3, 5]] = settings.get("ignored", 1)
    y, kept = model.forward(model.weights, x, np.einsum)
    loss, dy, count = weighted_cross_entropy(y, labels, np.array(WEIGHTS), **settings)
    gradients = model.backward(model.weights, kept, dy, np.einsum)
    loss_text = f"cross_entropy(y, labels, class_weights={WEIGHTS}{text})"
    options = {"train": True, "loss": loss_text, "optimizer": "sgd", "dims": {"batch": batch}, **options}
    plan = gridloom.compile(model.save(tmp_path / "m.onnx"), tmp_path / "m.plan", tools=tools.folder, **options)
    with gridloom.load(plan, threads=1) as session:
        inputs = {"x": x, "labels": labels}
        for outputs in (session.run(inputs, entry="eval"), session.run(inputs | {"learning_rate": np.float32(1)}, entry="train_step")):
            assert outputs["loss"] == np.float32(loss) and outputs["count"] == np.float32(count)
        for name, gradient in gradients.items():
            np.testing.assert_allclose(model.weights[name] - session.get_state(name), gradient, rtol=0, atol=1e-13, err_msg=name)


def test_evaluations_weigh_batches_by_their_labels(tools, tmp_path):
    """The mean over batches must equal the mean over all samples."""
    model = Mlp(draw_normal(1))
    random = np.random.default_rng(4)
    x, labels = random.standard_normal((16, 10)), random.integers(0, 5, 16)
    loss = weighted_cross_entropy(model.forward(model.weights, x, np.einsum)[0], labels, np.array(WEIGHTS))[0]
    options = {"train": True, "loss": f"cross_entropy(y, labels, class_weights={WEIGHTS})", "dims": {"batch": 4}}
    plan = gridloom.compile(model.save(tmp_path / "m.onnx"), tmp_path / "m.plan", tools=tools.folder, **options)
    with gridloom.Trainer(plan, threads=1) as trainer:
        assert trainer.evaluate({"x": x, "labels": labels})["loss"] == pytest.approx(loss, rel=1e-6)


def save_masked_model(path):
    """y = x w + mask: a row's logits may be infinite or NaN although the values they are computed from are finite."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Add", ["z", "mask"], ["y"])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size]) for name, size in (("x", 4), ("mask", 3))]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])
    weight = numpy_helper.from_array(draw_normal(2)(4, 3).astype(np.float32), "w")
    graph = helper.make_graph(nodes, "masked", inputs, [output], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path, numpy_helper.to_array(weight).astype(np.float64)


@pytest.mark.parametrize("mesh", [None, "data=2"])
@pytest.mark.parametrize(
    ("broken", "settings"),
    [(np.nan, ""), (np.nan, ", label_smoothing=0.1"), (np.nan, ", class_weights=[1, 2, 3]"), (np.inf, ", label_smoothing=0.1"), (-np.inf, "")],
)
def test_ignored_rows_count_for_nothing_whatever_they_hold(tools, tmp_path, mesh, settings, broken):
    path, weight = save_masked_model(tmp_path / "m.onnx")
    random = np.random.default_rng(3)
    x, mask = random.standard_normal((6, 4)).astype(np.float32), np.zeros((6, 3), np.float32)
    labels = np.array([0, -1, 2, 1, -1, 2])
    mask[1], mask[4, 1] = broken, broken
    numbers = np.array([1.0, 2.0, 3.0]) if "weights" in settings else np.ones(3)
    smoothing = 0.1 if "smoothing" in settings else 0.0
    rows = labels >= 0
    loss, dy, _ = weighted_cross_entropy(x[rows] @ weight, labels[rows], numbers, smoothing)
    text = f"cross_entropy(y, labels, ignore_index=-1{settings})"
    metric = "accuracy(y, labels, ignore_index=-1)"
    options = {"train": True, "loss": text, "metric": metric, "optimizer": "sgd", "dims": {"batch": 6}, "mesh": mesh}
    plan = gridloom.compile(path, tmp_path / "m.plan", tools=tools.folder, **options)
    with gridloom.load(plan, threads=1) as session:
        outputs = session.run({"x": x, "mask": mask, "labels": labels, "learning_rate": np.float32(1)}, entry="train_step")
        assert outputs["committed"] == 1 and outputs["loss"] == pytest.approx(loss, rel=1e-6)
        np.testing.assert_allclose(weight - session.get_state("w"), x[rows].T @ dy, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def plans(tools, tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    path = Mlp(draw_normal(1)).save(folder / "m.onnx")
    for name, settings in (("plain", ""), ("ignoring", ", ignore_index=-100")):
        loss = f"cross_entropy(y, labels{settings})"
        gridloom.compile(path, folder / f"{name}.plan", train=True, loss=loss, dims={"batch": 4}, mesh="data=2", tools=tools.folder)
    return folder


def draw_data(label: int):
    data = {"x": np.random.default_rng(1).standard_normal((20, 10)), "labels": np.arange(20) % 5}
    data["labels"][13] = label
    return data


@pytest.mark.parametrize(
    ("plan", "label", "why"),
    [
        ("plain", 5, "loss 'cross_entropy(y, labels)' has the 5 classes 0 to 4; give it ignore_index="),
        ("plain", -1, "loss 'cross_entropy(y, labels)' has the 5 classes 0 to 4; give it ignore_index="),
        ("ignoring", 1 << 40, "loss 'cross_entropy(y, labels, ignore_index=-100)' has the 5 classes 0 to 4 and ignores -100"),
        ("ignoring", -100, None),
    ],
)
def test_a_label_that_is_no_class_is_named(tools, plans, tmp_path, plan, label, why):
    for name, data in (("data", draw_data(label)), ("right", draw_data(0))):
        np.savez(tmp_path / f"{name}.npz", **data)
    run = ["train", plans / f"{plan}.plan", "--data"]
    result = tools.call(*run, tmp_path / "data.npz", check=False)
    evaluated = tools.call(*run, tmp_path / "right.npz", "--eval-data", tmp_path / "data.npz", check=False)
    if why is None:
        assert (result.returncode, evaluated.returncode) == (0, 0)
        return
    step = re.search(r"error: step (\d) \(samples (\d+) to (\d+) of epoch 1\): labels\.npy holds label (-?\d+) in sample 13; (.*)", result.stderr)
    assert step and int(step[4]) == label and why in step[5], result.stderr
    assert f"error: evaluation (samples 12 to 15): labels.npy holds label {label} in sample 13; {why}" in evaluated.stderr


@pytest.mark.parametrize("where", ["data", "eval"])
def test_a_label_that_is_no_class_loses_no_steps(tools, plans, tmp_path, where):
    for name in ("data", "eval"):
        np.savez(tmp_path / f"{name}.npz", **draw_data(7 if name == where else 0))
    files = ["--data", tmp_path / "data.npz", "--eval-data", tmp_path / "eval.npz", "--checkpoint-dir", tmp_path / "c"]
    result = tools.call("train", plans / "plain.plan", *files, check=False)
    step = 5 if where == "eval" else int(re.search(r"error: step (\d) ", result.stderr)[1]) - 1
    folder = tmp_path / "c" / f"step-{step:010d}"
    assert result.returncode == 1 and result.stderr.strip().endswith(f"; --resume continues from {folder}")
    assert json.loads((folder / "manifest.json").read_text())["step"] == step


def test_labels_of_several_losses_are_classes_of_each(tools, tmp_path):
    path = Mlp(draw_normal(1)).save(tmp_path / "m.onnx")
    losses = ["cross_entropy(y, labels, ignore_index=-1)", "cross_entropy(y, labels)"]
    plan = gridloom.compile(path, tmp_path / "m.plan", train=True, loss=losses, dims={"batch": 4}, tools=tools.folder)
    np.savez(tmp_path / "data.npz", **draw_data(-1))
    result = tools.call("train", plan.path, "--data", tmp_path / "data.npz", check=False)
    assert "labels.npy holds label -1 in sample 13; loss 'cross_entropy(y, labels)' has the 5 classes" in result.stderr
    with gridloom.Trainer(plan, threads=1) as trainer, pytest.raises(ValueError, match=r"loss 'cross_entropy\(y, labels\)' has"):
        trainer.fit(draw_data(-1), epochs=1)


def test_python_names_it_too(plans):
    with gridloom.Trainer(plans / "plain.plan", threads=1) as trainer:
        where = r"input 'labels' holds label 7 in {}; loss 'cross_entropy\(y, labels\)' has the 5 classes 0 to 4$"
        with pytest.raises(ValueError, match=r"^step \d: " + where.format("sample 13")):
            trainer.fit(draw_data(7), epochs=1)
        with pytest.raises(ValueError, match="^evaluation: " + where.format("sample 13")):
            trainer.evaluate(draw_data(7))
        batch = {name: array[12:16] for name, array in draw_data(7).items()}
        with pytest.raises(ValueError, match=where.format("row 1 of the batch")):
            trainer.step(batch)
        # A session reports it, too, if indices are checked.
        with pytest.raises(gridloom.Error, match="input 'labels' holds label 7 in row 1 of the batch; loss"):
            trainer.session.run({**batch, "learning_rate": np.float32(1)}, entry="train_step")
