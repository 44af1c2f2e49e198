"""gridloom check on compiled plans: its oracles, and a planted fault found by bisection."""

from __future__ import annotations

import re
import shutil

import numpy as np
import onnx
import pytest

from gridloom import zoo

INPUTS = ("--input", "input_ids=randint(0,30000)", "--input", "attention_mask=1", "--input", "token_type_ids=0")


def save(path, nodes, inputs, outputs):
    """A model of f32; `inputs` and `outputs` are shapes by name."""

    def describe(shapes):
        return [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()]

    made = [onnx.helper.make_node(*node) for node in nodes]
    graph = onnx.helper.make_graph(made, "small", describe(inputs), describe(outputs))
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def minilm_plan(tools, minilm_path, tmp_path_factory):
    plan = tmp_path_factory.mktemp("check") / "minilm.plan"
    tools.compile(minilm_path, plan, "--dim", "batch=2", "--dim", "sequence=8", "--mesh", "data=2,model=2")
    return plan


@pytest.mark.parametrize("oracle", ["interpreter", "1rank", "ort"])
def test_oracles_agree(tools, minilm_plan, oracle):
    result = tools.call("check", minilm_plan, "--oracle", oracle, *INPUTS)
    name = {"interpreter": "01-import", "1rank": "1 rank", "ort": "ONNX Runtime"}[oracle]
    assert f"compiled, 4 ranks, against {name}: output 'embedding' f32[2, 384]: max abs" in result.stdout
    assert "PASS" in result.stdout


def test_ort_says_what_is_missing(tools, minilm_plan):
    result = tools.call("check", minilm_plan, "--oracle", "ort", *INPUTS, env={"GRIDLOOM_PYTHON": "no-python"}, check=False)
    assert result.returncode == 1
    assert "oracle ort: 'no-python' cannot be started; set GRIDLOOM_PYTHON" in result.stderr


def test_ort_is_found_without_settings(tools, minilm_plan, tmp_path, monkeypatch):
    """It is found in the build's own Python, whatever `python3` is on PATH."""
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "python3").chmod(0o755)
    monkeypatch.delenv("GRIDLOOM_PYTHON", raising=False)
    result = tools.call("check", minilm_plan, "--oracle", "ort", *INPUTS, env={"PATH": str(tmp_path)})
    assert "PASS" in result.stdout


def test_ort_is_given_the_states(tools, tmp_path):
    """A plan keeps its caches; the model gets them as inputs, zero in a new session."""
    sizes = {"layers": 1, "hidden": 32, "heads": 4, "vocabulary": 29, "positions": 32}
    model = zoo.save(zoo.gpt2(zoo.Gpt2Config(cache="static", **sizes), zoo.Random(1)), tmp_path / "m.onnx")
    state = ["--state", "past_*=present_*", "--mesh", "model=2"]
    tools.compile(model, tmp_path / "m.plan", "--dim", "batch=1", "--dim", "sequence=4,1", *state)
    inputs = ["--input", "input_ids=randint(0,29)", "--input", "position=0"]
    result = tools.call("check", tmp_path / "m.plan", "--oracle", "ort", *inputs)
    assert result.stdout.count("against ONNX Runtime: output 'logits'") >= 2 and "PASS" in result.stdout


def test_made_up_inputs_are_those_of_run(tools, tmp_path):
    """`run` and `check` share the grammar and the generator of --input."""
    model = zoo.save(zoo.mlp((16, 32, 8), zoo.Random(0)), tmp_path / "mlp.onnx")
    tools.compile(model, tmp_path / "mlp.plan", "--dim", "batch=4")
    for value in ("randn", "normal(0,2)", "uniform(-1,1)", "randint(0,9)", "ones", "zeros", "0.5"):
        assert "PASS" in tools.call("check", tmp_path / "mlp.plan", "--input", f"x={value}").stdout
        assert "f32 [4, 8]" in tools.call("run", tmp_path / "mlp.plan", "--input", f"x={value}").stdout
    for verb in ("run", "check", "bench"):
        result = tools.call(verb, tmp_path / "mlp.plan", "--input", "x=normal(1)", check=False)
        assert result.returncode == 1 and "'normal(1)' is not normal(MEAN,DEVIATION)" in result.stderr
        listed = "FILE.npy, a number, ones, zeros, randn, randn(MEAN,DEVIATION), normal(MEAN,DEVIATION), uniform(LOW,HIGH) or"
        assert listed in " ".join(tools.call(verb, "--help").stdout.split())


