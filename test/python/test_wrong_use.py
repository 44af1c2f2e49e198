"""Newcomers' mistakes, and the programs' answers: one line with the remedy, and nothing half-written."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import termios
import threading
import time

import gridloom
import numpy as np
import pytest

from gridloom import zoo


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return zoo.save(zoo.mlp([16, 32, 8], zoo.Random(0, scale=0.2)), tmp_path_factory.mktemp("errors") / "mlp.onnx")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    config = zoo.BertConfig(layers=2, hidden=64, heads=4, intermediate=128, vocabulary=50, positions=32)
    return zoo.save(zoo.bert(config, zoo.Random(0)), tmp_path_factory.mktemp("errors") / "bert.onnx")


@pytest.fixture(scope="module")
def plan(tools, model):
    tools.compile(model, model.parent / "mlp.plan", "--dim", "batch=4")
    return model.parent / "mlp.plan"


@pytest.fixture(scope="module")
def split(tools, model):
    """A plan for two ranks."""
    tools.compile(model, model.parent / "split.plan", "--dim", "batch=4", "--mesh", "data=2")
    return model.parent / "split.plan"


def refused(tools, *arguments, code: int = 1) -> str:
    result = tools.call(*arguments, check=False)
    assert result.returncode == code, result.stdout + result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


# Command lines


@pytest.mark.parametrize(
    "arguments,line",
    [
        (["compil", "m.onnx"], "there is no verb 'compil'; did you mean 'compile'? see gridloom --help"),
        (["compile"], "model is required; see gridloom compile --help"),
        (["compile", "m.onnx", "--targt", "cpu"], "no option --targt; did you mean '--target'? see gridloom compile --help"),
        (["compile", "m.onnx", "n.onnx"], "'n.onnx' is one argument too many; see gridloom compile --help"),
        (["run", "m.plan", "--inputs=x=ones"], "no option --inputs; did you mean '--input'? see gridloom run --help"),
        (["inspect", "m.plan", "sched"], "no view 'sched'; did you mean 'schedule'? see gridloom inspect --help"),
        (["inspect", "m.plan", "all"], "no view 'all'; the views are summary, collectives, "),
        (["inspect", "kernels"], "kernels is a view: write gridloom inspect PLAN kernels; see gridloom inspect --help"),
        (["bench", "all_reduce", "--iter=2"], "no option --iter; did you mean '--iters'? see gridloom bench all_reduce --help"),
        (["bench", "all_reduce", "--max-bytes=-1"], "--max-bytes: Value -1 not in range 0 to "),
        (["run", "m.plan", "--timeout", "nan"], "--timeout: Value nan is not a number; see gridloom run --help"),
        (["run", "m.plan", "--seed=-1"], "--seed: Value -1 is not a whole number from 0; see gridloom run --help"),
        (["generate", "m.plan", "--tokens=1", "--temperature=-nan"], "--temperature: Value -nan is not a number; see"),
        (["compile", "m.onnx", "--memory-limit=-1"], "--memory-limit: Value -1 not in range 1 to "),
        (["compile", "m.onnx", "--memory-limit=0"], "--memory-limit: Value 0 not in range 1 to "),
        (["compile", "m.onnx", "-o", ""], "--output: it is empty; see gridloom compile --help"),
        (["compile", "m.onnx", "--mesh", ""], "--mesh: it is empty; see gridloom compile --help"),
        (["compile", "m.onnx", "--cluster", ""], "--cluster: it is empty; see gridloom compile --help"),
        (["compile", "m.onnx", "--stop-after", ""], "--stop-after: it is empty; see gridloom compile --help"),
        (["plan", "m.onnx", "--devices", ""], "--devices: it is empty; see gridloom plan --help"),
        (["plan", "m.onnx", "--trace", ""], "--trace: it is empty; see gridloom plan --help"),
        (["run", "m.plan", "--weights", ""], "--weights: it is empty; see gridloom run --help"),
        (["run", "m.plan", "--output", ""], "--output: it is empty; see gridloom run --help"),
        (["train", "m.plan", "--data", "d", "--checkpoint-dir", ""], "--checkpoint-dir: it is empty; see gridloom train --help"),
        (["train", "m.plan", "--data", "d", "--resume", ""], "--resume: it is empty; see gridloom train --help"),
        (["run", "m.plan", "--require-signature", ""], "--require-signature: it is empty; see gridloom run --help"),
        (["check", "m.plan", "--require-signature", ""], "--require-signature: it is empty; see gridloom check --help"),
        (["sign", "m.plan", "--key", ""], "--key: it is empty; see gridloom sign --help"),
        (["inspect", "m.plan", "ir", "--phase", ""], "--phase: it is empty; see gridloom inspect --help"),
        (["checkpoint"], "error: give one of inspect, export; see gridloom checkpoint --help"),
        (["explain", "m.plan", "--collective", "x"], "--collective: Value x not in range 0 to 1073741824; see"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_slips_are_told_with_what_was_meant(tools, arguments, line):
    assert line in refused(tools, *arguments, code=2)


def test_help_is_of_the_program_that_was_called(tools):
    for verb in ("compile", "check", "doctor", "run", "generate", "bench", "inspect", "explain", "diff", "devices", "sign"):
        text = tools.call(verb, "--help").stdout
        assert f"Usage: gridloom {verb} " in text and "Examples:\n" in text and f"  gridloom {verb}" in text, text
    assert "Examples:" in tools.call("bench", "all_gather", "--help").stdout


def test_inspect_takes_its_arguments_in_both_orders(tools, plan):
    expected = tools.call("inspect", plan, "kernels").stdout
    assert tools.call("inspect", "kernels", plan).stdout == expected
    assert json.loads(tools.call("inspect", "kernels", plan, "--json").stdout)["kernels"]


def test_what_is_no_plan(tools, model, tmp_path):
    assert "mlp.onnx: is not a plan folder; make one with gridloom compile" in refused(tools, "run", model)
    assert "is not a plan folder; nothing has this name" in refused(tools, "inspect", tmp_path / "m.plan")
    assert "is not a plan folder: it has no manifest.json" in refused(tools, "run", tmp_path)
    assert "no plan or collective 'allreduce'; did you mean 'all_reduce'?" in refused(tools, "bench", "allreduce")
    assert "-b 0" in refused(tools, "bench", "all_reduce", "-b", "0")


# Models


def test_open_sizes_are_asked_for_in_one_line(tools, bert, tmp_path):
    line = refused(tools, "compile", bert, "-o", tmp_path / "m.plan")
    assert line.endswith("give batch and sequence a size: --dim batch=SIZE --dim sequence=SIZE")
    with pytest.raises(gridloom.CompileError, match=r"--dim sequence=SIZE \(in Python dims=\{'batch': SIZE, 'sequence': SIZE\}\)$"):
        gridloom.compile(bert, tmp_path / "m.plan")


def test_the_doctor_tells_the_command_that_compiles(tools, bert, tmp_path, monkeypatch):
    printed = tools.call("doctor", bert).stdout
    assert "input_ids int64 [batch, sequence]" in printed and "sequence=16 works, and so do others" in printed
    (command,) = [line.split("can be compiled: ")[1] for line in printed.splitlines() if "can be compiled" in line]
    monkeypatch.chdir(tmp_path)
    tools.call(*command.split()[1:], "-o", tmp_path / "m.plan")
    printed = tools.call("doctor", bert, "--dim", "sequence=8").stdout
    assert "batch=1 works" in printed and "sequence=16" not in printed and printed.endswith("--dim sequence=8 --dim batch=1\n")


def test_the_doctor_tells_what_cannot_be_compiled(tools, tmp_path):
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Bernoulli", ["a"], ["y"], name="u")]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    path = zoo.save(helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:])), tmp_path / "odd.onnx")
    result = tools.call("doctor", path, check=False)
    assert result.returncode == 1 and "x float [n]" in result.stdout
    assert "'u'" in result.stderr and "Bernoulli" in result.stderr


def test_the_doctor_tells_of_sizes_only_what_they_change(tools, tmp_path):
    from onnx import TensorProto, helper

    def refuse(name, type, shape):
        values = [helper.make_tensor_value_info("x", type, shape), helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="r")], "g", values[:1], values[1:])
        result = tools.call("doctor", zoo.save(helper.make_model(graph), tmp_path / name), check=False)
        assert result.returncode == 1
        return result

    shapeless = refuse("shapeless.onnx", TensorProto.FLOAT, None)
    assert "1 node, " in shapeless.stdout and "input  x float without a shape\n" in shapeless.stdout
    texts = refuse("texts.onnx", TensorProto.STRING, ["n"])
    assert texts.stderr == "error: input 'x' has element type STRING, which is not supported\n"
    assert "--dim" not in texts.stdout


def test_the_doctor_reads_options_first(tools, bert):
    result = tools.call("doctor", bert, "--mesh", "foo", check=False)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr == "error: cannot read 'foo' in --mesh; write name=size, e.g. data=2,model=2\n"


def test_errors_of_the_graph_name_no_node(tools, model, tmp_path):
    line = refused(tools, "compile", model, "--dim", "batch=4", "--state", "a=b", "-o", tmp_path / "m.plan")
    assert line.startswith("error: --state a=b: the model has no input 'a'")
    for mesh in ("data=2,", ",data=2"):
        line = refused(tools, "compile", model, "--dim", "batch=4", "--mesh", mesh, "-o", tmp_path / "m.plan")
        assert line.startswith("error: cannot read '' in --mesh")


def test_declared_shapes_are_compared(tools, tmp_path):
    from onnx import TensorProto, helper

    def compile(declared):
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", ["b", 4]), ("y", declared))]
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="r")], "g", values[:1], values[1:])
        path = zoo.save(helper.make_model(graph), tmp_path / "m.onnx")
        return tools.compile(path, tmp_path / "m.plan", "--dim", "b=2").stderr

    assert compile(["b", 5]) == "warning: output 'y' is declared as [b, 5], but computed as [2, 4]\n"
    assert compile(["b", 4]) == compile(["n", None]) == compile(None) == ""


def test_a_chunk_needs_devices(tools, model, tmp_path):
    result = tools.compile(model, tmp_path / "m.plan", "--dim", "batch=4", "--chunk-matmul", "4")
    assert result.stderr == "warning: --chunk-matmul 4 does nothing: the plan is for one device\n"


def with_cache(path, total: str):
    """A model that appends to a cache, as exporters write it: `past` and `seq` rows give `total` rows."""
    from onnx import TensorProto, helper

    value = lambda name, size: helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, 4])  # noqa: E731
    nodes = [helper.make_node("Concat", ["p", "x"], ["y"], axis=0), helper.make_node("Add", ["y", "m"], ["o"])]
    inputs = [value("m", total), value("p", "past"), value("x", "seq")]
    return zoo.save(helper.make_model(helper.make_graph(nodes, "g", inputs, [value("o", "all")])), path)


def test_the_doctor_tries_sizes_that_fit(tools, tmp_path):
    cache = with_cache(tmp_path / "a.onnx", "past + seq")
    assert tools.call("doctor", cache).stdout.endswith(" --dim 'past + seq=32' --dim past=16 --dim seq=16\n")
    printed = tools.call("doctor", cache, "--dim", "past=3").stdout
    assert printed.endswith(" --dim past=3 --dim 'past + seq=19' --dim seq=16\n")
    assert refused(tools, "compile", cache).endswith(" --dim 'past + seq=SIZE' --dim past=SIZE --dim seq=SIZE")
    assert tools.call("compile", cache, "-o", tmp_path / "a.plan", "--dim", "past=3", "--dim", "seq=2,4").returncode == 0
    dims = [entry.dims for entry in gridloom.Plan.read(tmp_path / "a.plan").entries[0].specialisations]
    assert [sizes["past + seq"] for sizes in dims] == [5, 7]  # a sum follows its parts
    cache = with_cache(tmp_path / "b.onnx", "total")
    printed = tools.call("doctor", cache).stdout
    assert "past=16, seq=16, total=32 work; they change together: total = past + seq\n" in printed
    assert printed.endswith(" --dim total=32 --dim past=16 --dim seq=16\n")
    assert "total=32" in tools.call("doctor", cache, "--dim", "past=20", "--dim", "seq=12").stdout
    sizes = ["--dim", "total=3", "--dim", "past=1", "--dim", "seq=1"]
    assert "do not broadcast" in refused(tools, "doctor", cache, *sizes)  # nothing was guessed


def graph(path, nodes, inputs, outputs, constants=()):
    """A model of float tensors: `inputs` and `outputs` map names to shapes, `constants` names to lists of numbers."""
    from onnx import TensorProto, helper, numpy_helper

    value = lambda item: helper.make_tensor_value_info(item[0], TensorProto.FLOAT, item[1])  # noqa: E731
    weights = [numpy_helper.from_array(np.array(numbers), name) for name, numbers in dict(constants).items()]
    made = helper.make_graph(nodes, "g", list(map(value, inputs.items())), list(map(value, outputs.items())), weights)
    return zoo.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_the_doctor_finds_pictures_that_divide(tools, tmp_path):
    """A model that halves four times and joins with earlier values, with a window of 40: images of 16 are too small."""
    from onnx import helper

    halve = lambda x, y: helper.make_node("AveragePool", [x], [y], kernel_shape=[2, 2], strides=[2, 2])  # noqa: E731
    nodes = [halve("x", "a"), halve("a", "b"), halve("b", "c"), halve("c", "d")]
    nodes += [helper.make_node("Resize", ["d", "", "scales"], ["e"], mode="nearest"), helper.make_node("Add", ["x", "e"], ["f"])]
    nodes.append(helper.make_node("AveragePool", ["f"], ["y"], kernel_shape=[40, 40]))
    shape = ["batch", 3, "h", "w"]
    model = graph(tmp_path / "u.onnx", nodes, {"x": shape}, {"y": ["batch", 3, "i", "j"]}, {"scales": np.float32([1, 1, 16, 16])})
    printed = tools.call("doctor", model).stdout
    assert "h=224 works, and so do others" in printed and printed.endswith("--dim batch=1 --dim h=224 --dim w=224\n")


def test_the_doctor_finds_what_the_exporter_has_fixed(tools, tmp_path):
    from onnx import helper

    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    model = graph(tmp_path / "r.onnx", nodes, {"x": ["batch", "seq", 4]}, {"y": ["b", 10, 4]}, {"shape": [-1, 10, 4]})
    printed = tools.call("doctor", model).stdout  # 10 is the exported size
    assert "seq=10 works and 11, 18, 26, 74 do not: the exporter fixed this size (Reshape 'Reshape_0': " in printed
    assert "batch=1 works, and so do others" in printed and printed.endswith("--dim batch=1 --dim seq=10\n")


def test_the_doctor_finds_dimensions_that_go_together(tools, tmp_path):
    """Two names for one size: addends must agree."""
    from onnx import helper

    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"])]
    model = graph(tmp_path / "m.onnx", nodes, {"a": ["batch", 3, "s1"], "b": ["s10", "s2", 5]}, {"y": ["n", 3, 5]})
    printed = tools.call("doctor", model).stdout
    assert "s1=16, s2=16 work; they change together: s1 = s2\n" in printed


def test_the_doctor_knows_windows_on_recordings(tools, tmp_path):
    from onnx import helper

    nodes = [helper.make_node("Unsqueeze", ["x", "one"], ["u"]), helper.make_node("AveragePool", ["u"], ["y"], kernel_shape=[400])]
    model = graph(tmp_path / "w.onnx", nodes, {"x": ["batch", "samples"]}, {"y": ["batch", 1, "n"]}, {"one": [1]})
    assert tools.call("doctor", model).stdout.endswith("--dim batch=1 --dim samples=16000\n")


def test_the_doctor_takes_devices_and_states(tools, tmp_path, monkeypatch):
    """It suggests the state, and its command with a state and a mesh compiles."""
    sizes = {"layers": 1, "hidden": 32, "heads": 4, "vocabulary": 29, "positions": 32}
    for form in ("static", "concat"):
        zoo.save(zoo.gpt2(zoo.Gpt2Config(cache=form, **sizes), zoo.Random(1)), tmp_path / f"{form}.onnx")
    printed = tools.call("doctor", tmp_path / "static.onnx").stdout
    assert "past_*=present_*: 2 inputs are outputs of the previous call; to keep them in the session: --state 'past_*" in printed
    assert "that grow; to keep them in the session with --state, export" in tools.call("doctor", tmp_path / "concat.onnx").stdout
    options = ["--state", "past_*=present_*", "--mesh", "data=2,model=2"]
    printed = tools.call("doctor", tmp_path / "static.onnx", *options).stdout
    command = shlex.split(printed.split("can be compiled: ")[1])
    assert command[3:7] == ["--mesh", "data=2,model=2", "--state", "past_*=present_*"] and "batch=4" in command
    monkeypatch.chdir(tmp_path)
    tools.call(*command[1:])
    assert gridloom.Plan.read("static.plan").ranks == 4
    line = refused(tools, "doctor", tmp_path / "static.onnx", "--mesh", "model=3", "--strategy", "tp", code=2)
    assert "no option --strategy" in line


def test_commands_that_are_told_can_be_typed(tools, tmp_path, monkeypatch):
    """For any names in them: one folder has a quote and a space."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "it's mine"
    folder.mkdir()
    model = zoo.save(zoo.mlp([4, 4], zoo.Random(0)), folder / "a model.onnx")
    command = shlex.split(tools.call("doctor", model).stdout.split("can be compiled: ")[1])
    assert command[:3] == ["gridloom", "compile", str(model)]
    limits = ["--cpu-arch", "x86-64-v2", "--memory-limit", "1MiB"]
    printed = tools.call(*command[1:], "-o", "it's mine/a plan", "--dump-ir", folder, *limits).stdout
    (command,) = [shlex.split(line)[2:] for line in printed.splitlines() if line.startswith("  run it ")]
    tools.call(*command[1:], "--input", "x=ones")
    monkeypatch.chdir(folder)
    (first,) = [next(dump.open()) for dump in folder.glob("02-*.mlir")]
    command = shlex.split(first.removeprefix("// "))
    assert command[command.index("--memory-limit") + 1] == "1048576"
    tools.call(*command[1:])
    manifest = json.loads((folder / "a plan" / "manifest.json").read_text())
    assert "x86-64-v2" in json.dumps(manifest["target"])


