"""Training on GPUs, without one: steps on the fake GPUs of test/fake equal those of CPU ranks, and checkpoints move between them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from training_models import Mlp, read_checkpoint, read_log, save_digits_cnn

from gridloom import zoo

STEPS, CHIPS = 5, ["sm_80", "sm_90", "sm_100"]


@dataclasses.dataclass
class Job:
    """A model with data for three batches."""

    path: Path
    loss: str
    dims: dict[str, int]
    data: dict[str, np.ndarray]
    optimizer: str = "adamw(lr=3e-3)"


def make_mlp(folder: Path) -> Job:
    random = np.random.default_rng(0)
    model = Mlp(lambda *shape: (random.standard_normal(shape) / 3).astype(np.float32))
    data = {"x": random.standard_normal((24, 10)).astype(np.float32), "labels": random.integers(0, 5, 24)}
    return Job(model.save(folder / "mlp.onnx"), "cross_entropy(y, labels)", {"batch": 8}, data, "adamw(lr=3e-2)")


def make_cnn(folder: Path) -> Job:
    random = np.random.default_rng(1)
    data = {"x": random.standard_normal((24, 1, 8, 8)).astype(np.float32), "labels": random.integers(0, 10, 24)}
    return Job(save_digits_cnn(folder / "cnn.onnx", 0), "cross_entropy(logits, labels)", {"batch": 8}, data)


def make_bert(folder: Path) -> Job:
    random = np.random.default_rng(2)
    config = zoo.BertConfig(layers=1, hidden=32, heads=4, intermediate=64, vocabulary=50, positions=16, head="embedding")
    path = zoo.save(zoo.bert(config, zoo.Random(0)), folder / "bert.onnx")
    mask = (random.random((12, 8)) > 0.2).astype(np.int64)
    mask[:, 0] = 1
    data = {"input_ids": random.integers(0, 50, (12, 8)), "attention_mask": mask, "token_type_ids": 0 * mask}
    # With momentum: a key's bias has a gradient that is only rounding, which Adam would turn into full-size steps.
    dims = {"batch": 4, "sequence": 8}
    return Job(path, "cross_entropy(embedding, labels)", dims, {**data, "labels": random.integers(0, 32, 12)}, "sgd(lr=0.1, momentum=0.9)")


def make_gpt(folder: Path) -> Job:
    random = np.random.default_rng(3)
    config = zoo.Gpt2Config(layers=1, hidden=32, heads=4, vocabulary=50, positions=16, dropout=0.1)
    path = zoo.save(zoo.gpt2(config, zoo.Random(0)), folder / "gpt.onnx")
    data = {name: random.integers(0, 50, (12, 8)) for name in ("input_ids", "labels")}
    return Job(path, "cross_entropy(logits, labels)", {"batch": 4, "sequence": 8}, data, "lion(lr=1e-3)")


MAKERS = {"mlp": make_mlp, "cnn": make_cnn, "bert": make_bert, "gpt": make_gpt}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Each model with its data, made once."""
    made: dict[str, Job] = {}

    def get(name: str) -> Job:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            made[name] = MAKERS[name](folder)
            np.savez(folder / "data.npz", **made[name].data)
        return made[name]

    return get


@pytest.fixture(scope="module")
def plans(tools, jobs):
    """A model's plan for a target, compiled once."""

    def get(name: str, target: str, *options: str) -> Path:
        job = jobs(name)
        words = [name, target.replace(":", "-"), *(option.strip("-").replace(",", "-") for option in options)]
        plan = job.path.with_name("-".join(words) + ".plan")
        if not plan.exists():
            sizes = [word for dim, size in job.dims.items() for word in ("--dim", f"{dim}={size}")]
            train = ["--train", "--loss", job.loss, "--optimizer", job.optimizer]
            tools.compile(job.path, plan, *train, *sizes, "--target", target, *options)
        return plan

    return get


def read_losses(log: Path) -> list[float]:
    return [float(row["loss"]) for row in read_log(log)]