def test_elements_that_are_no_numbers_are_counted(tools, tmp_path):
    """NaN equals NaN, which proves little: the line says for how many elements."""
    model = save(tmp_path / "m.onnx", [("Log", ["x"], ["y"])], {"x": [2, 3]}, {"y": [2, 3]})
    tools.compile(model, tmp_path / "m.plan")
    np.save(tmp_path / "x.npy", np.array([[-1, 0, 1], [2, -3, 4]], np.float32))
    line = "; 3 of 6 elements are expected to be infinite or NaN"
    assert line in tools.call("check", tmp_path / "m.plan", "--input", f"x={tmp_path / 'x.npy'}").stdout
    assert line not in tools.call("check", tmp_path / "m.plan", "--input", "x=ones").stdout


def test_oracles_need_a_plan(tools, minilm_plan):
    dump = minilm_plan / "ir" / "02-simplify.mlir"
    result = tools.call("check", dump, dump, "--oracle", "1rank", check=False)
    assert result.returncode == 1 and "give a plan" in result.stderr
    result = tools.call("check", minilm_plan / "none", "--oracle", "ort", check=False)
    assert result.returncode == 1 and "is not a plan folder or a dump of a phase; nothing has this name" in result.stderr


@pytest.mark.parametrize("oracle,option", [("ort", "--exact"), ("1rank", "--all-phases"), ("ort", "--no-run")])
def test_oracles_refuse_what_they_would_ignore(tools, minilm_plan, oracle, option):
    result = tools.call("check", minilm_plan, "--oracle", oracle, option, check=False)
    assert result.returncode == 1 and f"--oracle {oracle} compares what a compiled plan computes, and {option} " in result.stderr


@pytest.mark.parametrize("option", ["--rtol=nan", "--atol=nan", "--rtol=-1", "--atol=-1", "--seed=-1"])
def test_tolerances_and_seeds_are_numbers_from_0(tools, minilm_plan, option):
    result = tools.call("check", minilm_plan, option, check=False)
    assert result.returncode == 2 and option.split("=")[0] in result.stderr


def test_an_import_that_is_lost(tools, minilm_plan, tmp_path):
    """Later programs would be compared with a later one, as if it were right."""
    plan = tmp_path / "lost.plan"
    shutil.copytree(minilm_plan, plan)
    dump = plan / "ir" / "01-import.mlir"
    dump.write_text("")
    result = tools.call("check", plan, "--no-run", *INPUTS, check=False)
    assert result.returncode == 1 and "01-import.mlir' holds no program; compile the plan again" in result.stderr
    dump.unlink()
    result = tools.call("check", plan, "--no-run", *INPUTS)
    assert "has no dump of the import phase: what is right is 02-simplify" in result.stderr


def test_weights_of_another_model(tools, tmp_path):
    """They would be read at places where that model has others."""
    model, other = (zoo.save(zoo.mlp([16, size, 4], zoo.Random(0)), tmp_path / f"{size}.onnx") for size in (8, 5))
    tools.compile(model, tmp_path / "m.plan", "--dim", "batch=2")
    line = "has SHA-256 .*, the model of the program has .*; compile again, or give that model with --model"
    result = tools.call("check", tmp_path / "m.plan", "--no-run", "--model", other, check=False)
    assert result.returncode == 1 and re.search(f"'{other}' {line}", result.stderr) and "PASS" not in result.stdout
    shutil.copy(model, tmp_path / "moved.onnx")
    shutil.copy(other, model)
    result = tools.call("check", tmp_path / "m.plan", "--no-run", check=False)
    assert result.returncode == 1 and re.search(line, result.stderr) and "PASS" not in result.stdout
    assert "PASS" in tools.call("check", tmp_path / "m.plan", "--no-run", "--model", tmp_path / "moved.onnx").stdout


@pytest.mark.parametrize("oracle", ["interpreter", "1rank", "ort"])
def test_an_input_that_nothing_reads(tools, tmp_path, oracle):
    """It is not in the plan; an input without elements is not read, either."""
    model = save(tmp_path / "m.onnx", [("Relu", ["x"], ["y"])], {"x": [2, 3], "q": [5]}, {"y": [2, 3]})
    empty = save(tmp_path / "empty.onnx", [("Relu", ["x"], ["y"])], {"x": [0, 4]}, {"y": [0, 4]})
    for path, name in (model, "q"), (empty, "x"):
        tools.compile(path, tmp_path / f"{path.stem}.plan")
        printed = tools.call("check", tmp_path / f"{path.stem}.plan", "--oracle", oracle).stdout
        assert f"input '{name}' is not in the plan: nothing reads it\n" in printed
        assert "compiled, 1 rank, against" in printed and "PASS: " in printed