def test_no_plan_replaces_its_model_or_other_files(tools, model, tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    own = shutil.copy(model, folder / "mlp.onnx")
    refusal = "exists and is not a plan; choose another --output"
    assert refusal in refused(tools, "compile", own, "--dim", "batch=2", "-o", folder)
    line = refused(tools, "compile", own, "--dim", "batch=2", "-o", folder, "--force")
    assert f"'{folder}' holds the model '{own}', which a plan there would replace" in line
    (folder / "manifest.json").write_text('{"name": "a page"}')
    assert refusal in refused(tools, "compile", model, "--dim", "batch=2", "-o", folder)
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "mlp.onnx"]


def test_a_folder_whose_name_a_shell_has_completed(tools, model, tmp_path):
    for name in ("m.plan/", "m.plan//", "m.plan/."):
        compiled = tools.compile(model, f"{tmp_path}/{name}", "--dim", "batch=4")
        assert f"run it          gridloom run {tmp_path}/m.plan\n" in compiled.stdout
        assert [path.name for path in tmp_path.iterdir()] == ["m.plan"]


# Options that have no effect, or are impossible


def test_gpus_that_no_code_is_made_for(tools, model, tmp_path):
    compiled = tools.compile(model, tmp_path / "m.plan", "--dim", "batch=4", "--devices", "2xH100-80GB")
    assert "warning: --devices 2xH100-80GB estimates for H100-80GB but the plan is for --target cpu" in compiled.stderr
    assert "--target cuda:sm_90" in compiled.stderr and "estimate        main on H100-80GB" in compiled.stdout
    for devices, target, why in [("A100-80GB", 90, "does not run on them"), ("H100-80GB", 80, "is for an older generation")]:
        options = ["--devices", f"2x{devices}", "--target", f"cuda:sm_{target}", "--stop-after", "shard", "--dump-ir", tmp_path]
        warned = tools.compile(model, tmp_path / "m.plan", "--dim", "batch=4", *options).stderr
        assert f"--target cuda:sm_{target} {why}; add --target cuda:sm_{170 - target}\n" in warned
    for options in (["--devices", "2"], ["--devices", "2xH100-80GB", "--target", "cuda:sm_90"]):
        assert not tools.compile(model, tmp_path / "m.plan", "--dim", "batch=4", *options).stderr


