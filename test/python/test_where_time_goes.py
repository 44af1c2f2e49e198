"""The parts of a run's time that bench/where_time_goes.py adds up are those that the plan's steps are of."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from conftest import ROOT

sys.path[:0] = [str(ROOT / "bench")]

import where_time_goes  # noqa: E402
from cpu_vs_peers import Case  # noqa: E402

from gridloom import zoo  # noqa: E402

LAYERS = 2
BERT = zoo.BertConfig(layers=LAYERS, hidden=64, heads=4, intermediate=128, vocabulary=50, positions=32)
GPT2 = {"layers": LAYERS, "hidden": 32, "heads": 4, "vocabulary": 50, "positions": 16, "cache": "static"}


def make_token() -> dict[str, np.ndarray]:
    """A token, and empty caches."""
    caches = {f"past_{kind}_{layer}": np.zeros((1, 4, 16, 8), np.float32) for kind in ("key", "value") for layer in range(LAYERS)}
    return {"input_ids": np.full((1, 1), 7), "position": np.full(1, 3), **caches}


CASES = {
    "bert": Case(lambda folder: zoo.save(zoo.bert(BERT, zoo.Random(0)), folder / "bert.onnx"), {"batch": 2, "sequence": 8}),
    "token": Case(lambda folder: zoo.MODELS["gpt2"].write(folder / "gpt2.onnx", **GPT2), {"batch": 1, "sequence": 1}, make_token, {"past_*": "present_*"}),
    "resnet": Case(lambda folder: zoo.MODELS["resnet"].write(folder / "resnet.onnx", width=8, blocks=(1, 1), image=32, classes=10), {"batch": 2}),
}  # fmt: skip


@pytest.fixture
def run(tools, tmp_path, monkeypatch, capsys):
    """Prints a table as the program does, and returns what it measured beside the columns of its last line."""

    def call(name: str, mesh: str, *more: str):
        results = []
        measure = where_time_goes.measure
        monkeypatch.setattr(where_time_goes, "measure", lambda *arguments: results.append(measure(*arguments)) or results[-1])
        monkeypatch.setattr(where_time_goes, "CASES", CASES)
        monkeypatch.setattr(sys, "argv", ["x", "--bin", str(tools.folder), "--model", name, "--mesh", mesh, "--runs", "3", *more])
        assert where_time_goes.main() == 0
        return results[0], capsys.readouterr().out.splitlines()[-1].split()

    return call


def check(result, columns) -> None:
    """Shares are of all there is, and what is printed."""
    shares = result.get_shares()
    assert sum(shares.values()) == pytest.approx(100) and min(shares.values()) >= 0
    assert [float(column) for column in columns[4:]] == pytest.approx(list(shares.values()), abs=0.06)
    assert all((result.parts[part] > 0) == (count > 0) for part, count in result.steps.items())


def test_bert(run):
    """Query, key, value, output, and two products between; scores and contexts."""
    result, columns = run("bert", "data=1")
    check(result, columns)
    assert columns[:2] == ["bert", "data=1"]
    expected = {"gemm": 6 * LAYERS, "attention": 2 * LAYERS, "convolution": 0, "communication": 0}
    assert {part: result.steps[part] for part in expected} == expected
    assert result.steps["kernel"] >= 4 * LAYERS  # softmax, gelu, two norms


def test_ranks_communicate(run):
    """Two sums of each layer, and that of the rows of the embedding."""
    result, columns = run("bert", "model=2", "--busy")
    check(result, columns)
    assert result.steps["communication"] >= 2 * LAYERS


def test_products_with_caches_are_attention(run):
    result, columns = run("token", "data=1")
    check(result, columns)
    assert result.steps["attention"] == 2 * LAYERS
    assert result.steps["gemm"] >= 4 * LAYERS + 1  # with that of the words


def test_convolutions(run):
    result, columns = run("resnet", "data=1")
    check(result, columns)
    assert result.steps["convolution"] >= 7 and result.steps["attention"] == 0
    assert result.steps["copy"] > 0  # channels of the image