@pytest.mark.parametrize("exact", [False, pytest.param(True, marks=pytest.mark.full)])
def test_bisect_finds_a_planted_fault(tools, minilm_plan, tmp_path, exact):
    """One all_reduce of the split program is changed to a maximum: one command must name its node."""
    plan = tmp_path / "faulty.plan"
    shutil.copytree(minilm_plan, plan)
    program = plan / "ir" / "07-fuse.mlir"
    lines = program.read_text().split("\n")
    reduces = [i for i, line in enumerate(lines) if "dist.all_reduce" in line]
    assert len(reduces) == 13
    at = reduces[7]
    assert " sum " in lines[at]
    lines[at] = lines[at].replace(" sum ", " max ")
    program.write_text("\n".join(lines))
    options = ["--exact"] if exact else []
    result = tools.call("check", plan, "--bisect", "--no-run", *options, *INPUTS, check=False)
    assert result.returncode == 1
    found = re.findall(r"node '([^']+)' \(.*\) is the first that differs", result.stdout)
    assert len(found) == 1 + exact
    # In order: the embeddings' table, then attention and MLP of each layer.
    assert set(found) == {"/encoder/layer.3/attention/output/dense/MatMul"}


def test_fault_below_the_programs_is_told(tools, tmp_path):
    """The plan runs another kernel library than its programs describe: the programs agree, but the run does not."""
    model = tmp_path / "mlp.onnx"
    onnx.save(zoo.mlp((16, 32, 8), zoo.Random(0)), model)
    plan = tmp_path / "mlp.plan"
    tools.compile(model, plan, "--dim", "batch=4", "--mesh", "model=2")
    result = tools.call("check", plan, "--oracle", "1rank", "--bisect")
    assert "PASS" in result.stdout
    # A kernel library of another plan with the same symbols but another activation.
    other = tmp_path / "other.plan"
    onnx.save(zoo.mlp((16, 32, 8), zoo.Random(0), activation="tanh"), model.with_name("tanh.onnx"))
    tools.compile(model.with_name("tanh.onnx"), other, "--dim", "batch=4", "--mesh", "model=2")
    assert check_with_dumps(tools, other, plan, model).count(BELOW) == 1


BELOW = "there is no node to name: every program up to 07-fuse agrees; the compiled plan differs"


def check_with_dumps(tools, other, plan, model):
    """What a check prints of a plan that has the programs of another one."""
    for dump in (plan / "ir").iterdir():
        shutil.copy(dump, other / "ir" / dump.name)
    result = tools.call("check", other, "--bisect", "--model", model, check=False)
    assert result.returncode == 1 and "--atol" not in result.stdout
    return result.stdout


def test_fault_below_the_programs_of_calls_is_told(tools, tmp_path):
    """Each of the two specialisations differs, and so do the calls that share their state."""
    for operation in ("Tanh", "Sigmoid"):
        nodes = [
            ("ReduceSum", ["x"], ["sum"]),
            ("Add", ["past", "sum"], ["present"]),
            ("Add", ["x", "present"], ["h"]),
            (operation, ["h"], ["y"]),
        ]
        model = save(tmp_path / f"{operation}.onnx", nodes, {"x": ["n"], "past": [1]}, {"y": ["n"], "present": [1]})
        tools.compile(model, tmp_path / f"{operation}.plan", "--dim", "n=4,2", "--state", "past=present")
    printed = check_with_dumps(tools, tmp_path / "Sigmoid.plan", tmp_path / "Tanh.plan", tmp_path / "Tanh.onnx")
    assert "calls of one session" in printed and printed.count(BELOW) == 3


def test_a_state_of_one_specialisation_is_compared(tools, tmp_path):
    """The states of another plan's kernels differ, its outputs do not."""
    for name, operation in (("right", "Add"), ("wrong", "Sub")):
        nodes = [("ReduceSum", ["x"], ["sum"]), (operation, ["past", "sum"], ["present"]), ("Tanh", ["x"], ["y"])]
        model = save(tmp_path / f"{name}.onnx", nodes, {"x": [4], "past": [1]}, {"y": [4], "present": [1]})
        tools.compile(model, tmp_path / f"{name}.plan", "--state", "past=present")
    assert "2 calls of one session" in tools.call("check", tmp_path / "right.plan").stdout
    printed = check_with_dumps(tools, tmp_path / "wrong.plan", tmp_path / "right.plan", tmp_path / "right.onnx")
    assert "2 calls of one session" in printed and "FAIL" in printed
