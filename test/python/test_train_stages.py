"""Pipeline stages in training: what one rank computes, wherever forward and backward work lie and however many parts the batch has."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_train_meshes import SIGNS, check_signs, compile_job, draw_batches, draw_powers, run_by_hand, sign_descent
from training_models import Mlp, read_checkpoint

import gridloom
from gridloom import zoo


@pytest.mark.parametrize(
    ("name", "mesh", "batch", "options"),
    [
        ("mlp", "pipe=2", 8, {}),
        pytest.param("mlp", "pipe=2", 8, {"microbatches": 2}, marks=pytest.mark.full),
        ("mlp", "pipe=2", 8, {"microbatches": 4}),
        ("mlp", "pipe=3", 9, {"microbatches": 3}),
        ("mlp", "data=2,pipe=2", 8, {"microbatches": 2, "zero": 1}),
        ("mlp", "model=2,pipe=2", 8, {"microbatches": 2}),
        pytest.param("mlp", "pipe=2,data=2", 12, {"microbatches": 3, "zero": 3}, marks=pytest.mark.full),
        ("max", "pipe=2", 8, {"microbatches": 2}),
        pytest.param("average", "pipe=3", 8, {"microbatches": 4}, marks=pytest.mark.full),
    ],
)
def test_stages_are_exact(tools, tmp_path, name, mesh, batch, options):
    check_signs(tools, tmp_path, name, batch, mesh, **options)


LLAMA = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "intermediate": 64, "vocabulary": 40, "positions": 16}
DECODER = {
    "train": True,
    "loss": "cross_entropy(logits, labels)",
    "metric": "accuracy(logits, labels)",
    "optimizer": "adamw(lr=3e-3)",
    "clip": "norm(0.5)",
    "dims": {"batch": 4, "sequence": 6},
}


def compile_decoder(tools, folder, mesh: str = "", **options) -> gridloom.Plan:
    path = zoo.save(zoo.llama(zoo.LlamaConfig(**LLAMA), zoo.Random(0)), folder / "m.onnx")
    return gridloom.compile(path, folder / f"{mesh}.plan", mesh=mesh or None, tools=tools.folder, **(DECODER | options))


def test_a_decoder_trains_as_on_one_rank(tools, tmp_path):
    """The gradients are clipped by a norm over the parameters of both stages, and updated by AdamW."""
    losses = {}
    for mesh, options in {"": {}, "pipe=2": {"microbatches": 2}}.items():
        random = np.random.default_rng(0)
        with gridloom.load(compile_decoder(tools, tmp_path, mesh, **options), threads=1) as session:
            losses[mesh] = []
            for _ in range(20):
                batch = {name: random.integers(0, 40, (4, 6)) for name in ("input_ids", "labels")}
                outputs = session.run(batch | {"learning_rate": np.array(3e-3, np.float32)}, entry="train_step")
                assert outputs["committed"] == 1
                losses[mesh].append([outputs[name] for name in ("loss", "gradient_norm", "accuracy")])
    np.testing.assert_allclose(losses["pipe=2"], losses[""], rtol=1e-4)


@pytest.mark.parametrize("mesh", ["pipe=2", pytest.param("data=2,pipe=2", marks=pytest.mark.full)])
def test_a_check_follows_the_stages(tools, tmp_path, mesh):
    """Each phase and the plan, in one session: bit by bit in exact arithmetic."""
    plan = compile_decoder(tools, tmp_path, mesh, microbatches=2, clip=None, optimizer="sgd(lr=0.05, momentum=0.5)").path
    text = tools.call("check", plan, "--exact", "--input", "labels=randint(0,40)").stdout
    assert "5 calls of one session" in text and "PASS" in text
    assert re.search(r"call 5: 07-fuse \(exact\) against 03-shard: output 'train/step' i64\[\]: equal", text)


@pytest.mark.parametrize("seed", [seed if seed < 1 else pytest.param(seed, marks=pytest.mark.full) for seed in range(10)])
def test_random_splits_beside_stages(tools, tmp_path, seed):
    path = Mlp(lambda *shape: np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)).save(tmp_path / "m.onnx")
    options = {"train": True, "loss": "mse(y, t)", "optimizer": "lamb(lr=1e-2)", "dims": {"batch": 8}, "microbatches": 2}
    plan = gridloom.compile(path, tmp_path / "m.plan", mesh="x=2,pipe=2", strategy=f"random:{seed}", tools=tools.folder, **options)
    assert "PASS" in tools.call("check", plan.path, "--exact").stdout


def save_dropouts(path):
    """Dropout in both stages."""
    random = np.random.default_rng(0)
    weights = {name: (random.standard_normal((16, 16)) / 4).astype(np.float32) for name in ("w1", "w2", "w3", "w4")}
    weights |= {"ratio": np.float32(0.25), "training": np.bool_(True)}
    nodes, value = [], "x"
    for i in range(1, 5):
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"a{i}"], name=f"matmul{i}"))
        value = f"d{i}" if i < 4 else "y"
        nodes.append(helper.make_node("Dropout", [f"a{i}", "ratio", "training"], [value], name=f"dropout{i}"))
    tensor = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 16])  # noqa: E731
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "dropouts", [tensor("x")], [tensor("y")], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_dropout_draws_the_same_in_all_stages(tools, tmp_path):
    """The number of the attempt goes from the stage that counts to all others."""
    path = save_dropouts(tmp_path / "m.onnx")
    random = np.random.default_rng(1)
    batches = [{name: random.standard_normal((8, 16)).astype(np.float32) for name in ("x", "t")} for _ in range(3)]
    found = {}
    for mesh in ("", "pipe=2"):
        options = {"train": True, "loss": "mse(y, t)", "optimizer": "sgd", "dims": {"batch": 8}, "microbatches": 2}
        plan = gridloom.compile(path, tmp_path / f"{mesh}.plan", mesh=mesh or None, tools=tools.folder, **options)
        with gridloom.load(plan, threads=1) as session:
            for batch in batches:
                session.run(batch | {"learning_rate": np.array(0.1, np.float32)}, entry="train_step")
            found[mesh] = {name: session.get_state(name) for name in session.states}
    assert found[""]["train/iteration"] == 3
    for name, array in found[""].items():
        np.testing.assert_allclose(found["pipe=2"][name], array, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_run_that_a_nan_ended_goes_on_as_if_there_had_been_none(tools, tmp_path):
    """The attempt that was not taken draws its numbers again, in all stages."""
    options = {"train": True, "loss": "mse(y, t)", "optimizer": "sgd(lr=0.1)", "dims": {"batch": 8}, "microbatches": 2}
    plan = gridloom.compile(save_dropouts(tmp_path / "m.onnx"), tmp_path / "m.plan", mesh="pipe=2", tools=tools.folder, **options)
    random = np.random.default_rng(1)
    good = {name: random.standard_normal((24, 16)).astype(np.float32) for name in ("x", "t")}
    bad = {**good, "t": np.where(np.arange(24)[:, None] == 3, np.float32(np.nan), good["t"])}
    np.savez(tmp_path / "good.npz", **good)
    np.savez(tmp_path / "bad.npz", **bad)
    train = ["train", plan.path, "--in-process", "--steps", 6, "--resume", "--checkpoint-dir"]
    tools.call(*train, tmp_path / "whole", "--data", tmp_path / "good.npz")
    result = tools.call(*train, tmp_path / "parts", "--data", tmp_path / "bad.npz", check=False)
    assert result.returncode == 1 and "t.npy holds nan in sample 3" in result.stderr, result.stderr
    tools.call(*train, tmp_path / "parts", "--data", tmp_path / "good.npz")
    with gridloom.Trainer(plan) as trainer:
        with pytest.raises(FloatingPointError):
            trainer.fit(bad, steps=6)
        trainer.fit(good, steps=6 - trainer.step_count)
        found = {"the command": read_checkpoint(tmp_path / "parts"), "Python": trainer.state_dict()}
    want = read_checkpoint(tmp_path / "whole")
    assert want["train/iteration"] == 6
    for how, states in found.items():
        assert states.keys() == want.keys()
        for name, array in want.items():
            np.testing.assert_array_equal(states[name], array, err_msg=f"{how}: {name}")


def test_a_run_goes_from_two_stages_to_one_rank(tools, tmp_path):
    """A process for each stage: the loss that the last one has ends, logs and evaluates the run on all."""
    model, rate = Mlp(draw_powers(1)), 2.0**-4
    batches = draw_batches(model, 8, 1) * 20
    states = run_by_hand(model, batches, sign_descent, rate, "m")[1] | {"train/step": np.array(20)}
    np.savez(tmp_path / "data.npz", **batches[0])
    for number, (mesh, options) in enumerate([("pipe=2", {"microbatches": 4}), ("", {})], 1):
        compile_job(tools, tmp_path, model, SIGNS, 8, mesh, **options).close()
        run = ["--checkpoint-dir", tmp_path / "run", "--resume", "--lr", rate, "--steps", 10 * number, "--log", tmp_path / "log.csv"]
        tools.call("train", tmp_path / "m.plan", "--data", tmp_path / "data.npz", "--eval-data", tmp_path / "data.npz", *run)
    found = read_checkpoint(tmp_path / "run")
    assert found.keys() == states.keys()
    for name, array in states.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 21


def test_a_step_that_is_not_finite_is_taken_by_no_stage(tools, tmp_path):
    model = Mlp(draw_powers(1))
    batch = draw_batches(model, 8, 1)[0]
    with compile_job(tools, tmp_path, model, SIGNS, 8, "pipe=2", microbatches=2) as session:
        before = {name: session.get_state(name) for name in session.states}
        outputs = session.run({"x": batch["x"], "t": batch["t"] * np.inf, "learning_rate": np.array(1, np.float32)}, entry="train_step")
        assert outputs["committed"] == 0
        for name, array in before.items():
            np.testing.assert_array_equal(session.get_state(name), array, err_msg=name)


FREE = {  # communication and launches take nothing
    "device_kinds": [{"name": "k", "memory_bytes_per_second": 1e12, "launch_seconds": 0, "collective_launch_seconds": 0,
                      "flops_per_second": {"contraction": {"f32": 1e9}, "other": {"f32": 1e12}}}],
    "devices": [{"name": "d", "kind": "k", "count": 4}],
    "switches": ["s"],
    "links": [{"ends": ["d", "s"], "latency_seconds": 0, "bytes_per_second": 1e18}],
}  # fmt: skip


@pytest.mark.parametrize("stages", [2, 4])
def test_more_parts_keep_stages_busy(tools, tmp_path, stages):
    """Stages S with parts m idle at most (S - 1) / (S - 1 + m) of a step, where nothing but work takes time. They idle less where
    gradients of weights, which no other stage waits for, come after those of activations, and more where stages have unequal work: the
    first has no gradient of its input."""
    idle = []
    path = zoo.save(zoo.mlp([64] * 9, zoo.Random(0)), tmp_path / "deep.onnx")
    (tmp_path / "free.json").write_text(json.dumps(FREE))
    output = next(iter(onnx.load(path).graph.output)).name
    for parts in (1, 2, 4, 8):
        options = ["--train", "--loss", f"mse({output}, t)", "--optimizer", "sgd", "--dim", "batch=256", "--microbatches", parts]
        found = json.loads(tools.call("plan", path, *options, "--cluster", tmp_path / "free.json", "--mesh", f"pipe={stages}", "--json").stdout)
        (step,) = (program for program in found["programs"] if program["entry"] == "train_step")
        expected = (stages - 1) / (stages - 1 + parts)
        idle.append(step["bubble_percent"])
        assert 0 < idle[-1] <= 100 * expected + 4, (parts, idle)
    assert idle == sorted(idle, reverse=True), idle
    assert idle[-1] < idle[0] / 2, idle


def save_tied(folder):
    """A decoder whose first and last node read one weight."""
    config = zoo.Gpt2Config(layers=2, hidden=16, heads=2, vocabulary=20, positions=8)
    return zoo.save(zoo.gpt2(config, zoo.Random(0)), folder / "m.onnx")


TIED = ["--train", "--loss", "cross_entropy(logits, labels)", "--dim", "batch=4", "--dim", "sequence=6", "--microbatches", 2]


def test_a_weight_of_both_ends_is_named(tools, tmp_path):
    """All that reads a weight is in one stage: nothing would be left for the other one."""
    result = tools.call("compile", save_tied(tmp_path), *TIED, "--mesh", "pipe=2", "-o", tmp_path / "m.plan", check=False)
    assert result.returncode == 1
    assert re.search(r"no cut into 2 stages gives each of them weights; weight 'wte\.weight' is used from '/Gather_1' to '/MatMul'", result.stderr), result.stderr
    assert "export the model with a weight for each of them, or use axes of data (with --zero 3 " in result.stderr


def test_stages_that_part_a_weight_are_refused(tools, tmp_path):
    (tmp_path / "s.strategy").write_text("strategy: 1\nmesh: pipe=2\nstage-axis: pipe\nstages:\n  /h.0/*: 0\n  /h.1/*: 1\n  /MatMul: 1\n")
    result = tools.call("compile", save_tied(tmp_path), *TIED, "--strategy", tmp_path / "s.strategy", "-o", tmp_path / "m.plan", check=False)
    assert result.returncode == 1
    expected = "node '/MatMul': uses weight 'wte.weight' in stage 1, and '/Gather_1' uses it in stage 0; it lies in one stage: give both nodes the same, "
    assert expected + "or export the model with a weight for each of them" in result.stderr, result.stderr


def test_a_strategy_file_has_the_parts_of_a_batch(tools, tmp_path):
    """Compiled from again without --microbatches it makes the same plan; another number is refused."""
    model = Mlp(draw_powers(1)).save(tmp_path / "m.onnx")
    options = ["compile", model, "--train", "--loss", "mse(y, t)", "--optimizer", "sgd", "--dim", "batch=8"]
    tools.call(*options, "--mesh", "pipe=2", "--microbatches", 4, "-o", tmp_path / "a.plan")
    file = tmp_path / "a.plan" / "plan.strategy"
    assert "\nmicrobatches: 4\n" in file.read_text()
    tools.call(*options, "--strategy", file, "-o", tmp_path / "b.plan")
    plans = [{path.relative_to(plan): path.read_bytes() for path in sorted(plan.rglob("*")) if path.is_file()} for plan in (tmp_path / "a.plan", tmp_path / "b.plan")]
    same = {name for name in plans[0].keys() | plans[1].keys() if plans[0].get(name) == plans[1].get(name)}
    assert all(name.name == "report.json" or name.parts[0] == "ir" for name in plans[0].keys() - same), plans[0].keys() - same
    for option in ("--microbatches", "--accumulate"):
        result = tools.call(*options, "--strategy", file, option, 2, "-o", tmp_path / "c.plan", check=False)
        assert result.returncode == 1 and f"{option} 2 contradicts the strategy '{file}', which has 4" in result.stderr, result.stderr


@pytest.mark.parametrize("given", ["microbatches: 4\n", ""])
def test_a_strategy_file_names_the_stages_of_a_training(tools, tmp_path, given):
    """A short one, which names the model's nodes: the step follows them, and computes what one rank does."""
    model = Mlp(draw_powers(1))
    path, batches, states = model.save(tmp_path / "m.onnx"), draw_batches(model, 8, 2), {}
    nodes = [node.name for node in onnx.load(path).graph.node]
    text = f"strategy: 1\nmesh: pipe=2\nstage-axis: pipe\n{given}stages:\n  {nodes[0]}: 0\n  {nodes[1]}: 1\n"
    (tmp_path / "s.strategy").write_text(text)
    for name, options in {"one": {}, "two": {"strategy": str(tmp_path / "s.strategy")}}.items():
        parts = 4 if name == "one" or not given else None
        options |= {"train": True, "loss": "mse(y, t, reduction=sum)", "optimizer": SIGNS, "dims": {"batch": 8}, "microbatches": parts}
        plan = gridloom.compile(path, tmp_path / f"{name}.plan", tools=tools.folder, **options)
        with gridloom.load(plan, threads=1) as session:
            for batch in batches:
                outputs = session.run(batch | {"learning_rate": np.array(0.25, np.float32)}, entry="train_step")
                assert outputs["committed"] == 1
            states[name] = {state: session.get_state(state) for state in session.states}
    assert "dist.microbatches = 1" in (plan.path / "ir" / "09-allocate.mlir").read_text()  # parts, not an axis
    for name, array in states["one"].items():
        np.testing.assert_array_equal(states["two"][name], array, err_msg=name)
