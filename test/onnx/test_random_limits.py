"""A memory limit bounds a plan's allocations: random models on random meshes compile within their need, and not within a byte less."""

from __future__ import annotations

import onnx
import pytest

import gridloom
import share
from random_graphs import cases

FIRST = share.SEED % 100_000 * 1000


def allocated(report: dict) -> int:
    return report["memory"]["total_bytes"]


def fault(seed: int, folder) -> str | None:
    """What is wrong with the limits of a case; None if the model explains why there is no plan."""
    case = cases.make(seed)
    path, plan, setup = folder / "model.onnx", folder / "model.plan", case.setup
    onnx.save(case.model(), str(path))

    def compile(limit: int | None) -> gridloom.Plan:
        return cases.compile(setup, path, plan, memory_limit=limit)

    try:
        report = compile(None).report
    except gridloom.CompileError as error:
        return None if cases.classify(str(error)) else f"refused: {error}"
    needed = allocated(report)
    try:
        within = allocated(compile(needed).report)
    except gridloom.CompileError as error:
        return f"allocates {needed} bytes and is refused at that: {error}"
    if within > needed:
        return f"allocates {within} bytes at a limit of {needed}"
    try:
        below = allocated(compile(needed - 1).report)
    except gridloom.CompileError as error:
        return "" if ", the limit is " in str(error) else f"is refused for another reason than the limit: {error}"
    # Only with several candidates may a smaller plan exist.
    return "" if len(report["candidates"]) > 1 and below < needed else f"allocates {below} bytes at a limit of {needed - 1}"


def check(seeds, folder, most: float) -> None:
    section, faults, tried, refused = share.Share(), [], 0, 0
    for seed in seeds:
        if not section.has_time():
            break
        wrong = fault(seed, folder)
        tried += 1
        refused += wrong is None
        if wrong:
            faults.append(f"{seed} [{' '.join(cases.make(seed).setup.flags())}] {wrong}")
    print(f"\nof seeds {seeds.start}:{seeds.stop}, {tried} ran, {refused} refused for reasons in the model")
    assert not faults, "\n".join(faults)
    assert tried - refused > most * tried


def test_limits_hold(tmp_path):
    check(range(16), tmp_path, 0.6)


@pytest.mark.full
def test_limits_hold_for_many(tmp_path):
    check(range(FIRST, FIRST + 1000), tmp_path, 0.8)