def test_microbatches_without_a_pipeline(tools, model, tmp_path):
    compiled = tools.compile(model, tmp_path / "m.plan", "--dim", "batch=4", "--mesh", "data=2", "--microbatches", "2")
    assert "--microbatches 2 does nothing: the plan has no pipeline" in compiled.stderr
    compiled = tools.compile(model, tmp_path / "m.plan", "--dim", "batch=4", "--mesh", "pipe=2", "--microbatches", "2")
    assert not compiled.stderr


def test_too_little_memory(tools, model, tmp_path):
    options = ["compile", model, "-o", tmp_path / "m.plan", "--dim", "batch=4", "--memory-limit"]
    line = refused(tools, *options, "1KiB", "--mesh", "data=2")
    assert "data=2" in line and "the limit is 1.0 KiB: weights " in line
    tools.call(*options, "1MiB", "--mesh", "data=2")
    assert json.loads(tools.call("explain", tmp_path / "m.plan", "--json").stdout)["limit_bytes"] == 1 << 20


def test_too_many_devices(tools, model, tmp_path):
    options = ["compile", model, "-o", tmp_path / "m.plan", "--dim", "batch=4"]
    assert "axis 'data' of 10000000 devices; the most are 1048576" in refused(tools, *options, "--mesh", "data=10000000")
    assert "more than the planner tries, 4096; give a --mesh" in refused(tools, *options, "--devices", "5000")
    line = refused(tools, *options, "--mesh", "data=2048,model=2048")
    assert "--mesh data=2048,model=2048 has 4194304 devices or more; the most are 1048576" in line


