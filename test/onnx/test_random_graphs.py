"""Random models on random meshes give ONNX Runtime's results; `random_graphs` says how they are made and compared.

200 cases of fixed seeds; with `--full` up to 5,000 more, starting at GRIDLOOM_SEED, while there is time."""

from __future__ import annotations

import collections
import os
from pathlib import Path

import numpy as np
import pytest

import evaluate
import share
from random_graphs import cases, graph, runner, shrink
from random_graphs.recipes import TABLE

QUICK = range(200)
FIRST = 1000 + share.SEED % 100_000 * 5000
FULL = range(FIRST, FIRST + 5000)

# Operators that no recipe makes, and why. `random_graphs` covers opsets 13 to 24.
WITHOUT_RECIPE = {
    "BitCast": "opset 26", "CausalConvWithState": "opset 27", "CumProd": "opset 26", "LinearAttention": "opset 27",
    "SwiGLU": "opset 28", "Scatter": "before opset 11", "Upsample": "before opset 10",
    **dict.fromkeys(
        ["ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
         "SequenceMap", "SplitToSequence"],
        "in test_sequences",
    ),
    "OptionalGetElement": "has nothing to compute", "OptionalHasElement": "has nothing to compute",
    "ai.onnx.preview.FlexAttention": "a preview that ONNX Runtime lacks",
    **dict.fromkeys([f"ai.onnx.preview.training.{op}" for op in ("Adagrad", "Adam", "Gradient", "Momentum")], "in test_training_operators"),
    "com.microsoft.DynamicQuantizeLSTM": "in test_ort_tools",
    "com.microsoft.QAttention": "in test_ort_tools",
    "com.microsoft.QEmbedLayerNormalization": "in test_ort_tools",
    "com.microsoft.QLinearAveragePool": "ONNX Runtime rounds on the way",
    "com.microsoft.QLinearConv": "in test_ort_tools",
    "com.microsoft.QLinearSoftmax": "ONNX Runtime rounds on the way",
    "com.microsoft.SimplifiedLayerNormalization": "in the standard domain in ONNX Runtime",
}  # fmt: skip


def check(seeds) -> None:
    results = runner.run(seeds, os.cpu_count() or 1, has_time=share.Share().has_time)
    print(f"\nof seeds {seeds.start}:{seeds.stop}, {len(results)} ran\n{runner.summarise(results)}")
    failed = [f"{r.seed} [{r.setup}] {r.error}\n    {runner.reproducer(r.seed)}" for r in results if r.error]
    assert not failed, f"{len(failed)} of {len(results)} cases:\n" + "\n".join(failed[:20])
    ran = [r for r in results if not r.refused]
    # The cases must be able to fail: most models run, are split, and can be compared.
    assert len(ran) > 0.85 * len(results)
    assert sum(r.split > 0 for r in ran) > 0.4 * len(ran)
    assert sum(r.stages > 1 for r in ran) > 0.2 * len(ran)
    elements = sum(r.elements for r in ran)
    loose = sum(r.not_compared.get(cases.LOOSE, 0) for r in ran)
    assert sum(sum(r.not_compared.values()) for r in ran) - loose < 0.03 * elements
    assert loose < 0.25 * elements


def test_agrees_with_onnxruntime():
    check(QUICK)


@pytest.mark.full
def test_many_agree_with_onnxruntime():
    check(FULL)


def test_a_seed_is_a_case():
    one, other = cases.make(5), cases.make(5)
    assert one.model().SerializeToString() == other.model().SerializeToString() and one.setup == other.setup
    assert one.model().SerializeToString() != cases.make(6).model().SerializeToString()


def test_every_operator_has_a_recipe():
    missing = evaluate.operators() - TABLE.keys() - WITHOUT_RECIPE.keys()
    assert not missing, f"no recipe makes {', '.join(sorted(missing))}"


def operators(seed: int, only: list[str] | None = None) -> set[str]:
    nodes = cases.make(seed, only).nodes
    return {f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in nodes}


def test_recipes_make_their_operator():
    """Every recipe makes its operator in the opsets that it claims; otherwise a recipe that never fits would go unnoticed."""
    made = set().union(*map(operators, range(100)))
    for name in TABLE.keys() - made - {"ReshapeOfShape", "NonZeroOfData", "CompressOfData"}:
        pool = [name, "Add", "Cast", "Reshape", "Unsqueeze"]  # some only fit certain operands
        assert any(name in operators(seed, pool) for seed in range(100)), f"100 models have no {name}"


def value(array, noisy=None) -> graph.Value:
    array = np.asarray(array)
    return graph.Value("v", array, [array] * 4 if noisy is None else [np.asarray(noisy, array.dtype)] * 4, "node")


@pytest.mark.parametrize(
    "want, noisy, actual, wrong",
    [
        (np.float32([1, 2]), None, np.float32([1, 2]), ""),
        (np.float32([1, 2]), None, np.float32([1, 2.001]), "wrong in 1 of 2"),
        (np.float32([1, 2]), [1, 2.01], np.float32([1, 2.001]), ""),
        (np.float32([1, 2]), None, np.float32([1, np.nan]), "wrong in 1 of 2"),
        (np.float32([1, np.inf]), None, np.float32([1, np.inf]), ""),
        (np.float32([1, np.inf]), None, np.float32([1, 7]), "wrong in 1 of 2"),
        (np.float32([1, np.inf]), [1, 7], np.float32([1, 7]), ""),
        (np.int64([1, 2]), None, np.int64([1, 3]), "wrong in 1 of 2"),
        (np.int64([1, 2]), [1, 3], np.int64([1, 3]), ""),
        (np.bool_([True]), None, np.bool_([False]), "wrong in 1 of 1"),
        (np.float64([1, 2]), None, np.float64([1, 2 + 1e-9]), "wrong in 1 of 2"),
        (np.float32([1]), None, np.float64([1]), "float64, ONNX Runtime's float32"),
        (np.float32([1]), None, np.float32([[1]]), "is [1, 1]"),
    ],
)
def test_comparison(want, noisy, actual, wrong):
    said = cases.compare(value(want, noisy), actual, collections.Counter())
    assert wrong in said if wrong else not said


def test_a_wrong_value_is_found_and_shrinks(tmp_path, monkeypatch):
    """A planted fault: every result of Tanh counts as wrong. The shrunk case has one node, one device and no pin."""
    seed = next(s for s in range(100) if any(n.op_type == "Tanh" for n in cases.make(s).nodes))

    def attempt(case, folder: Path) -> str:
        return "wrong: planted" if any(n.op_type == "Tanh" for n in case.nodes) else ""

    monkeypatch.setattr(shrink, "attempt", attempt)
    case, error = shrink.shrink(cases.make(seed), tmp_path)
    assert error and [n.op_type for n in case.nodes] == ["Tanh"]
    assert not case.setup.mesh and not case.setup.shard and not case.setup.microbatches
    assert "gridloom compile" in shrink.keep(case, tmp_path / "kept")
    assert (tmp_path / "kept" / "model.onnx").exists()
