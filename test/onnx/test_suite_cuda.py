"""ONNX's node tests compiled for GPUs and run on fake ones, which interpret the plan's PTX and complain about operations that a real GPU
would not forgive. By default a sample runs, with every test of the operators that walk a dimension. With --full all tests that pass on
CPUs run, in an order drawn from GRIDLOOM_SEED, while there is time."""

from __future__ import annotations

import io
import random
import sys

import pytest

import share
import suite

sys.path.insert(0, str(suite.ROOT / "scripts"))
import onnx_support  # noqa: E402

TARGET = "cuda:sm_90"
RANKS = (1, 2)
SAMPLE = 70
LANES = {"CumProd", "CumSum", "Scatter", "ScatterElements", "ScatterND", "TopK"}
PASSING = onnx_support.passing_names()
NAMES = sorted(
    {name for name in PASSING if suite.operators(suite.tests()[name]) & LANES}.union(
        random.Random(1).sample(PASSING, SAMPLE)
    )
)


@pytest.fixture(scope="module")
def sample() -> dict[tuple[str, int], suite.Result]:
    return {(result.name, result.ranks): result for result in suite.run(NAMES, RANKS, target=TARGET)}


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", NAMES)
def test_node_on_fake_gpus(sample, name, ranks):
    result = sample.get((name, ranks))
    assert result is not None, "it failed on one rank"
    assert not result.error, result.error


def test_a_complaint_of_a_fake_gpu_is_seen():
    worker = suite._Worker(TARGET)
    worker.errors = io.StringIO("fake GPU: race: k writes what l reads\nsomething else\n")
    assert worker.complaints() == "fake GPU: race: k writes what l reads"
    assert worker.complaints() == ""


@pytest.mark.full
def test_all_on_fake_gpus():
    names = random.Random(share.SEED).sample(PASSING, len(PASSING))
    results = suite.run(names, RANKS, target=TARGET, has_time=share.Share().has_time)
    ran = {result.name for result in results}
    print(f"\nseed {share.SEED}: {len(ran)} of {len(names)} tests ran\n{suite.summarise(results)}")
    assert not [f"{r.name} on {r.ranks}: {r.error}" for r in results if r.error]
    assert len(ran) > SAMPLE and len(results) == len(RANKS) * len(ran)
