"""How operations are split stands in the dump of the shard phase, and partitioning does what stands there."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gridloom import zoo

PRODUCT = re.compile(r"loom\.dot_general .*?dist\.splits = (#dist\.splits<\[.*?\]>)")


@pytest.fixture
def dump(tools, tmp_path, monkeypatch):
    """The shard phase's dump of an MLP of two products on two devices."""
    monkeypatch.chdir(tmp_path)
    zoo.save(zoo.mlp([16, 32, 8], zoo.Random(0, scale=0.2)), "mlp.onnx")
    tools.compile("mlp.onnx", "m.plan", "--dim", "batch=4", "--mesh", "model=2", "--dump-ir", "dumps")
    return tmp_path / "dumps" / "03-shard.mlir"


def products(folder):
    """The operand and result types of the products of the partitioned program."""
    (after,) = folder.glob("*-partition.mlir")
    return re.findall(r"loom\.dot_general .* : (\(.*\) -> \S+)", after.read_text())


def test_partitioning_does_what_is_written(tools, dump, tmp_path):
    """Columns, then the contraction, become rows and the contraction of another product: the same output."""
    text = dump.read_text()
    assert PRODUCT.findall(text) == ['#dist.splits<[{}, {"model"}, {}]>', '#dist.splits<[{}, {}, {"model"}]>']
    assert products(tmp_path / "dumps")[0] == "(tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>"
    written = '#dist.splits<[{"model"}, {}, {}]>'
    dump.write_text(text.replace('#dist.splits<[{}, {"model"}, {}]>', written, 1).replace('#dist.splits<[{}, {}, {"model"}]>', written, 1))
    tools.call("compile", "--start-from", "partition", dump, "-o", "by-hand.plan", "--dump-ir", "by-hand")
    assert products(tmp_path / "by-hand") == [
        "(tensor<2x16xf32>, tensor<16x32xf32>) -> tensor<2x32xf32>",
        "(tensor<2x32xf32>, tensor<32x8xf32>) -> tensor<2x8xf32>",
    ]
    inputs = {"x": np.random.default_rng(0).standard_normal((4, 16), dtype=np.float32)}
    expected, actual = (tools.run(plan, inputs, tmp_path / f"{plan}.values").outputs["y"] for plan in ("m.plan", "by-hand.plan"))
    assert np.allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize(
    "old,new,message",
    [
        (r"dist\.splits = #dist\.splits<\[\{\}, \{\"model\"\}, \{\}\]>, ", "", "has no dist.splits; dist-choose-splits writes an entry for each of its 3 factors"),
        (r"\[\{\}, \{\"model\"\}, \{\}\]>", '[{"model"}, {}]>', "has dist.splits of 2 factors; its sharding rule has 3"),
        (r"\[\{\}, \{\"model\"\}, \{\}\]>", '[{"model"}, {"model"}, {}]>', "splits over axis 'model' twice"),
        (r"\[\{\}, \{\"model\"\}, \{\}\]>", '[{}, {"modl"}, {}]>', "axis 'modl' is not in the mesh (axes: model)"),
        (r"\[\{\}, \{\"model\"\}, \{\}\]>", '[{}, {}, {}], unreduced = {"model"}>', "is not linear, so its operands cannot stay unreduced"),
    ],
)
def test_splits_that_cannot_be(tools, dump, old, new, message):
    text, count = re.subn(old, lambda _: new, dump.read_text(), count=1)
    assert count == 1
    dump.write_text(text)
    result = tools.call("compile", "--start-from", "partition", dump, "-o", "edited.plan", check=False)
    (line,) = result.stderr.splitlines()
    assert result.returncode == 1 and line.startswith("error: ") and message in line, line
