"""With --zero 3 a weight is whole only while it is used: it is gathered, dropped, and gathered again, within a window of bytes."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from training_models import SIGNS, save_model

import gridloom
from gridloom import zoo

LAYERS = 5


def save_deep(path, width: int, dtype=np.float32):
    """Layers of one size, whose sums are exact in f64."""
    random = np.random.default_rng(3)
    nodes, weights = [], {}
    for i in range(LAYERS):
        weights[f"w{i}"] = random.choice([-1, -0.5, 0.5, 1], (width, width)).astype(dtype)
        weights[f"b{i}"] = random.choice([-1, 0, 1], width).astype(dtype)
        nodes += [
            helper.make_node("MatMul", [f"x{i}" if i else "x", f"w{i}"], [f"p{i}"], name=f"layer{i}"),
            helper.make_node("Add", [f"p{i}", f"b{i}"], [f"s{i}"], name=f"bias{i}"),
            helper.make_node("Relu", [f"s{i}"], ["y" if i == LAYERS - 1 else f"x{i + 1}"], name=f"relu{i}"),
        ]
    return save_model(path, nodes, [width], width, weights)


def list_accesses(parts: int) -> list[str]:
    """Weights in the order in which a step reads them: biases only forward, the first weight too, as the input has no derivative."""
    forward = [name for i in range(LAYERS) for name in (f"w{i}", f"b{i}")]
    return (forward + [f"w{i}" for i in range(LAYERS - 1, 0, -1)]) * parts


def simulate_units(accesses: list[str], sizes: dict[str, int], window: int) -> list[list[str]]:
    """What is gathered, message by message, by one who keeps what was used last, as long as it fits, and takes along what is used next, as
    long as that is no more than half the window, and has room beside what is kept."""
    recent, stretches = [], []  # each of a name, its first access and its last one
    for at, name in enumerate(accesses):
        after = recent[recent.index(name) :] if name in recent else []
        if not after or sum(sizes[each] for each in after) > window:
            stretches.append([name, at, at])
        next(stretch for stretch in reversed(stretches) if stretch[0] == name)[2] = at
        recent = [each for each in recent if each != name] + [name]
    units = []
    for i, (name, first, _) in enumerate(stretches):
        begin = i - len(units[-1]) if units else 0
        there = [each for each, _, last in stretches[: i + 1] if last >= stretches[begin][1]]
        if units and sum(sizes[each] for each in [*units[-1], name]) <= window // 2 and sum(sizes[each] for each in there) <= window:
            units[-1].append(name)
        else:
            units.append([name])
    return units


def measure_gathered(step: str) -> int:
    """The most bytes of gathered weights at a time, from each one's all_gather to the last step that reads it, and of the copies that a
    product needs in another order, from when they are made."""
    owner = {}
    for name, source in re.findall(r"(%\S+) = plan\.alias (%\S+) ", step):
        owner[name] = owner.get(source, source)
    sizes = {name: int(size) for name, size in re.findall(r"(%\S+) = plan\.buffer \w+ \{bytes = (\d+)", step)}
    lines = re.findall(r"plan\.(?:group|launch|library|copy) .*", step)
    begins, ends = {}, {}
    for at, line in enumerate(lines):
        names = [owner.get(name, name) for name in re.findall(r"%[\w.#]+", line)]
        if found := re.match(r"plan\.group all_gather .*? outs\((.*?) :", line):
            begins |= dict.fromkeys(found[1].split(", "), at)
        elif line.startswith("plan.launch @k_transpose") and names[0] in begins:
            begins[names[1]] = at
        for name in names:
            ends[name] = at
    return max(sum(sizes[name] for name, begin in begins.items() if begin <= at <= ends[name]) for at in range(len(lines)))


def split_programs(plan) -> tuple[int, dict[str, str]]:
    """The window, and each entry's program."""
    text = (plan.path / "ir" / "09-allocate.mlir").read_text()
    [window] = set(re.findall(r"dist\.gather_window = (\d+)", text))
    return int(window), dict(zip(["train_step", "eval", "main"], re.split(r"plan\.program @", text)[1:], strict=True))


def list_gathered(plan, entry: str = "train_step") -> list[int]:
    return [each["bytes"] for each in plan.report["collectives"] if (each["entry"], each["kind"]) == (entry, "all_gather")]


