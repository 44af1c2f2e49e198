"""What `gridloom run` refuses before it runs anything, and the messages."""

from __future__ import annotations

import os

import numpy as np
import pytest

from gridloom import zoo


@pytest.fixture(scope="module")
def plan(tools, tmp_path_factory):
    """A perceptron of 16 inputs for batches of 4 and 8."""
    folder = tmp_path_factory.mktemp("refusals")
    model = zoo.save(zoo.mlp([16, 8], zoo.Random(0)), folder / "mlp.onnx")
    tools.compile(model, folder / "mlp.plan", "--dim", "batch=4,8")
    return folder / "mlp.plan"


def refused(tools, *arguments) -> str:
    result = tools.call("run", *arguments, check=False)
    assert result.returncode == 1 and not result.stdout
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), result.stderr
    return lines[0]


def test_names_come_before_specialisations(tools, plan):
    assert "there is no input z; the plan takes x f32 [4, 16]" in refused(tools, plan, "--input", "z=ones")


def test_a_fixed_dimension_is_named(tools, plan, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((4, 5), np.float32))
    line = refused(tools, plan, "--input", f"x={tmp_path / 'x.npy'}")
    assert "input 'x' has 5 in dimension 1, the plan takes 16 there in all specialisations" in line
    np.save(tmp_path / "x.npy", np.ones((3, 16), np.float32))
    line = refused(tools, plan, "--input", f"x={tmp_path / 'x.npy'}")
    assert "no specialisation of entry main fits the shapes of the inputs; there are: batch=4; batch=8" in line


def test_a_trace_that_cannot_be_written_is_found_before_the_run(tools, plan, tmp_path):
    arguments = [plan, "--dim", "batch=4", "--input", "x=ones", "--trace"]
    (tmp_path / "loop").symlink_to("loop")
    assert "cannot be written: Too many levels" in refused(tools, *arguments, tmp_path / "loop")
    kept = tmp_path / "trace.json"
    before = '{"displayTimeUnit": "ms", "traceEvents": [\n\n]}\n'
    kept.write_text(before)
    os.rename(plan.parent / "mlp.onnx", plan.parent / "mlp.onnx.moved")
    try:
        assert "mlp.onnx" in refused(tools, *arguments, kept)
    finally:
        os.rename(plan.parent / "mlp.onnx.moved", plan.parent / "mlp.onnx")
    assert kept.read_text() == before


def test_a_trace_replaces_traces_only(tools, plan, tmp_path):
    arguments = [plan, "--dim", "batch=4", "--input", "x=ones", "--trace"]
    model, manifest = plan.parent / "mlp.onnx", plan / "manifest.json"
    before = model.read_bytes(), manifest.read_bytes()
    assert f"--trace {model} exists and is not a trace; remove it, or name another file" in refused(tools, *arguments, model)
    (tmp_path / "link").symlink_to(manifest)
    for inside in (manifest, plan / "new.json", tmp_path / "link"):
        assert f"--trace {inside} is inside the plan {plan}; name a place outside of it" in refused(tools, *arguments, inside)
    assert (model.read_bytes(), manifest.read_bytes()) == before and not (plan / "new.json").exists()
    for _ in range(2):
        tools.call("run", *arguments, tmp_path / "trace.json")


@pytest.mark.parametrize("inside", ["", "ir"])
def test_outputs_in_the_plan_are_refused(tools, plan, inside):
    before = sorted(plan.rglob("*"))
    line = refused(tools, plan, "--dim", "batch=4", "--input", "x=ones", "--output", plan / inside)
    assert f"--output {plan / inside} is inside the plan {plan}; name a place outside of it" in line
    assert sorted(plan.rglob("*")) == before


def test_another_model_of_the_same_size_is_noticed(tools, plan):
    model = plan.parent / "mlp.onnx"
    before = model.read_bytes()
    changed = bytearray(before)
    changed[-100] ^= 1
    try:
        model.write_bytes(changed)
        line = refused(tools, plan, "--dim", "batch=4", "--input", "x=ones")
        assert "the plan was compiled from" in line and "compile again" in line
    finally:
        model.write_bytes(before)
    tools.call("run", plan, "--dim", "batch=4", "--input", "x=ones")  # a changed timestamp alone does not matter