# Meshes and shardings


def test_an_axis_with_a_reserved_name(tools, model, tmp_path):
    line = refused(tools, "compile", model, "-o", tmp_path / "m.plan", "--dim", "batch=4", "--mesh", "data=2,micro=2")
    assert line == "error: --mesh names axis 'micro', which is reserved for micro-batches; give the axis another name"


@pytest.mark.parametrize("mesh", ["pipe=2", "data=2,stage=2"])
def test_a_split_over_the_pipeline(tools, model, tmp_path, mesh):
    axes = [part.split("=")[0] for part in mesh.split(",")]
    shard = f"x=[{{{','.join(axes)}}},{{}}]"
    options = ["compile", model, "-o", tmp_path / "m.plan", "--dim", "batch=4", "--mesh", mesh]
    line = refused(tools, *options, "--shard", shard)
    assert f"--shard 'x' names axis '{axes[-1]}', along which devices run different pipeline stages" in line
    # An axis may have a name that the strategy uses for another purpose.
    tools.call(*options, "--strategy", "dp+tp", "--shard", shard)
    assert "PASS" in tools.call("check", tmp_path / "m.plan", "--exact").stdout


def test_two_shardings_of_one_value(tools, model, tmp_path):
    options = ["compile", model, "-o", tmp_path / "m.plan", "--dim", "batch=4", "--mesh", "data=2"]
    line = refused(tools, *options, "--shard", "x=[{data},{}]", "--shard", "x=[{},{data}]")
    assert line == "error: --shard 'x=[{},{data}]' contradicts --shard 'x=[{data},{}]'; keep one of them"
    tools.call(*options, "--shard", "x=[{data},{}]", "--shard", "x=[ {data}, {} ]")


