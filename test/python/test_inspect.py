"""`gridloom inspect` of models and of kernels."""

from __future__ import annotations

import json

import pytest

from gridloom import zoo


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return zoo.save(zoo.mlp([16, 32, 8], zoo.Random(0)), tmp_path_factory.mktemp("inspect") / "mlp.onnx")


def test_a_model_is_summed_up(tools, model):
    shown = json.loads(tools.call("inspect", model, "--format", "json").stdout)
    assert shown["file"] == model.stat().st_size
    assert shown["parameters"] == 16 * 32 + 32 + 32 * 8 + 8
    assert shown["inputs"] == [{"name": "x", "type": "float", "shape": "[batch, 16]"}]
    assert sum(row["nodes"] for row in shown["operators"]) == shown["nodes"]
    assert shown["largest_weights"][0]["bytes"] == 4 * 16 * 32
    assert "largest weights" in tools.call("inspect", model).stdout


def test_a_damaged_model_is_one_line(tools, model, tmp_path):
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(model.read_bytes()[:100])
    result = tools.call("inspect", damaged, check=False)
    assert result.returncode == 1
    assert result.stderr.startswith("error: ") and len(result.stderr.strip().splitlines()) == 1


def test_kernels_have_their_work_and_nodes(tools, model, tmp_path):
    tools.compile(model, tmp_path / "mlp.plan", "--dim", "batch=4", "--target", "cuda:sm_90")
    kernels = json.loads(tools.call("inspect", tmp_path / "mlp.plan", "kernels", "--format", "json").stdout)["kernels"]
    assert kernels
    for kernel in kernels:
        assert kernel["bytes"] > 0 and kernel["launches"] + kernel["fallbacks"] > 0 and kernel["nodes"]
        assert kernel["spill"] == 0
        assert kernel["registers"] > 0 or kernel["library"].endswith(".ptx")
