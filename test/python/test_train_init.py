"""Training from scratch: compile --init gives the same values on every mesh."""

from __future__ import annotations

import json

import numpy as np
import pytest
from training_models import Cnn, Mlp

import gridloom

INIT = {"*": "normal(0, 0.5)", "rank<=1": "uniform(-1, 1)", "b2": "constant(0.25)"}


def draw(*shape):
    return np.full(shape, 7, np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return Mlp(draw).save(tmp_path_factory.mktemp("init") / "m.onnx")


def compile_init(tools, model, path, mesh="", **options):
    options = {"train": True, "loss": "cross_entropy(y, labels)", "optimizer": "sgd(lr=0.5, momentum=0.9)", "init": INIT, "seed": 5} | options
    return gridloom.compile(model, path, mesh=mesh or None, dims={"batch": 8}, tools=tools.folder, **options)


MESHES = {"": None, "data=2": 3, "model=3": None}


@pytest.fixture(scope="module")
def plans(tools, model, tmp_path_factory):
    """A plan for each mesh, some with --zero."""
    folder = tmp_path_factory.mktemp("plans")
    return {mesh: compile_init(tools, model, folder / f"{mesh}.plan", mesh, zero=zero) for mesh, zero in MESHES.items()}


def read_states(plan) -> dict[str, np.ndarray]:
    with gridloom.load(plan.path) as session:
        return {name: session.get_state(name) for name in ("w1", "b1", "w2", "b2", "w1/momentum", "train/step")}


def philox(counter, key):
    counter, key = list(counter), list(key)
    for _ in range(10):
        even, odd = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [odd >> 32 ^ counter[1] ^ key[0], odd & 0xFFFFFFFF, even >> 32 ^ counter[3] ^ key[1], even & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def words(name: str, seed: int, count: int) -> np.ndarray:
    stream = 0xCBF29CE484222325
    for letter in name.encode():
        stream = (stream ^ letter) * 0x100000001B3 % 2**64
    blocks = [philox([i, 0, stream % 2**32, stream >> 32], [seed, 0]) for i in range(-(-count // 4))]
    return np.array(blocks, np.uint64).reshape(-1)[:count]


def expected(name: str, shape, seed: int) -> np.ndarray:
    """Initial values by the documented formulas."""
    from statistics import NormalDist

    drawn = words(name, seed, int(np.prod(shape)))
    if len(shape) < 2:
        return (-1 + 2 * (drawn >> np.uint64(8)) * 2.0**-24).astype(np.float32).reshape(shape)
    return np.array([NormalDist().inv_cdf((int(word) + 0.5) / 2**32) * 0.5 for word in drawn], np.float32).reshape(shape)


def test_a_plan_says_what_is_drawn(tools, plans):
    """The report has the options, which why-not uses to plan again, and the states have their initial distributions."""
    plan = plans["data=2"]
    options = plan.report["options"]
    assert options["seed"] == 5 and options["init"] == [f"{pattern}: {distribution}" for pattern, distribution in INIT.items()]
    listed = json.loads(tools.call("inspect", plan.path, "states", "--format", "json").stdout)["states"]
    begins = {state["name"]: state["begins_as"] for state in listed}
    assert begins == {
        "w1": "normal(0, 0.5)", "w2": "normal(0, 0.5)", "b1": "uniform(-1, 1)", "b2": "constant(0.25)", "train/step": "zeros",
        **{f"{name}/momentum": "zeros" for name in ("w1", "w2", "b1", "b2")},
    }  # fmt: skip


def test_values_are_the_same_on_every_mesh(plans):
    states = {mesh: read_states(plan) for mesh, plan in plans.items()}
    one = states[""]
    np.testing.assert_array_equal(one["b2"], np.full(5, 0.25, np.float32))
    np.testing.assert_array_equal(one["b1"], expected("b1", (14,), 5))
    for name, shape in (("w1", (10, 14)), ("w2", (14, 5))):
        np.testing.assert_allclose(one[name], expected(name, shape, 5), rtol=1e-6)
    assert not one["w1/momentum"].any() and one["train/step"] == 0
    for mesh, others in states.items():
        for name, value in others.items():
            assert value.tobytes() == one[name].tobytes(), (mesh, name)


def test_sessions_draw_from_another_seed(tools, model, plans, tmp_path):
    """On any mesh the values are those of a plan compiled with that seed."""
    for mesh in ("", "data=2"):
        with gridloom.Trainer(plans[mesh].path, init_seed=7) as trainer:
            np.testing.assert_allclose(trainer.session.get_state("w1"), expected("w1", (10, 14), 7), rtol=1e-6)
    whole = gridloom.compile(model, tmp_path / "whole.plan", train=True, loss="cross_entropy(y, labels)", dims={"batch": 8}, tools=tools.folder)
    with pytest.raises(gridloom.Error, match="draws no states, which init_seed is for; compile it with --init"):
        gridloom.load(whole.path, init_seed=7)


@pytest.mark.parametrize("mesh", MESHES)
def test_checks_begin_with_the_same_values(tools, plans, mesh):
    assert "PASS" in tools.call("check", plans[mesh].path, "--exact").stdout


def test_onnx_runtime_has_other_values(tools, plans):
    result = tools.call("check", plans[""].path, "--oracle", "ort", check=False)
    assert result.returncode == 1 and "the plan draws its own (--init)" in result.stderr


def test_training_from_scratch(tools, plans, tmp_path):
    """The file's weights are all equal, from which nothing can be learnt; drawn weights learn. Another seed gives another run."""
    random = np.random.default_rng(1)
    labels = random.integers(0, 5, 64)
    x = (random.standard_normal((5, 10))[labels] + 0.3 * random.standard_normal((64, 10))).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, labels=labels)

    def train(*options):
        log = tmp_path / f"{len(list(tmp_path.iterdir()))}.csv"
        tools.call("train", plans[""].path, "--data", tmp_path / "data.npz", "--steps", 40, "--lr", 0.1, "--log", log, *options)
        rows = [line.split(",") for line in log.read_text().splitlines()]
        return [row[rows[0].index("loss")] for row in rows[1:]]

    losses = train()
    assert float(losses[-1]) < 0.3 * float(losses[0])
    assert train("--init-seed", 5) == losses and train("--init-seed", 6) != losses
    other = train("--seed", 3)  # another order of samples
    assert other != losses


def test_fans(tools, tmp_path):
    """MatMul's weights are [in, out], Conv's [out, in, window]: bounds must match torch.nn.init."""
    cnn = Cnn(draw)
    path = cnn.save(tmp_path / "c.onnx")
    init = {"*": "kaiming_uniform", "w": "xavier_uniform", "rank<=1": "zeros"}
    plan = compile_init(tools, path, tmp_path / "c.plan", init=init)
    bounds = {"c1": np.sqrt(6 / (2 * 9)), "c2": np.sqrt(6 / (6 * 9)), "w": np.sqrt(6 / (16 + 5))}
    with gridloom.load(plan.path) as session:
        for name, bound in bounds.items():
            most = np.abs(session.get_state(name)).max()
            assert 0.9 * bound < most <= bound * (1 + 1e-6), name
        assert not session.get_state("b").any()


REFUSED = {
    "no such weight": (["--init", "v*: zeros"], "--init 'v*: zeros': no weight of the model has such a name"),
    "no distribution": (["--init", "*: gauss"], "--init '*: gauss' is not a known distribution"),
    "fans of a vector": (["--init", "*: xavier_normal"], "has fewer than two dimensions"),
    "a seed of nothing": (["--seed", "3"], "--seed 3 goes with --init"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tools, model, tmp_path, case):
    options, message = REFUSED[case]
    command = ["compile", model, "--train", "--loss", "mse(y, t)", "--dim", "batch=8", "-o", tmp_path / "m.plan", *options]
    result = tools.call(*command, check=False)
    assert result.returncode == 1 and message in result.stderr, result.stderr


def test_seeds_of_plans_that_draw_nothing(tools, model, tmp_path):
    compile_init(tools, model, tmp_path / "m.plan", init=None, seed=None)
    np.savez(tmp_path / "data.npz", x=np.zeros((8, 10), np.float32), labels=np.zeros(8, np.int64))
    result = tools.call("train", tmp_path / "m.plan", "--data", tmp_path / "data.npz", "--init-seed", 1, check=False)
    assert result.returncode and "--init-seed 1: " in result.stderr and "compile it with --init" in result.stderr