def test_more_axes_than_a_mask_has_bits(tools, model, tmp_path):
    """Axes of size one do not count, however many there are."""
    mesh = ",".join(["a=2", *(f"one{i}=1" for i in range(40)), "z=2"])
    tools.compile(model, tmp_path / "m.plan", "--dim", "batch=4", "--mesh", mesh, "--strategy", "random:3")
    assert "PASS" in tools.call("check", tmp_path / "m.plan", "--exact").stdout
    # Their uses are not all combined: two axes have four combinations, and there is the search.
    tools.compile(model, tmp_path / "m.plan", "--dim", "batch=4", "--mesh", mesh)
    names = [row["strategy"] for row in json.loads((tmp_path / "m.plan" / "report.json").read_text())["candidates"]]
    assert len(names) == 5 and sum(name.endswith(": search") for name in names) == 1


def test_axes_of_any_use_are_tried_in_order_when_there_are_many(tools, model, tmp_path):
    mesh = ",".join(f"a{i}=2" for i in range(7))
    compiled = tools.compile(
        model, tmp_path / "m.plan", "--dim", "batch=128", "--mesh", mesh, "--remarks", "--stop-after", "shard"
    )
    assert "may be used in more than 64 ways; of these 8 are tried, where the first axes split the batch" in compiled.stderr


# Runs


def test_inputs_that_do_not_fit(tools, plan, tmp_path):
    for name, array in [("f64", np.zeros((4, 16))), ("narrow", np.zeros((4, 15), np.float32))]:
        np.save(tmp_path / f"{name}.npy", array)
    run = lambda value: refused(tools, "run", plan, "--input", f"x={value}")  # noqa: E731
    assert "holds f64 [4, 16], but the plan takes x f32 [4, 16]; convert it with numpy's astype" in run(tmp_path / "f64.npy")
    assert "[4, 15], but the plan takes x f32 [4, 16]; compile the model for this shape" in run(tmp_path / "narrow.npy")
    assert "there is no file 'randm'; the value of an input is FILE.npy, a number, ones, " in run("randm")
    assert "is not a file" in run(tmp_path)


def test_a_model_that_was_moved(tools, tmp_path):
    model = zoo.save(zoo.mlp([4, 4], zoo.Random(0)), tmp_path / "m.onnx")
    tools.compile(model, tmp_path / "m.plan", "--dim", "batch=4")
    model.rename(tmp_path / "elsewhere.onnx")
    line = refused(tools, "run", tmp_path / "m.plan", "--input", "x=ones")
    assert f"{model}: the model whose weights the plan uses is not there" in line and "--weights" in line
    tools.call("run", tmp_path / "m.plan", "--input", "x=ones", "--weights", tmp_path / "elsewhere.onnx")


def test_a_trace_that_cannot_be_written_stops_no_long_run(tools, plan, tmp_path):
    result = tools.call("run", plan, "--input", "x=ones", "--trace", tmp_path / "none" / "t.json", check=False)
    assert result.returncode == 1 and not result.stdout and "there is no folder" in result.stderr
    assert "is a folder" in refused(tools, "run", plan, "--input", "x=ones", "--trace", tmp_path)


def test_a_port_that_is_none(tools, plan):
    environment = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "99999"}
    result = tools.call("run", plan, "--input", "x=ones", env=environment, check=False)
    assert result.returncode == 1 and "MASTER_PORT=99999 is not from 1 to 65535" in result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full to write to")
@pytest.mark.parametrize("arguments", [["inspect"], ["run", "--input", "x=ones"], ["bench", "--iters", "1"]], ids=lambda a: a[0])
def test_an_output_that_is_full(tools, plan, arguments):
    with open("/dev/full", "w") as full:
        command = [tools.path("gridloom"), arguments[0], plan, *arguments[1:]]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1 and "standard output cannot be written: No space left" in result.stderr


