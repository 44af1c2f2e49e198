"""ONNX's node tests, compiled and run on 1, 2 and 4 ranks with random shardings, without the interpreter.

failing.txt lists the tests that fail, each with its reason; scripts/onnx_support.py writes it and docs/onnx-support.md. By default a
sample of passing and failing tests runs. With --full all tests run, and both files must match the results."""

from __future__ import annotations

import random
import sys

import pytest

import suite

sys.path.insert(0, str(suite.ROOT / "scripts"))
import onnx_support  # noqa: E402

SAMPLE = 150
NAMES = sorted(random.Random(0).sample(onnx_support.passing_names(), SAMPLE))
FAILING = sorted(random.Random(0).sample(sorted(onnx_support.read_failing()), 30))


@pytest.fixture(scope="module")
def sample(request) -> dict[tuple[str, int], suite.Result]:
    results = suite.run(NAMES)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{suite.summarise(results)}")
    return {(result.name, result.ranks): result for result in results}


@pytest.mark.parametrize("ranks", suite.RANKS)
@pytest.mark.parametrize("name", NAMES)
def test_node_on_ranks(sample, name, ranks):
    result = sample.get((name, ranks))
    assert result is not None, "it failed on one rank"
    assert not result.error, result.error


def test_listed_failures_fail():
    assert onnx_support.list_differences(suite.run(FAILING)) == []


def test_the_list_names_tests():
    assert set(onnx_support.read_failing()) <= suite.tests().keys()


def test_a_difference_from_the_list_is_seen(monkeypatch):
    monkeypatch.setattr(onnx_support, "read_failing", lambda: {"a": "why", "b": "why", "c": "why"})
    results = [suite.Result("a", 1), suite.Result("b", 1, "CompileError: else"), suite.Result("d", 1)]
    results += [suite.Result("d", 2, "ValueError: wrong"), suite.Result("e", 1), suite.Result("c", 1, "CompileError: why")]
    assert onnx_support.list_differences(results) == [
        "a passes and is listed in failing.txt with: why",
        "b fails with: else; listed with: why",
        "d fails and is not listed: wrong (on 2 ranks)",
    ]


@pytest.mark.parametrize("ranks", suite.RANKS[1:])
def test_sharding_is_real(sample, ranks):
    able = [r for r in sample.values() if r.ranks == ranks and not r.error and r.splittable]
    assert len(able) > SAMPLE // 2
    assert sum(r.sharded > 0 for r in able) >= 0.9 * len(able)


def test_a_wrong_answer_is_seen():
    test = suite.tests()["test_add"]
    ((inputs, expected),) = test.data_sets
    right = [suite.to_array(value) for value in expected]
    suite.check(test, right, expected)
    with pytest.raises(AssertionError):
        suite.check(test, [right[0] + 0.01], expected)
    with pytest.raises(AssertionError):
        suite.check(test, [right[0][:1]], expected)


def test_a_worker_that_dies_is_a_failure(monkeypatch):
    monkeypatch.setattr(suite, "SECONDS", 0.001)
    (result,) = suite.run(["test_add"], ranks=[1], workers=1)
    assert "no answer" in result.error or "died" in result.error


@pytest.mark.full
def test_all(tmp_path):
    results = suite.run(suite.tests())
    print(suite.summarise(results))
    assert onnx_support.differences(results) == []
    core = [r for r in results if not r.error and suite.classify(suite.tests()[r.name]) == "core"]
    for ranks in suite.RANKS:
        assert sum(r.ranks == ranks for r in core) >= 1100
