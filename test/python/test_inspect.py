"""`gridloom inspect` for models and kernels."""

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


def test_states_are_listed(tools, model, tmp_path):
    options = ["--train", "--loss", "mse(y, t)", "--optimizer", "adam(lr=1e-3)", "--dim", "batch=4", "--mesh", "data=2"]
    tools.compile(model, tmp_path / "m.plan", *options, "--zero", "1")
    shown = json.loads(tools.call("inspect", tmp_path / "m.plan", "states", "--format", "json").stdout)
    states = {row["name"]: row for row in shown["states"]}
    weights = {name for name, row in states.items() if row["role"] == "parameter"}
    assert len(weights) == 4
    for name in weights:
        weight, moment = states[name], states[f"{name}/m"]
        assert weight["begins_as"] == name and moment["begins_as"] == "zeros"
        assert moment["role"] == "moment" and moment["type"] == weight["type"] == "f32"
        assert moment["shape"] == weight["shape"] == weight["local_shape"]
        assert moment["local_shape"] != moment["shape"] and moment["bytes"] == weight["bytes"] // 2
        assert "data" in moment["sharding"]
    assert states["train/step"] == {
        "stage": 0, "name": "train/step", "role": "counter", "type": "i64", "shape": [], "local_shape": [],
        "sharding": states["train/step"]["sharding"], "bytes": 8, "begins_as": "zeros",
    }  # fmt: skip
    assert shown["state_bytes_of_a_device"] == sum(row["bytes"] for row in states.values())
    text = tools.call("inspect", tmp_path / "m.plan", "states", "--wide").stdout
    assert "state bytes of a device" in text and "train/step" in text
    tools.compile(model, tmp_path / "plain.plan", "--dim", "batch=4")
    assert json.loads(tools.call("inspect", tmp_path / "plain.plan", "states", "--json").stdout)["states"] == []


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
