"""Programs on fake GPUs as CUDA graphs: replays give the same bits as single steps, also with state that lasts between calls,
alternating specialisations, and conditions between graphs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT, onnxruntime_session
from test_control_flow import D, mlp_loop  # noqa: F401: a fixture

import gridloom
from gridloom import zoo

# Each run is a process, which starts with fresh fake GPUs: it runs the cases in order and keeps all outputs.
RUN = """
import sys
import numpy as np
import gridloom

plan, cases, results, graphs = sys.argv[1:]
given = np.load(cases)
kept = {}
with gridloom.load(plan, graphs=graphs == "graphs") as session:
    for case in range(1 + max(int(name.split("|")[0]) for name in given)):
        inputs = {name.split("|")[1]: given[name] for name in given if name.startswith(f"{case}|")}
        kept |= {f"{case}|{name}": value for name, value in session.run(inputs).items()}
np.savez(results, **kept)
"""


@pytest.fixture
def run(fake_gpus, tmp_path):
    """Runs cases on a plan, with or without graphs; returns the outputs of each."""

    def call(plan, cases: list[dict], devices: int, seed: int, graphs: bool, error: str = "") -> list[dict]:
        fake_gpus(devices, seed)
        np.savez(tmp_path / "cases.npz", **{f"{i}|{k}": v for i, case in enumerate(cases) for k, v in case.items()})
        arguments = [plan, tmp_path / "cases.npz", tmp_path / "results.npz", "graphs" if graphs else "steps"]
        result = subprocess.run(
            [sys.executable, "-c", RUN, *map(str, arguments)], capture_output=True, text=True, timeout=300, cwd=ROOT / "python"
        )
        if error:
            assert result.returncode and error in result.stderr, result.stderr
            return []
        assert result.returncode == 0 and not result.stderr, result.stderr
        kept = np.load(tmp_path / "results.npz")
        return [
            {name.split("|")[1]: kept[name] for name in kept if name.startswith(f"{i}|")} for i in range(len(cases))
        ]

    return call


def check_equal(run, plan, cases, devices, monkeypatch):
    """Compares graphs with single steps, for three orders of execution; returns the outputs."""
    with monkeypatch.context() as patch:  # checks that graphs are used
        patch.setenv("GRIDLOOM_FAKE_FAIL", "cuGraphLaunch:999:3")
        run(plan, cases, devices, 1, True, error="cuGraphLaunch failed with error 999")
    for seed in (1, 2, 3):
        steps, graphs = (run(plan, cases, devices, seed, graphs) for graphs in (False, True))
        for one, other in zip(steps, graphs, strict=True):
            for name, value in one.items():
                np.testing.assert_array_equal(other[name], value)
    return graphs


@pytest.mark.parametrize(("mesh", "strategy"), [("", None), ("model=2", "tp")], ids=["one GPU", "two GPUs"])
def test_a_cache_lasts_through_replays(run, tmp_path, monkeypatch, mesh, strategy):
    config = zoo.Gpt2Config(layers=2, hidden=32, heads=4, vocabulary=53, positions=32, cache="static")
    path = zoo.save(zoo.gpt2(config, zoo.Random(3, scale=0.2)), tmp_path / "gpt2.onnx")
    plan = gridloom.compile(
        path,
        tmp_path / "gpt2.plan",
        dims={"batch": 1, "sequence": [4, 1]},
        mesh=mesh,
        state={"past_*": "present_*"},
        target="cuda:sm_90",
        **({"strategy": strategy} if strategy else {}),
    )
    tokens = np.random.default_rng(1).integers(0, config.vocabulary, (1, 16))
    # Two prompts of four tokens, each decoded token by token: two specialisations alternate.
    chunks = [(0, 4), (4, 5), (5, 6), (6, 7), (0, 4), (4, 5), (5, 6), (0, 4), (4, 5)]
    cases = [{"input_ids": tokens[:, a:b], "position": np.array([a])} for a, b in chunks]
    outputs = check_equal(run, plan.path, cases, 2 if mesh else 1, monkeypatch)

    session = onnxruntime_session(path)
    names = [output.name for output in session.get_outputs()]
    pasts = [given.name for given in session.get_inputs() if given.name.startswith("past_")]
    shape = (1, config.heads, config.positions, config.hidden // config.heads)
    cache = {name: np.zeros(shape, np.float32) for name in pasts}
    for case, output in zip(cases, outputs, strict=True):
        expected = dict(zip(names, session.run(None, {**case, **cache}), strict=True))
        cache = {name: expected[name.replace("past_", "present_")] for name in pasts}
        np.testing.assert_allclose(output["logits"], expected["logits"], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("mesh", "strategy"), [("", None), ("model=2", "tp")], ids=["one GPU", "two GPUs"])
def test_conditions_lie_between_graphs(run, mlp_loop, tmp_path, monkeypatch, mesh, strategy):  # noqa: F811
    plan = gridloom.compile(
        mlp_loop,
        tmp_path / "loop.plan",
        dims={"batch": 8},
        mesh=mesh,
        unroll=0,
        target="cuda:sm_90",
        **({"strategy": strategy} if strategy else {}),
    )
    x, bias = (np.random.default_rng(1).standard_normal((2, 8, D)) * 0.1).astype(np.float32)
    cases = [
        {"x": x, "bias": bias, "limit": np.array(limit, np.float32), "trips": np.array(trips)}
        for limit, trips in [(1e9, 3), (1e9, 0), (1e9, 5), (0.9, 20), (1e9, 1)]
    ]
    outputs = check_equal(run, plan.path, cases, 2 if mesh else 1, monkeypatch)
    session = onnxruntime_session(mlp_loop)
    for case, output in zip(cases, outputs, strict=True):
        np.testing.assert_allclose(output["y"], session.run(["y"], case)[0], rtol=1e-4, atol=1e-5)
