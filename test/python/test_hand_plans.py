"""The search without seeds must be no slower in the simulator than any hand-made plan: six small cells of bench/hand_plans.py."""

from __future__ import annotations

import sys

import pytest

from conftest import ROOT

sys.path[:0] = [str(ROOT / "bench")]

import hand_plans  # noqa: E402
from hand_plans import Cell, HandPlan, Planner, make_subject  # noqa: E402

DECODER = {"layers": 2, "hidden": 512, "heads": 8, "vocabulary": 8000}
GATED = DECODER | {"kv_heads": 4, "intermediate": 1024, "head": "logits"}

# Name to (model, devices, preset).
CELLS = {
    "gpt2": (make_subject("gpt2", DECODER, batch=2, sequence=128), 4, "cpu"),
    "moe": (make_subject("moe", GATED | {"experts": 4, "dispatch": "capacity"}, batch=2, sequence=128), 4, "HGX-H100"),
    "small operations": (make_subject("resnet", {"width": 128, "blocks": (1, 1, 1, 1)}, batch=4), 8, "p3.16xlarge"),
    "unet": (make_subject("unet", {"depth": 2, "width": 32, "image": 128}, batch=1), 4, "GB200-NVL72"),
    "more hosts than rows": (make_subject("llama", GATED | {"hidden": 8192, "heads": 64, "intermediate": 28672}, batch=4, sequence=1024), 64, "HGX-H100"),
    "lstm": (make_subject("lstm", {"layers": 1, "hidden": 512, "vocabulary": 4000}, batch=4, sequence=12), 8, "DGX-A100"),
}  # fmt: skip


@pytest.mark.parametrize("name", CELLS)
def test_no_plan_by_hand_is_faster(tools, tmp_path, name):
    subject, devices, preset = CELLS[name]
    kind, target = hand_plans.PRESETS[preset]
    cell = Cell(name, subject, devices, ("--devices", f"{devices}x{kind}"), tuple(target))
    comparison = hand_plans.compare(Planner(tools.path("gridloom"), tmp_path, jobs=2), cell, whole=True)
    assert len(comparison.hands) > 2 and comparison.ratio is not None
    assert not comparison.is_lost, hand_plans.describe(comparison)


def test_more_hosts_than_rows(tools, tmp_path):
    """Two layers of GPT-3 on 128 hosts: no product of the axes 128, 2 and 4 is 64, the number of rows."""
    gpt3 = {"layers": 2, "hidden": 12288, "heads": 96, "vocabulary": 51200, "positions": 2048}
    cell = Cell("c", make_subject("gpt2", gpt3, batch=64, sequence=2048), 1024, ("--devices", "1024xH100-80GB"), tuple(hand_plans.PRESETS["HGX-H100"][1]))
    planner = Planner(tools.path("gridloom"), tmp_path)
    hands = planner.simulate_all(cell, [HandPlan(64, 1, 16, sequence, 1) for sequence in (False, True)])
    assert planner.search(cell).milliseconds < min(result.milliseconds for _, result in hands)


def test_unrolled_loops_are_split_alike(tools, tmp_path):
    """A batch of one row per device: walks from a program that repeats all work find no better step to split first."""
    lstm = make_subject("lstm", {"layers": 2, "hidden": 1024, "vocabulary": 10000}, sequence=16, batch=8)
    cell = Cell("c", lstm, 8, ("--devices", "8xV100-16GB"), tuple(hand_plans.PRESETS["p3.16xlarge"][1]))
    planner = Planner(tools.path("gridloom"), tmp_path)
    ours, by_hand = planner.search(cell), planner.simulate(cell, HandPlan(8, 1, 1, False, 1).options())
    assert ours.strategy == "x=2,y=2,z=2: search"
    assert ours.milliseconds <= by_hand.milliseconds


def test_hosts_that_do_not_divide_the_devices(tools, tmp_path):
    """Groups of eight within hosts of 72: without an axis for them, their links count as those between hosts."""
    bert = make_subject("bert", {"layers": 2, "hidden": 8192, "heads": 128, "intermediate": 32768}, batch=16, sequence=512)
    cell = Cell("c", bert, 256, ("--devices", "256xGB200-186GB"), tuple(hand_plans.PRESETS["GB200-NVL72"][1]))
    planner = Planner(tools.path("gridloom"), tmp_path)
    ours, by_hand = planner.search(cell), planner.simulate(cell, HandPlan(16, 2, 8, True, 1).options())
    assert ours.milliseconds <= by_hand.milliseconds


def test_hand_plans_are_all_there_are():
    """Four devices, two rows and three layers: no more parts of the batch than rows, and no more stages than layers."""
    cell = Cell("c", make_subject("gpt2", {"layers": 3}, batch=2, sequence=8), 4, ())
    found = {str(plan) for mesh in hand_plans.list_meshes(cell) for plan in hand_plans.list_variants(cell, *mesh)}
    assert found == {
        "model=4", "model=4, sp", "pipe=2,model=2, m=1", "pipe=2,model=2, m=2", "pipe=2,model=2, sp, m=1", "pipe=2,model=2, sp, m=2",
        "data=2,model=2", "data=2,model=2, sp", "data=2,pipe=2, m=1",
    }  # fmt: skip


def test_runs_are_remembered(tools, tmp_path):
    cell = Cell("c", CELLS["gpt2"][0], 4, ("--devices", "4"))
    memo = tmp_path / "memo.jsonl"
    first = Planner(tools.path("gridloom"), tmp_path, memo).search(cell)
    again = Planner(tmp_path / "nothing", tmp_path, memo).search(cell)
    assert first.milliseconds and again == first
    planner = Planner(tmp_path / "nothing", tmp_path, memo)
    planner.forget_searches()
    assert not planner.known and memo.read_text() == ""