PRINTING = [
    ["compile", "MODEL", "--dim", "batch=4", "--stop-after", "import"],
    ["inspect", "MODEL"],
    ["doctor", "MODEL"],
    ["check", "PLAN"],
    ["run", "PLAN", "--input", "x=ones"],
    ["bench", "all_reduce", "-n", "2", "-b", "4", "-e", "4", "--iters", "1"],
    ["run", "--help"],
]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full to write to")
@pytest.mark.parametrize("to,reason", [("/dev/full", "No space left on device"), ("&-", "Bad file descriptor")])
@pytest.mark.parametrize("arguments", PRINTING, ids=lambda a: f"{a[0]} {a[1]}")
def test_what_cannot_be_printed_is_told(tools, model, split, arguments, to, reason):
    """Also for ranks, whose shared memory must not become standard output."""
    command = [{"MODEL": model, "PLAN": split}.get(argument, argument) for argument in arguments]
    shell = ["sh", "-c", f'exec "$0" "$@" >{to}', tools.path("gridloom"), *command]
    result = subprocess.run(shell, stderr=subprocess.PIPE, text=True, timeout=60)
    assert result.returncode == 1
    assert result.stderr == f"error: standard output cannot be written: {reason}\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full to write to")
def test_a_plan_is_complete_without_its_summary(tools, model, tmp_path):
    command = [tools.path("gridloom"), "compile", model, "-o", tmp_path / "m.plan", "--dim", "batch=4"]
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 0 and result.stderr.startswith("warning: the plan is complete, but standard output")
    tools.call("run", tmp_path / "m.plan", "--input", "x=ones")


def test_a_reader_that_has_seen_enough(tools, split):
    read, write = os.pipe()
    os.close(read)
    command = [tools.path("gridloom"), "run", split, "--input", "x=ones"]
    result = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert result.returncode == 128 + signal.SIGPIPE and not result.stderr


def test_an_interrupted_compile_leaves_nothing(tools, bert, tmp_path):
    """At any moment: before, while and after the plan is written."""
    sizes = ["--dim", "batch=1,2,4,8", "--dim", "sequence=4,8,16"]
    for wait in (0.05, 0.3, 0.6, 1.2):
        command = [tools.path("gridloom"), "compile", bert, "-q", "-o", tmp_path / "m.plan", *sizes]
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode in (0, -signal.SIGINT)
        assert [path.name for path in tmp_path.iterdir()] in ([], ["m.plan"])
        if (tmp_path / "m.plan").exists():
            tools.call("inspect", tmp_path / "m.plan")


# Terminals