@pytest.mark.parametrize("parts", [1, 4])
def test_weights_are_gathered_again(tools, tmp_path, parts):
    """As often as a window of two and an eighth of the largest one makes it, each with the bias that is used next, no more bytes than
    that at a time, and the next ones travel while one is used."""
    width = 64
    sizes = {f"{kind}{i}": 4 * width * (width if kind == "w" else 1) for kind in "wb" for i in range(LAYERS)}
    path = save_deep(tmp_path / "m.onnx", width)
    options = {"train": True, "loss": "mse(y, t)", "optimizer": "adam", "dims": {"batch": 1024}, "mesh": "data=2", "zero": 3}
    plan = gridloom.compile(path, tmp_path / "m.plan", microbatches=parts, tools=tools.folder, **options)
    window, programs = split_programs(plan)
    assert window == 2 * sizes["w0"] + sizes["w0"] // 8
    units = simulate_units(list_accesses(parts), sizes, window)
    assert list_gathered(plan) == [sum(sizes[name] for name in unit) // 2 for unit in units]
    if parts == 1:  # a layer each; backward all but the first, which has no use there, and the last two, which are still there
        assert len(units) == LAYERS + LAYERS - 3
    # In the model, what peers reach is gathered weights alone.
    assert int(re.search(r"registered_bytes = (\d+)", programs["main"])[1]) <= window
    step = programs["train_step"]
    assert 2 * sizes["w0"] <= measure_gathered(step) <= window
    # The second layer starts before the first is used; the third as soon as that is over, before the second is used.
    steps = re.findall(r"plan\.group (all_gather)|plan\.library (#plan\.matmul)", step)
    order = "".join("g" if gather else "m" for gather, _ in steps)
    assert order.startswith("ggmgmgmgmm"), order


GPT = {"layers": 3, "hidden": 64, "heads": 4, "positions": 16}


def compile_gpt(tools, folder, vocabulary: int, **options) -> gridloom.Plan:
    path = zoo.save(zoo.gpt2(zoo.Gpt2Config(vocabulary=vocabulary, **GPT), zoo.Random(0)), folder / "gpt.onnx")
    options = {"train": True, "loss": "cross_entropy(logits, labels)", "optimizer": "adam", "mesh": "data=2", "zero": 3} | options
    return gridloom.compile(path, folder / "gpt.plan", dims={"batch": 8, "sequence": 16}, tools=tools.folder, **options)


@pytest.mark.parametrize(
    ("vocabulary", "parts", "counts"),
    [(100, 1, (57, 19)), (100, 2, (110, 37)), pytest.param(2000, 1, (52, 8), marks=pytest.mark.full), (2000, 2, (85, 14))],
)
def test_a_decoder_gathers_units(tools, tmp_path, vocabulary, parts, counts):
    """As many bytes as weight by weight, in fewer messages, and no more of them at a time. A weight of the multilayer perceptron is the
    largest, so a layer is three units; with a large vocabulary the embedding is, and a unit is what a bucket holds: two layers."""
    layer = 4 * 12 * GPT["hidden"] ** 2
    windows, sent = set(), set()
    for size, count in zip((0, 2 * layer), counts, strict=True):
        plan = compile_gpt(tools, tmp_path, vocabulary, microbatches=parts, bucket_size=size)
        window, programs = split_programs(plan)
        gathered = list_gathered(plan)
        assert len(gathered) == count
        windows.add(window)
        sent.add(sum(gathered))
        assert measure_gathered(programs["train_step"]) <= window
        assert int(re.search(r"registered_bytes = (\d+)", programs["main"])[1]) <= window
    assert len(windows) == len(sent) == 1
    assert max(gathered) <= max(window // 2, 4 * layer) // 2  # of two devices each sends its part
    # The model: the embedding with what comes first, and each layer's three; or what fits into buckets.
    assert len(list_gathered(plan, "main")) == (1 + 3 * GPT["layers"] if vocabulary == 100 else 4)


def draw(width: int, batch: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(8)
    return {name: random.integers(-1, 2, (batch, width)).astype(np.float64) for name in "xt"}


def run_steps(tools, path, plan, batch: dict[str, np.ndarray], **options):
    size = len(batch["x"])
    options = {"train": True, "loss": "mse(y, t, reduction=sum)", "optimizer": SIGNS, "dims": {"batch": size}, **options}
    with gridloom.load(gridloom.compile(path, plan, tools=tools.folder, **options), threads=1) as session:
        for _ in range(2):
            outputs = session.run(batch | {"learning_rate": np.array(0.25, np.float32)}, entry="train_step")
            assert outputs["committed"] == 1
        return {name: session.get_state(name) for name in session.states}


@pytest.fixture(scope="module")
def one_rank(tools, tmp_path_factory):
    folder = tmp_path_factory.mktemp("deep")
    path = save_deep(folder / "m.onnx", 8, np.float64)
    batch = draw(8, 48)
    states = run_steps(tools, path, folder / "one.plan", batch)
    assert all(np.abs(states[f"w{i}"] - numpy_helper.to_array(weight)).max() > 0 for i, weight in enumerate(onnx.load(path).graph.initializer[::2]))
    return path, batch, states


@pytest.mark.parametrize(
    ("mesh", "parts"),
    [("data=2", 1), ("data=3", 4), ("data=2,model=2", 4), *(pytest.param(*case, marks=pytest.mark.full) for case in [("data=4", 1), ("data=4", 4), ("data=2,model=2", 1), ("data=2", 4)])],
)
def test_what_is_gathered_again_is_exact(tools, tmp_path, one_rank, mesh, parts):
    path, batch, expected = one_rank
    found = run_steps(tools, path, tmp_path / "m.plan", batch, mesh=mesh, zero=3, microbatches=parts)
    listed = json.loads(tools.call("inspect", tmp_path / "m.plan", "collectives", "--format", "json").stdout)["collectives"]
    assert any("again, since it was dropped" in each["because"] for each in listed)
    assert found.keys() == expected.keys()
    for name, state in expected.items():
        np.testing.assert_array_equal(found[name], state, err_msg=name)
