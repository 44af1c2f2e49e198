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


def simulate_window(accesses: list[str], sizes: dict[str, int], window: int) -> list[str]:
    """What is gathered by one who keeps what was used last, as long as it fits."""
    recent, gathered = [], []
    for name in accesses:
        after = recent[recent.index(name) :] if name in recent else []
        if not after or sum(sizes[each] for each in after) > window:
            gathered.append(name)
        recent = [each for each in recent if each != name] + [name]
    return gathered


def measure_gathered(step: str) -> int:
    """The most bytes of gathered weights at a time, from each one's all_gather to the last step that reads it."""
    owner = {}
    for name, source in re.findall(r"(%\S+) = plan\.alias (%\S+) ", step):
        owner[name] = owner.get(source, source)
    sizes = {name: int(size) for name, size in re.findall(r"(%\S+) = plan\.buffer registered \{bytes = (\d+)", step)}
    lines = re.findall(r"plan\.(?:group|launch|library|copy) .*", step)
    begins, ends = {}, {}
    for at, line in enumerate(lines):
        if found := re.match(r"plan\.group all_gather .*? outs\((%\S+) :", line):
            begins[found[1]] = at
        for name in re.findall(r"%[\w.#]+", line):
            ends[owner.get(name, name)] = at
    return max(sum(sizes[name] for name, begin in begins.items() if begin <= at <= ends[name]) for at in range(len(lines)))


@pytest.mark.parametrize("parts", [1, 4])
def test_weights_are_gathered_again(tools, tmp_path, parts):
    """As often as a window of two and an eighth of the largest one makes it, no more bytes than that at a time, and the next one travels
    while one is used."""
    width = 64
    sizes = {f"{kind}{i}": 4 * width * (width if kind == "w" else 1) for kind in "wb" for i in range(LAYERS)}
    path = save_deep(tmp_path / "m.onnx", width)
    options = {"train": True, "loss": "mse(y, t)", "optimizer": "adam", "dims": {"batch": 1024}, "mesh": "data=2", "zero": 3}
    plan = gridloom.compile(path, tmp_path / "m.plan", microbatches=parts, tools=tools.folder, **options)
    window = 2 * sizes["w0"] + sizes["w0"] // 8
    expected = simulate_window(list_accesses(parts), sizes, window)
    found = [each["bytes"] for each in plan.report["collectives"] if (each["entry"], each["kind"]) == ("train_step", "all_gather")]
    assert found == [sizes[name] // 2 for name in expected]
    if parts == 1:  # all forward; backward all but the first, which has no use there, and the last two, which are still there
        assert len(found) == 2 * LAYERS + LAYERS - 3
    text = (plan.path / "ir" / "09-allocate.mlir").read_text()
    assert set(re.findall(r"dist\.gather_window = (\d+)", text)) == {str(window)}
    programs = dict(zip(["train_step", "eval", "main"], re.split(r"plan\.program @", text)[1:], strict=True))
    # In the model, what peers reach is gathered weights alone.
    assert int(re.search(r"registered_bytes = (\d+)", programs["main"])[1]) <= window
    step = programs["train_step"]
    assert 2 * sizes["w0"] <= measure_gathered(step) <= window
    # The second weight starts before the first is used; the third as soon as that is over, before the second is used.
    steps = re.findall(r"plan\.group (all_gather)|plan\.library (#plan\.matmul)", step)
    order = "".join("g" if gather else "m" for gather, _ in steps)
    assert order.startswith("ggggmggmggmggmm"), order


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