def on_a_terminal(tools, columns: int, *arguments) -> list[str]:
    """What a command shows on a terminal with this many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = [tools.path("gridloom"), *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE)

    # Linux may drop what was written just before a terminal's last writer closes it, so this process stays a writer.
    end = b"<end of the output>"

    def mark_the_end() -> None:
        process.wait()
        os.write(theirs, end)

    marker = threading.Thread(target=mark_the_end)
    marker.start()
    shown = b""
    while not shown.endswith(end):
        shown += os.read(ours, 1 << 16)
    marker.join()
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0, process.stderr.read()
    process.stderr.close()
    return shown.removesuffix(end).decode().splitlines()


def test_tables_fit_the_terminal(tools, bert, tmp_path):
    sizes = ["--dim", "batch=2", "--dim", "sequence=8"]
    tools.compile(bert, tmp_path / "b.plan", *sizes, "--mesh", "model=2", "--target", "cuda:sm_90")
    for view in ("schedule", "kernels", "weights", "collectives"):
        wide = tools.call("inspect", tmp_path / "b.plan", view).stdout.splitlines()
        assert max(map(len, wide)) > 110
        lines = on_a_terminal(tools, 110, "inspect", tmp_path / "b.plan", view)
        assert max(map(len, lines)) <= 110, max(lines, key=len)
        assert "--wide" in lines[-1]
        assert on_a_terminal(tools, 110, "inspect", tmp_path / "b.plan", view, "--wide") == wide
    schedule = "\n".join(on_a_terminal(tools, 110, "inspect", tmp_path / "b.plan", "schedule"))
    assert "in every row: stage 0, entry main, dims batch=2,sequence=8" in schedule


def test_costly_kernels_come_first(tools, bert, tmp_path):
    tools.compile(bert, tmp_path / "b.plan", "--dim", "batch=2", "--dim", "sequence=8", "--target", "cuda:sm_90")
    shown = json.loads(tools.call("inspect", tmp_path / "b.plan", "kernels", "--json").stdout)
    moved = [kernel["bytes"] * kernel["launches"] for kernel in shown["kernels"]]
    worked = [call["flops"] * call["calls"] for call in shown["library_calls"]]
    assert moved == sorted(moved, reverse=True) and moved[0] > moved[-1]
    assert worked == sorted(worked, reverse=True) and worked[0] > worked[-1]


# Python


def test_python_compiles_for_one_device_and_for_chosen_ones(model, tmp_path):
    assert gridloom.compile(model, tmp_path / "a.plan", dims={"batch": 4}).ranks == 1
    assert gridloom.compile(model, tmp_path / "b.plan", dims={"batch": 4}, devices=2).ranks == 2
    with pytest.raises(gridloom.CompileError, match="needs .* the limit is 1.0 KiB"):
        gridloom.compile(model, tmp_path / "c.plan", mesh="data=2", dims={"batch": 4}, memory_limit="1KiB")
    with pytest.raises(TypeError, match="dims is a mapping, as dims={'batch': 8}, not 'batch=4'"):
        gridloom.compile(model, dims="batch=4")


def test_python_inputs_are_a_mapping(plan):
    with gridloom.load(plan) as session, pytest.raises(TypeError, match="mapping of names to arrays, not ndarray"):
        session.run(np.ones((4, 16), np.float32))
    with pytest.raises(gridloom.Error, match="unknown transport 'carrier'; use local, nccl or loopback"):
        gridloom.load(plan, transport="carrier").run({"x": np.ones((4, 16), np.float32)})


def test_python_autotunes(tools, fake_gpus, model, tmp_path):
    fake_gpus(1, 1)
    plan = gridloom.compile(model, tmp_path / "m.plan", dims={"batch": 64}, target="cuda:sm_90")
    with gridloom.load(plan, autotune=True) as session:
        session.run({"x": np.ones((64, 16), np.float32)})
    assert list((plan.path / "autotune").glob("*.json"))


def test_python_stops_after_a_phase_and_writes_shardings(model, tmp_path):
    options = {"mesh": "model=2", "dims": {"batch": 4}}
    text = gridloom.compile(model, tmp_path / "m.plan", stop_after="shard", **options)
    assert "dist.mesh" in text and not (tmp_path / "m.plan").exists()
    assert gridloom.compile(model, stop_after="shard", dump_ir=tmp_path / "dumps", **options) == ""
    assert (tmp_path / "dumps" / "03-shard.mlir").exists()
    plan = gridloom.compile(model, tmp_path / "m.plan", emit_onnx=model.parent / "annotated.onnx", **options)
    assert (model.parent / "annotated.onnx").exists()
    assert gridloom.Plan.read(tmp_path / "m.plan").mesh == plan.mesh == {"model": 2}


# Dumps


def test_dumps_that_say_what_is_not_so(tools, tmp_path, monkeypatch):
    """A misspelt axis, and a model that is missing where the dump was moved to."""
    monkeypatch.chdir(tmp_path)
    zoo.save(zoo.mlp([16, 32, 8], zoo.Random(0, scale=0.2)), "mlp.onnx")
    tools.compile("mlp.onnx", "m.plan", "--dim", "batch=4", "--mesh", "model=2", "--dump-ir", "dumps")
    for phase, after in (("shard", "partition"), ("communicate", "layout"), ("schedule", "allocate")):
        (dump,) = tmp_path.glob(f"dumps/*-{phase}.mlir")
        text = dump.read_text()
        lines = text.splitlines()
        at = max(i for i, line in enumerate(lines) if '"model"' in line and "dist.mesh" not in line)
        lines[at] = lines[at].replace('"model"', '"modl"', 1)
        dump.write_text("\n".join(lines))
        line = refused(tools, "compile", "--start-from", after, dump, "-o", "edited.plan")
        assert "axis 'modl' is not in the mesh (axes: model)" in line or 'unknown mesh axis "modl"' in line
        dump.write_text(text)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (dump,) = tmp_path.glob("dumps/*-shard.mlir")
    line = refused(tools, "compile", "--start-from", "partition", dump, "-o", "m.plan")
    assert "the weights are in 'mlp.onnx', which does not exist; continue in the folder" in line
    monkeypatch.chdir(tmp_path)
    tools.call("compile", "--start-from", "partition", dump, "-o", "again.plan")


def test_dumps_that_would_leave_phases_out(tools, tmp_path, monkeypatch):
    """Every dump with every phase: it starts from the next one or an earlier one, also without the record of its phase."""
    monkeypatch.chdir(tmp_path)
    zoo.save(zoo.mlp([16, 32, 8], zoo.Random(0, scale=0.2)), "mlp.onnx")
    tools.compile("mlp.onnx", "m.plan", "--dim", "batch=4", "--mesh", "data=2", "--dump-ir", "dumps")
    dumps = sorted((tmp_path / "dumps").iterdir())
    phases = [dump.stem[3:] for dump in dumps] + ["emit"]
    for i, dump in enumerate(dumps):
        for phase in phases[i + 2 :]:
            line = refused(tools, "compile", "--start-from", phase, dump, "-o", "n.plan")
            assert line == f"error: '{dump}' is the dump of phase {phases[i]}; continue with --start-from {phases[i + 1]}"
    for name, first in [("02-simplify", "shard"), ("03-shard", "partition"), ("06-layout", "fuse"), ("08-schedule", "allocate")]:
        text, count = re.subn(r', loom\.phase = "\w+"', "", (tmp_path / "dumps" / f"{name}.mlir").read_text())
        assert count == 1
        (tmp_path / "hand.mlir").write_text(text)
        for phase in phases[phases.index(first) + 1 :]:
            line = refused(tools, "compile", "--start-from", phase, "hand.mlir", "-o", "n.plan")
            assert line == f"error: 'hand.mlir' has not been through phase {first}; continue with --start-from {first}"
        tools.compile("hand.mlir", f"{first}.plan", "--start-from", first, *(["--mesh", "data=2"] if first == "shard" else []))
    assert not (tmp_path / "n.plan").exists()


def test_a_damaged_dump_is_refused_with_its_line(tools, split, tmp_path):
    lines = (split / "ir" / "03-shard.mlir").read_text().splitlines()
    (tmp_path / "half.mlir").write_text("\n".join(lines[: len(lines) // 2]))
    line = refused(tools, "compile", "--start-from", "partition", tmp_path / "half.mlir", "-o", tmp_path / "m.plan")
    assert re.match(r"error: .*half\.mlir:\d+: ", line)


def test_a_plan_that_does_not_load_replaces_nothing(tools, tmp_path, monkeypatch):
    """A dump with an arena that is too small: the loader refuses the plan, and the old plan stays."""
    monkeypatch.chdir(tmp_path)
    zoo.save(zoo.mlp([16, 32, 8], zoo.Random(0, scale=0.2)), "mlp.onnx")
    tools.compile("mlp.onnx", "m.plan", "--dim", "batch=4", "--dump-ir", "dumps")
    before = (tmp_path / "m.plan" / "manifest.json").read_bytes()
    (dump,) = tmp_path.glob("dumps/*-allocate.mlir")
    text, count = re.subn(r"arena_bytes = \d+", "arena_bytes = 64", dump.read_text())
    assert count == 1
    dump.write_text(text)
    line = refused(tools, "compile", "--start-from", "emit", dump, "-o", "m.plan")
    assert line.startswith("error: the plan does not load: m.plan/stage0.pb: "), line
    assert (tmp_path / "m.plan" / "manifest.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dumps", "m.plan", "mlp.onnx"]


def test_a_dump_for_another_target(tools, bert, tmp_path):
    options = ["--dim", "batch=2", "--dim", "sequence=4", "--target", "cuda:sm_90", "--precision", "bf16"]
    tools.compile(bert, tmp_path / "m.plan", *options)
    (dump,) = tmp_path.glob("m.plan/ir/*-allocate.mlir")
    line = refused(tools, "compile", "--start-from", "emit", dump, "-o", tmp_path / "cpu.plan")
    assert "calls a library of convolutions and attention, which --target cpu does not have" in line
    assert not (tmp_path / "cpu.plan").exists()


def test_values_of_dumps_have_readable_names(tools, tmp_path):
    config = zoo.BertConfig(layers=1, hidden=32, heads=2, intermediate=64, vocabulary=50, positions=32)
    model = zoo.save(zoo.bert(config, zoo.Random(0)), tmp_path / "bert.onnx")
    options = ["--dim", "batch=2", "--dim", "sequence=8", "--mesh", "model=2"]
    tools.compile(model, tmp_path / "m.plan", *options, "--dump-ir", tmp_path / "dumps")
    for dump in sorted((tmp_path / "dumps").iterdir()):
        assert "2F" not in "".join(dump.read_text().split('"')[::2]), dump.name
    text = (tmp_path / "dumps" / "02-simplify.mlir").read_text()
    assert "%encoder.layer.0.attention.self.query.MatMul = " in text
    again = tools.compile(tmp_path / "dumps" / "03-shard.mlir", tmp_path / "again.plan", "--start-from", "partition")
    assert not again.stderr
    assert "equal" in tools.call("diff", tmp_path / "m.plan", tmp_path / "again.plan").stdout


# Views


def test_what_views_tell_once_and_by_number(tools, bert, tmp_path):
    sizes = ["--dim", "batch=2", "--dim", "sequence=4,8"]
    for mesh in ("model=2", "model=4"):
        tools.compile(bert, tmp_path / f"{mesh}.plan", *sizes, "--mesh", mesh)
    plan = tmp_path / "model=2.plan"
    printed = json.loads(tools.call("explain", plan, "--json").stdout)["remarks"]
    assert printed and len({row["remark"] for row in printed}) == len(printed)
    count = len(json.loads((plan / "report.json").read_text())["collectives"])
    line = refused(tools, "explain", plan, "--collective", 10000)
    assert f"there is no collective 10000: collectives are numbered 0 to {count - 1}" in line
    shown = tools.call("diff", plan, tmp_path / "model=4.plan").stdout
    assert re.search(r"main batch=2,sequence=4 +step +[\d.]+ +[\d.]+ +[+-][\d.]+\n", shown), shown


def test_bytes_of_collectives_are_in_the_trace(tools, bert, tmp_path):
    tools.compile(bert, tmp_path / "b.plan", "--dim", "batch=2", "--dim", "sequence=8", "--mesh", "model=2")
    inputs = [f"--input={name}=ones" for name in ("input_ids", "attention_mask", "token_type_ids")]
    tools.call("run", tmp_path / "b.plan", *inputs, "--trace", tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    reduced = [event["args"]["bytes"] for event in events if event["name"].startswith("all_reduce")]
    assert 2 * 8 * 64 * 4 in reduced  # the hidden states of two sentences
    assert all("bytes" not in event["args"] for event in events if event.get("cat") == "compute")


def test_weights_of_16_bits_are_named(tools, bert, tmp_path):
    options = ["--dim", "batch=2", "--dim", "sequence=8", "--precision", "bf16"]
    tools.compile(bert, tmp_path / "b.plan", *options, "--target", "cuda:sm_90")
    shown = tools.call("inspect", tmp_path / "b.plan", "weights", "--json").stdout
    names = {weight["name"] for weight in json.loads(shown)["weights"]}
    assert not [name for name in names if name.endswith("weight_1")]
    assert any(name.endswith(".weight.bf16") for name in names)


def test_a_misspelt_state_lists_the_inputs(tools, bert, tmp_path):
    options = ["--dim", "batch=2", "--dim", "sequence=8", "--state", "pst_*=present_*"]
    line = refused(tools, "compile", bert, "-o", tmp_path / "m.plan", *options)
    assert line.endswith("the model has no input 'pst_*'; its inputs are input_ids, attention_mask, token_type_ids")


def test_devices_find_a_way_past_the_key_value_heads(tools, tmp_path):
    """16 devices for 16 query heads and 8 key heads: two axes split both, one axis leaves attention unsplit."""
    sizes = {"layers": 1, "hidden": 256, "heads": 16, "kv_heads": 8, "intermediate": 512, "vocabulary": 64, "positions": 512}
    model = zoo.save(zoo.llama(zoo.LlamaConfig(cache="static", **sizes), zoo.Random(0)), tmp_path / "m.onnx")
    options = ["--dim", "batch=1", "--dim", "sequence=1", "--state", "past_*=present_*"]
    tools.call("compile", model, "-o", tmp_path / "m.plan", *options, "--devices", "16")
    report = json.loads((tmp_path / "m.plan" / "report.json").read_text())
    assert "model=8,tensor=2" in [candidate["strategy"].split(":")[0] for candidate in report["candidates"]]
    memory = {}
    for mesh in ("model=16", "model=8,tensor=2"):
        tools.call("compile", model, "-o", tmp_path / "m.plan", *options, "--mesh", mesh)
        (of_a_rank,) = json.loads(tools.call("inspect", tmp_path / "m.plan", "memory", "--json").stdout)["memory_of_a_rank"]
        memory[mesh] = of_a_rank["total"]
    assert memory["model=8,tensor=2"] < memory["model=16"] / 2
