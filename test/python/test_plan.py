"""Reading plans and finding tools, with neither of them built."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import gridloom
from gridloom import _tools

MANIFEST = {
    "schema": {"major": 2, "minor": 0},
    "producer": "gridloom 0.1.0",
    "requires": ["cpu"],
    "target": {"kind": "cpu", "arch": "x86-64-v3"},
    "model": {"path": "model.onnx", "bytes": 10, "sha256": "00"},
    "mesh": {"axes": [{"name": "data", "size": 3}, {"name": "pipe", "size": 2}], "stage_axis": "pipe"},
    "microbatches": 4,
    "stages": ["stage0.pb", "stage1.pb"],
    "entries": [
        {
            "name": "main",
            "specialisations": [
                {
                    "dims": {"batch": 12},
                    "inputs": [
                        {"name": "x", "type": "i64", "shape": [12, 5], "dim_names": ["batch", ""], "stages": [0]}
                    ],
                    "outputs": [
                        {"name": "y", "type": "bf16", "shape": [12], "dim_names": ["batch"], "stages": [1]}
                    ],
                }
            ],
        }
    ],
    "weights": [{"name": "w", "type": "f32", "shape": [5, 7], "file": "", "offset": 64, "bytes": 140}],
    "files": {},
}


def write(folder, **changes):
    (folder / "manifest.json").write_text(json.dumps({**MANIFEST, **changes}))
    return folder


def test_a_plan_is_plain_objects(tmp_path):
    plan = gridloom.Plan.read(write(tmp_path))
    assert plan.mesh == {"data": 3, "pipe": 2}
    assert (plan.ranks, plan.stages, plan.microbatches) == (6, 2, 4)
    (specialisation,) = plan.entries[0].specialisations
    assert specialisation.dims == {"batch": 12}
    (x,) = specialisation.inputs
    assert (x.name, x.dtype, x.shape, x.dim_names, x.stages) == ("x", np.int64, (12, 5), ("batch", ""), (0,))
    assert specialisation.outputs[0].dtype.itemsize == 2
    assert plan.weights[0].dtype == np.float32 and plan.weights[0].shape == (5, 7)
    assert os.fspath(plan) == str(tmp_path)


def test_what_is_no_plan_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not a plan: it has no manifest.json"):
        gridloom.Plan.read(tmp_path)
    (tmp_path / "model.onnx").touch()
    with pytest.raises(ValueError, match="model.onnx is not a plan: it has no manifest.json"):
        gridloom.Plan.read(tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="has plan schema 3, this package reads 2"):
        gridloom.Plan.read(write(tmp_path, schema={"major": 3, "minor": 0}))
    (tmp_path / "manifest.json").write_text('{"schema": ')
    with pytest.raises(ValueError, match="damaged"):
        gridloom.Plan.read(tmp_path)
    with pytest.raises(ValueError, match="damaged.*axes"):
        gridloom.Plan.read(write(tmp_path, mesh={}))


def test_compile_passes_every_option_on(tmp_path):
    # A fake compiler that records its arguments; other tests run the real one.
    tool = tmp_path / "gridloom-compile"
    tool.write_text(
        "#!/usr/bin/env python3\nimport json, pathlib, sys\n"
        "out = pathlib.Path(sys.argv[4]); out.mkdir()\n"
        f"(out / 'manifest.json').write_text({json.dumps(MANIFEST)!r})\nprint(json.dumps(sys.argv[1:]))\n"
    )
    tool.chmod(0o755)
    plan = gridloom.compile(
        tmp_path / "m.onnx", mesh={"data": 3, "pipe": 2}, dims={"batch": (1, 12), "sequence": 5}, strategy="dp+tp",
        shard={"x": "[{data},{}]"}, microbatches=4, target="cpu", dump_ir=tmp_path / "ir", seeds=False, tools=tmp_path,
    )  # fmt: skip
    assert plan.path == tmp_path / "m.plan" and plan.ranks == 6
    assert json.loads(plan.log) == [
        "compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.plan"), "--mesh", "data=3,pipe=2",
        "--dim", "batch=1,12", "--dim", "sequence=5", "--shard", "x=[{data},{}]", "--strategy", "dp+tp",
        "--microbatches", "4", "--target", "cpu", "--dump-ir", str(tmp_path / "ir"), "--no-seeds",
    ]  # fmt: skip
    alone = gridloom.compile(tmp_path / "m.onnx", tmp_path / "alone.plan", mesh={}, tools=tmp_path)  # as a plan for one device has it
    assert "--mesh" not in json.loads(alone.log)


def test_a_refused_compile_raises_what_the_compiler_said(tmp_path):
    tool = tmp_path / "gridloom-compile"
    tool.write_text("#!/bin/sh\necho 'error: no node for you' >&2\nexit 1\n")
    tool.chmod(0o755)
    with pytest.raises(gridloom.CompileError, match="^error: no node for you$"):
        gridloom.compile(tmp_path / "m.onnx", mesh="data=2", tools=tmp_path)


def test_tools_are_found_on_the_path_last(tmp_path, monkeypatch):
    monkeypatch.setenv("GRIDLOOM_BUILD", str(tmp_path / "build"))
    for folder in (tmp_path / "path", tmp_path / "build" / "bin"):
        folder.mkdir(parents=True)
        monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=os.pathsep)
        with pytest.raises(FileNotFoundError, match="gridloom-nothing is not in .* or PATH; run scripts/build"):
            _tools.find_tool("gridloom-nothing")
        (folder / "gridloom-thing").write_text("#!/bin/sh\n")
        (folder / "gridloom-thing").chmod(0o755)
        assert _tools.find_tool("gridloom-thing") == folder / "gridloom-thing"