def train(tools, plan: Path, run: Path, *options, steps: int = STEPS) -> list[float]:
    """The losses of a run, whose last states are saved in `run`. The fake GPUs must report nothing."""
    run.mkdir(exist_ok=True)
    arguments = ["--data", plan.with_name("data.npz"), "--steps", steps, "--checkpoint-dir", run, "--log", run / "log.csv"]
    result = tools.call("train", plan, *arguments, *options)
    assert "fake GPU" not in result.stdout + result.stderr, result.stderr
    return read_losses(run / "log.csv")


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("chip", [chip if chip == "sm_90" else pytest.param(chip, marks=pytest.mark.full) for chip in CHIPS])
@pytest.mark.parametrize("name", [name if name == "cnn" else pytest.param(name, marks=pytest.mark.full) for name in MAKERS])
def test_kernels_of_training_are_assembled_without_spills(plans, name, chip, precision):
    plan = plans(name, f"cuda:{chip}", "--precision", precision)
    kernels = json.loads((plan / "report.json").read_text())["kernels"]
    if not kernels or kernels[0]["registers"] < 0:
        pytest.skip("no CUDA toolkit: ptxas is not on the path or in /usr/local/cuda")
    assert [kernel["symbol"] for kernel in kernels if kernel["registers"] < 0 or kernel["spill_bytes"] != 0] == []


PLACES = {
    "one GPU": ([], 1, ["--in-process"]),
    "loopback": (["--mesh", "data=2"], 1, ["--transport", "loopback"]),
    "batch over 2": (["--mesh", "data=2"], 2, ["--in-process"]),
    "tensors over 2": (["--mesh", "model=2"], 2, ["--in-process"]),
    "states over 2": (["--mesh", "data=2", "--zero", "3"], 2, ["--in-process"]),
}
QUICK = {("cnn", "one GPU"), ("mlp", "loopback"), ("cnn", "batch over 2"), ("gpt", "tensors over 2"), ("mlp", "states over 2")}
CASES = [
    pytest.param(name, place, marks=[] if (name, place) in QUICK else pytest.mark.full) for name in MAKERS for place in PLACES
]


@pytest.fixture(scope="module")
def cpu_losses(tools, plans, tmp_path_factory):
    """The losses of a CPU rank, computed once."""
    made: dict[tuple, list[float]] = {}

    def get(name: str, *options: str) -> list[float]:
        if (name, *options) not in made:
            made[name, *options] = train(tools, plans(name, "cpu", *options), tmp_path_factory.mktemp("run"))
        return made[name, *options]

    return get


@pytest.mark.parametrize(("name", "place"), CASES)
def test_steps_equal_those_of_a_cpu(tools, fake_gpus, plans, cpu_losses, tmp_path, name, place):
    """In f32. The CPU plan is for one device, so the comparison covers splits, too."""
    options, devices, how = PLACES[place]
    expected = cpu_losses(name)
    fake_gpus(devices, 1)
    losses = train(tools, plans(name, "cuda:sm_90", *options), tmp_path, *how)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert expected[3] < expected[0], "the samples of the first epoch once more: it has learned"


@pytest.mark.parametrize("name", [name if name == "mlp" else pytest.param(name, marks=pytest.mark.full) for name in MAKERS])
def test_steps_in_16_bits_are_near_those_of_a_cpu(tools, fake_gpus, plans, cpu_losses, tmp_path, name):
    """A CPU rounds to bf16 between a product and its bias, a GPU's call or kernel does not, and a loss depends on few rounded logits:
    both are equally far from the steps in f32, about 2^-8 in each value."""
    expected = cpu_losses(name)
    fake_gpus(1, 1)
    losses = train(tools, plans(name, "cuda:sm_90", "--precision", "bf16"), tmp_path, "--in-process")
    scale = max(np.abs(expected))
    for others in expected, cpu_losses(name, "--precision", "bf16"):
        np.testing.assert_allclose(np.array(losses) / scale, np.array(others) / scale, rtol=0, atol=2**-6)


