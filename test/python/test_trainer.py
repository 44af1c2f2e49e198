"""gridloom.Trainer on real plans: a classifier of synthetic digits learns, resumes bit for bit, and gives the same results in ONNX
Runtime."""

from __future__ import annotations

import gridloom
import numpy as np
import onnx
import pytest
from conftest import onnxruntime_session
from onnx import TensorProto, helper, numpy_helper

BATCH, SIZE, HIDDEN, CLASSES = 16, 64, 32, 10
MESHES = ["", "data=2", "model=2"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    random = np.random.default_rng(0)
    weights = {
        "fc1.weight": random.standard_normal((SIZE, HIDDEN)) / np.sqrt(SIZE),
        "fc1.bias": np.zeros(HIDDEN),
        "fc2.weight": random.standard_normal((HIDDEN, CLASSES)) / np.sqrt(HIDDEN),
        "fc2.bias": np.zeros(CLASSES),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "fc1.weight"], ["a"]),
        helper.make_node("Add", ["a", "fc1.bias"], ["b"]),
        helper.make_node("Relu", ["b"], ["h"]),
        helper.make_node("MatMul", ["h", "fc2.weight"], ["c"]),
        helper.make_node("Add", ["c", "fc2.bias"], ["logits"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", SIZE])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])
    initializers = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    proto = helper.make_model(helper.make_graph(nodes, "digits", [x], [logits], initializers), ir_version=10)
    proto.opset_import[0].version = 20
    path = tmp_path_factory.mktemp("trainer") / "digits.onnx"
    onnx.save(proto, path)
    return path


@pytest.fixture(scope="module")
def plan(tools, model):
    """Plans by mesh, each compiled once."""
    plans = {}

    def make(mesh: str = "") -> gridloom.Plan:
        if mesh not in plans:
            plans[mesh] = gridloom.compile(
                model,
                model.parent / f"{mesh or 'one'}.plan",
                mesh=mesh or None,
                dims={"batch": BATCH},
                train=True,
                loss="cross_entropy(logits, labels)",
                metric="accuracy(logits, labels)",
                optimizer="adamw(lr=3e-3, weight_decay=0.01)",
                tools=tools.folder,
            )
        return plans[mesh]

    return make


def digits(samples: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Images of ten classes, with noise."""
    kinds = np.random.default_rng(99).standard_normal((CLASSES, SIZE))
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, samples)
    x = kinds[labels] + random.standard_normal((samples, SIZE))
    return {"x": x.astype(np.float32), "labels": labels.astype(np.int64)}


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]))


def forward(weights: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    hidden = np.maximum(x @ weights["fc1.weight"] + weights["fc1.bias"], 0)
    return hidden @ weights["fc2.weight"] + weights["fc2.bias"]


def test_the_states_are_the_models(plan, model):
    with gridloom.Trainer(plan("data=2")) as trainer:
        states = trainer.state_dict()
        weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(model).graph.initializer}
        assert {name.rpartition("/")[0] for name in states if "/" in name} == {"train", *weights}
        assert states["train/step"] == 0 and weights.keys() <= states.keys()
        for name, value in weights.items():
            np.testing.assert_array_equal(states[name], value)
            for slot in (state for state in states if state.startswith(f"{name}/")):
                assert not states[slot].any(), slot


@pytest.mark.parametrize("mesh", MESHES)
def test_it_learns_and_exports(tools, plan, model, tmp_path, mesh):
    train, test = digits(512), digits(256, seed=1)
    with gridloom.Trainer(plan(mesh), schedule="cosine(warmup=10)") as trainer:
        before = trainer.evaluate(test)
        history = trainer.fit(train, steps=160, eval_data=test, checkpoint_dir=tmp_path / "run")
        found = trainer.evaluate(test)
        states = trainer.state_dict()
        (main,) = trainer.session.run({"x": test["x"][:BATCH]}).values()
    assert all(results["committed"] for results in history) and history[-1]["step"] == 160
    assert found["loss"] < 0.3 * before["loss"] and found["accuracy"] > 0.9
    assert history[-1]["eval_loss"] == found["loss"]
    # The eval entry agrees with numpy and ONNX Runtime on the weights.
    logits = forward(states, test["x"])
    assert found["loss"] == pytest.approx(cross_entropy(logits, test["labels"]), rel=1e-5)
    assert found["accuracy"] == pytest.approx(np.mean(logits.argmax(axis=1) == test["labels"]), abs=1e-6)
    output = tmp_path / "trained.onnx"
    tools.call("checkpoint", "export", tmp_path / "run", "--model", model, "-o", output)
    (logits,) = onnxruntime_session(output).run(None, {"x": test["x"]})
    assert found["loss"] == pytest.approx(cross_entropy(logits, test["labels"]), rel=1e-5)
    np.testing.assert_allclose(main, logits[:BATCH], rtol=1e-4, atol=1e-5)
    # A new session can start from the exported weights, or from the checkpoint itself.
    tools.call("checkpoint", "export", tmp_path / "run", "-o", tmp_path / "trained.safetensors")
    for weights in (output, tmp_path / "trained.safetensors", tmp_path / "run"):
        with gridloom.load(plan(mesh), weights=weights) as session:
            np.testing.assert_array_equal(session.run({"x": test["x"][:BATCH]})["logits"], main)


def test_frozen_weights_are_exported_with_the_plan(tools, model, tmp_path):
    settings = {"dims": {"batch": BATCH}, "train": True, "loss": "cross_entropy(logits, labels)", "optimizer": "sgd(lr=0.1)"}
    frozen = gridloom.compile(model, tmp_path / "m.plan", param={"fc1.*": "frozen"}, tools=tools.folder, **settings)
    with gridloom.Trainer(frozen) as trainer:
        assert {name for name in trainer.session.states if name in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")} == {
            "fc2.weight",
            "fc2.bias",
        }
        trainer.fit(digits(64), steps=4)
        trainer.save(tmp_path / "c")
        (main,) = trainer.session.run({"x": digits(BATCH)["x"]}).values()
    tools.call("checkpoint", "export", tmp_path / "c", "-o", tmp_path / "part.safetensors")
    with pytest.raises(gridloom.Error, match="has no weight 'fc1.weight'"):
        gridloom.load(frozen, weights=tmp_path / "part.safetensors")
    with pytest.raises(gridloom.Error, match="has no weight 'fc1.weight'; a checkpoint has those that were trained, and 'gridloom check"):
        gridloom.load(frozen, weights=tmp_path / "c")
    for name in ("t.safetensors", "t.onnx"):
        tools.call("checkpoint", "export", tmp_path / "c", "--plan", frozen.path, "-o", tmp_path / name)
        with gridloom.load(frozen, weights=tmp_path / name) as session:
            np.testing.assert_array_equal(session.run({"x": digits(BATCH)["x"]})["logits"], main)


def test_weights_of_any_name_are_exported(tools, model, tmp_path):
    """Names that look like another weight's optimizer state, or like the run's own states."""
    names = {"fc1.weight": "w", "fc1.bias": "w/b", "fc2.weight": "train/scale", "fc2.bias": "train"}
    proto = onnx.load(model)
    for tensor in proto.graph.initializer:
        tensor.name = names[tensor.name]
    for node in proto.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    onnx.save(proto, tmp_path / "m.onnx")
    settings = {"dims": {"batch": BATCH}, "train": True, "loss": "cross_entropy(logits, labels)", "tools": tools.folder}
    data = digits(BATCH)
    np.savez(tmp_path / "data.npz", **data)
    for optimizer in ("sgd(lr=0.1)", "adamw(lr=0.1)"):
        plan = gridloom.compile(tmp_path / "m.onnx", tmp_path / "m.plan", optimizer=optimizer, **settings)
        with gridloom.Trainer(plan) as trainer:
            trainer.fit(data, steps=2)
            trainer.save(tmp_path / "of the trainer")
            (main,) = trainer.session.run({"x": data["x"]}).values()
        run = tmp_path / f"run of {optimizer}"
        tools.call("train", plan.path, "--data", tmp_path / "data.npz", "--steps", 2, "--checkpoint-dir", run)
        for checkpoint in (tmp_path / "of the trainer", run):
            output = tmp_path / "trained.onnx"
            tools.call("checkpoint", "export", checkpoint, "--plan", plan.path, "-o", output, "--force")
            (logits,) = onnxruntime_session(output).run(None, {"x": data["x"]})
            np.testing.assert_allclose(logits, main, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mesh", MESHES)
def test_a_resumed_run_is_the_whole_run(plan, tmp_path, mesh):
    data = digits(100)  # batches span the ends of epochs
    options = {"lr": 1e-2, "schedule": "linear(warmup=3)", "seed": 3}
    with gridloom.Trainer(plan(mesh), **options) as trainer:
        history = trainer.fit(data, steps=12)
        whole = trainer.state_dict()

    def kill(trainer, step, results):
        if step == 8:
            raise KeyboardInterrupt

    run = {"steps": 12, "checkpoint_dir": tmp_path, "checkpoint_every": 3, "resume": True}
    with gridloom.Trainer(plan(mesh), callbacks=[kill], **options) as trainer, pytest.raises(KeyboardInterrupt):
        trainer.fit(data, **run)
    with gridloom.Trainer(plan(mesh), **options) as trainer:
        assert trainer.fit(data, **run) == history[6:]
        for name, value in trainer.state_dict().items():
            np.testing.assert_array_equal(value, whole[name], err_msg=name)


def test_state_dicts_and_checkpoints_cross_meshes(plan, tmp_path):
    data = digits(64)
    with gridloom.Trainer(plan("data=2")) as trainer:
        trainer.fit(data, steps=5)
        states = trainer.state_dict()
        trainer.save(tmp_path / "c")
        want = trainer.evaluate(data)
    for mesh in MESHES:
        with gridloom.Trainer(plan(mesh)) as trainer:
            trainer.load(tmp_path / "c")
            assert (trainer.step_count, trainer.cursor) == (5, 5 * BATCH)
            for name, value in trainer.state_dict().items():
                np.testing.assert_array_equal(value, states[name], err_msg=name)
            assert trainer.evaluate(data)["loss"] == pytest.approx(want["loss"], rel=1e-5)
            trainer.session.reset_states()
            trainer.load_state_dict(states)
            assert trainer.step_count == 5
            assert trainer.evaluate(data)["loss"] == pytest.approx(want["loss"], rel=1e-5)


def test_a_step_with_a_nan_changes_nothing(plan):
    data = digits(BATCH)
    with gridloom.Trainer(plan("data=2")) as trainer:
        trainer.step(data)
        before = trainer.state_dict()
        poisoned = {**data, "x": data["x"].copy()}
        poisoned["x"][-1, 5] = np.nan
        results = trainer.step(poisoned)
        assert results["committed"] is False and results["step"] == trainer.step_count == 1
        for name, value in trainer.state_dict().items():
            np.testing.assert_array_equal(value, before[name], err_msg=name)
        assert trainer.step(data)["committed"]


def test_indices_out_of_range_are_refused(tools, tmp_path):
    table = np.random.default_rng(0).standard_normal((7, CLASSES)).astype(np.float32)
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch"])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])
    node = helper.make_node("Gather", ["table", "ids"], ["logits"])
    graph = helper.make_graph([node], "embedding", [ids], [logits], [numpy_helper.from_array(table, "table")])
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "m.onnx")
    settings = {"dims": {"batch": BATCH}, "train": True, "loss": "cross_entropy(logits, labels)", "optimizer": "sgd(lr=0.1)"}
    plan = gridloom.compile(tmp_path / "m.onnx", tmp_path / "m.plan", tools=tools.folder, **settings)
    data = {"ids": np.arange(BATCH) % 7, "labels": np.arange(BATCH) % CLASSES}
    for index in (7, -8):
        wrong = {**data, "ids": data["ids"].copy()}
        wrong["ids"][3] = index
        with gridloom.Trainer(plan) as trainer:
            for use in (trainer.step, trainer.evaluate):
                with pytest.raises(gridloom.Error, match=f"'ids' holds the index {index}, outside of a dimension of 7"):
                    use(wrong)
            np.testing.assert_array_equal(trainer.state_dict()["table"], table)
            assert trainer.step(data)["committed"]
        with gridloom.Trainer(plan, check_indices=False) as trainer:
            trainer.step(wrong)


def test_ranks_agree_with_one(plan):
    data = digits(64)
    losses = {}
    for mesh in MESHES:
        with gridloom.Trainer(plan(mesh), seed=1) as trainer:
            losses[mesh] = [results["loss"] for results in trainer.fit(data, steps=10)]
    for mesh in MESHES[1:]:
        np.testing.assert_allclose(losses[mesh], losses[""], rtol=1e-5)


def test_the_command_line_reads_the_same_samples(tools, plan, tmp_path):
    """gridloom train and the trainer are interchangeable: one starts a run, the other finishes it."""
    data = digits(40)
    (tmp_path / "data").mkdir()
    for name, array in data.items():
        np.save(tmp_path / "data" / f"{name}.npy", array)
    with gridloom.Trainer(plan("data=2"), lr=1e-2, seed=11) as trainer:
        trainer.fit(data, steps=6)
        whole = trainer.state_dict()
    arguments = ("train", plan("data=2").path, "--data", tmp_path / "data", "--lr", "1e-2", "--seed", 11, "--steps", 4)
    tools.call(*arguments, "--checkpoint-dir", tmp_path / "run")
    with gridloom.Trainer(plan("data=2"), lr=1e-2) as trainer:
        assert len(trainer.fit(data, steps=6, checkpoint_dir=tmp_path / "run", resume=True)) == 2
        for name, value in trainer.state_dict().items():
            np.testing.assert_array_equal(value, whole[name], err_msg=name)


def test_a_plan_that_does_not_train_is_refused(tools, model, tmp_path):
    plan = gridloom.compile(model, tmp_path / "m.plan", dims={"batch": 4}, tools=tools.folder)
    with pytest.raises(ValueError, match=r"m.plan has no entry 'train_step' \(entries: main\); compile the model with train=True"):
        gridloom.Trainer(plan)


@pytest.mark.parametrize("mesh", ["", "data=2"])
def test_each_of_several_losses_is_a_mean_over_what_it_counts(tools, tmp_path, mesh):
    """One loss ignores a different number of labels in each batch, so batches must not be weighted equally."""
    random = np.random.default_rng(0)
    weights = {name: random.standard_normal((SIZE, CLASSES)).astype(np.float32) / 8 for name in ("wa", "wb")}
    nodes = [helper.make_node("MatMul", ["x", name], [output]) for name, output in (("wa", "a"), ("wb", "b"))]
    value = lambda name, size: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])  # noqa: E731
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "two", [value("x", SIZE)], [value("a", CLASSES), value("b", CLASSES)], tensors)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "m.onnx")
    plan = gridloom.compile(
        tmp_path / "m.onnx",
        tmp_path / "m.plan",
        dims={"batch": 4},
        mesh=mesh or None,
        train=True,
        loss=["cross_entropy(a, la, ignore_index=-1, weight=2)", "cross_entropy(b, lb)"],
        metric="accuracy(b, lb)",
        optimizer="sgd(lr=0)",
        tools=tools.folder,
    )
    assert plan.training["terms"] == ["loss.1", "loss.2"]
    data = {"x": random.standard_normal((16, SIZE)).astype(np.float32), "la": random.integers(0, CLASSES, 16)}
    data["lb"] = random.integers(0, CLASSES, 16)
    data["la"][[1, 2, 3, 4, 8, 9, 10, 11]] = -1  # leaves 1, 3, 0 and 4 labels of the batches
    counted = data["la"] >= 0
    first = 2 * cross_entropy(data["x"][counted] @ weights["wa"], data["la"][counted])
    second = cross_entropy(data["x"] @ weights["wb"], data["lb"])
    with gridloom.Trainer(plan) as trainer:
        found = trainer.evaluate(data)
    assert found["loss"] == pytest.approx(first + second, rel=1e-5)
    assert (found["loss.1"], found["loss.2"]) == (pytest.approx(first, rel=1e-5), pytest.approx(second, rel=1e-5))
    assert found["count"] == counted.sum() and "loss.1.count" not in found
    np.savez(tmp_path / "data.npz", **data)
    log = tmp_path / "log.csv"
    tools.call("train", plan.path, "--data", tmp_path / "data.npz", "--eval-data", tmp_path / "data.npz", "--steps", 1, "--log", log)
    header, row = (line.split(",") for line in log.read_text().splitlines())
    logged = dict(zip(header, row, strict=True))
    assert float(logged["eval_loss"]) == pytest.approx(first + second, rel=1e-5)
    assert float(logged["eval_loss.1"]) == pytest.approx(first, rel=1e-5)
    assert float(logged["loss"]) == pytest.approx(float(logged["loss.1"]) + float(logged["loss.2"]), rel=1e-6)
    # If no label counts for one loss, the other one remains.
    with gridloom.Trainer(plan) as trainer:
        found = trainer.evaluate({name: array[8:12] for name, array in data.items()})
        assert found["loss"] == pytest.approx(cross_entropy(data["x"][8:12] @ weights["wb"], data["lb"][8:12]), rel=1e-5)