@pytest.mark.parametrize("name", ["mlp", pytest.param("cnn", marks=pytest.mark.full)])
def test_a_run_goes_from_gpus_to_cpu_ranks(tools, fake_gpus, plans, cpu_losses, tmp_path, monkeypatch, name):
    """Processes with a GPU each save a checkpoint; CPU ranks of another mesh continue, and then GPUs again."""
    monkeypatch.setenv("GRIDLOOM_FAKE_NCCL_FOLDER", str(tmp_path / "nccl"))
    monkeypatch.delenv("GRIDLOOM_IN_PROCESS_GRAPHS", raising=False)
    fake_gpus(2, 1)
    gpus = plans(name, "cuda:sm_90", "--mesh", "data=2", "--zero", "1")
    places = [(2, gpus), (4, plans(name, "cpu", "--mesh", "model=2")), (STEPS, gpus)]
    for steps, plan in places:
        losses = train(tools, plan, tmp_path, "--resume", steps=steps)
        assert len(losses) == steps
    np.testing.assert_allclose(losses, cpu_losses(name), rtol=1e-5)
    assert read_checkpoint(tmp_path)["train/step"] == STEPS


@pytest.fixture(scope="module")
def mask_model(tmp_path_factory) -> Path:
    """sum(Dropout(w x)): for each kept element, a step of rate 1 lowers w by 2 x."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["product"], name="product"),
        helper.make_node("Dropout", ["product", "ratio", "training"], ["kept"], name="dropout"),
        helper.make_node("ReduceSum", ["kept"], ["total"], name="total", keepdims=0),
    ]
    constants = {"w": np.zeros((64, 129), np.float32), "ratio": np.float32(0.5), "training": np.bool_(True)}
    graph = helper.make_graph(
        nodes,
        "masks",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 129])],
        [helper.make_tensor_value_info("total", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    folder = tmp_path_factory.mktemp("masks")
    np.savez(folder / "data.npz", x=np.ones((64, 129), np.float32))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "masks.onnx")
    return folder / "masks.onnx"


def test_masks_of_dropout_are_those_of_a_cpu(tools, fake_gpus, mask_model, tmp_path):
    """Bit by bit, on one GPU and on two that split the elements, over steps with different masks."""
    fake_gpus(2, 1)
    plan, found = mask_model.with_name("masks.plan"), []
    for options in [(), ("--target", "cuda:sm_90"), ("--target", "cuda:sm_90", "--mesh", "data=2", "--shard", "x=[{data},{}]")]:
        tools.compile(mask_model, plan, "--train", "--loss", "total", "--optimizer", "sgd(lr=1)", *options)
        found.append([])
        for steps in 1, 2, 3:
            run = tmp_path / f"{len(found)}-{steps}"
            train(tools, plan, run, "--in-process", steps=steps)
            found[-1].append(read_checkpoint(run)["w"].ravel())
    first, second, third = np.array(found[0]) / -2
    assert set(first) == set(second - first) == set(third - second) == {0, 1}
    assert not np.array_equal(first, second - first) and not np.array_equal(second - first, third - second)
    assert abs(third.mean() / 3 - 0.5) < 0.02  # five standard deviations of 24,768 draws
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


@pytest.mark.parametrize(("name", "mesh"), [("mlp", "data=2"), pytest.param("cnn", "model=2", marks=pytest.mark.full)])
def test_check_compares_the_steps_of_gpus(tools, fake_gpus, plans, name, mesh):
    fake_gpus(2, 1)
    classes = {"mlp": 5, "cnn": 10}[name]
    result = tools.call("check", plans(name, "cuda:sm_90", "--mesh", mesh), "--exact", "--input", f"labels=randint(0,{classes})")
    assert "5 calls of one session" in result.stdout and "PASS" in result.stdout, result.stdout
    assert "fake GPU" not in result.stderr
