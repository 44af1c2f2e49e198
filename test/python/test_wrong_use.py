"""What a newcomer does wrong, and what the programs say: one line, the remedy in it, nothing half-written."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shlex
import signal
import struct
import subprocess
import termios
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
    """The plan for two ranks."""
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
        (["explain", "m.plan", "--collective", "x"], "--collective: Value x not in range 0 to 1073741824; see"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_slips_are_told_with_what_was_meant(tools, arguments, line):
    assert line in refused(tools, *arguments, code=2)


def test_help_is_of_the_program_that_was_called(tools):
    for verb in ("compile", "check", "doctor", "run", "bench", "inspect", "explain", "diff", "devices"):
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
    assert "'batch' of input 'input_ids', 'sequence' of input 'input_ids' have no size" in line
    assert line.endswith("--dim batch=SIZE --dim sequence=SIZE")


def test_the_doctor_tells_the_command_that_compiles(tools, bert, tmp_path, monkeypatch):
    told = tools.call("doctor", bert).stdout
    assert "input_ids int64 [batch, sequence]" in told and "sequence=16 is tried" in told
    (command,) = [line.split("can be compiled: ")[1] for line in told.splitlines() if "can be compiled" in line]
    monkeypatch.chdir(tmp_path)
    tools.call(*command.split()[1:], "-o", tmp_path / "m.plan", "--stop-after", "simplify")
    told = tools.call("doctor", bert, "--dim", "sequence=8").stdout
    assert "batch=1 is tried" in told and "sequence=16" not in told and told.endswith("--dim sequence=8 --dim batch=1\n")


def test_the_doctor_tells_what_cannot_be_compiled(tools, tmp_path):
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Unique", ["a"], ["y"], name="u")]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    path = zoo.save(helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:])), tmp_path / "odd.onnx")
    result = tools.call("doctor", path, check=False)
    assert result.returncode == 1 and "x float [n]" in result.stdout
    assert "'u'" in result.stderr and "Unique" in result.stderr


def with_cache(path, total: str):
    """A model that appends to a cache, as exporters write it: `past` and `seq` rows are `total` rows."""
    from onnx import TensorProto, helper

    value = lambda name, size: helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, 4])  # noqa: E731
    nodes = [helper.make_node("Concat", ["p", "x"], ["y"], axis=0), helper.make_node("Add", ["y", "m"], ["o"])]
    inputs = [value("m", total), value("p", "past"), value("x", "seq")]
    return zoo.save(helper.make_model(helper.make_graph(nodes, "g", inputs, [value("o", "all")])), path)


def test_the_doctor_tries_sizes_that_fit_or_says_that_it_guessed(tools, tmp_path):
    cache = with_cache(tmp_path / "a.onnx", "past + seq")
    assert tools.call("doctor", cache).stdout.endswith(" --dim 'past + seq=32' --dim past=16 --dim seq=16\n")
    told = tools.call("doctor", cache, "--dim", "past=3").stdout
    assert told.endswith(" --dim past=3 --dim 'past + seq=19' --dim seq=16\n")
    assert refused(tools, "compile", cache).endswith(" --dim 'past + seq=SIZE' --dim past=SIZE --dim seq=SIZE")
    cache = with_cache(tmp_path / "b.onnx", "total")
    failed = tools.call("doctor", cache, check=False)
    assert "do not broadcast" in failed.stderr
    assert "size   total=16 is tried; the model leaves it open, --dim chooses another\n" in failed.stdout
    assert "can be compiled" in tools.call("doctor", cache, "--dim", "total=32").stdout
    sizes = ["--dim", "total=3", "--dim", "past=1", "--dim", "seq=1"]
    assert "do not broadcast" in refused(tools, "doctor", cache, *sizes)  # nothing was guessed


def test_commands_that_are_told_can_be_typed(tools, tmp_path, monkeypatch):
    """Whatever the names in them: one folder has a quote and a space."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "it's mine"
    folder.mkdir()
    model = zoo.save(zoo.mlp([4, 4], zoo.Random(0)), folder / "a model.onnx")
    command = shlex.split(tools.call("doctor", model).stdout.split("can be compiled: ")[1])
    assert command[:3] == ["gridloom", "compile", str(model)]
    limits = ["--cpu-arch", "x86-64-v2", "--memory-limit", "1MiB"]
    told = tools.call(*command[1:], "-o", "it's mine/a plan", "--dump-ir", folder, *limits).stdout
    (command,) = [shlex.split(line)[2:] for line in told.splitlines() if line.startswith("  run it ")]
    tools.call(*command[1:], "--input", "x=ones")
    monkeypatch.chdir(folder)
    (first,) = [next(dump.open()) for dump in folder.glob("02-*.mlir")]
    command = shlex.split(first.removeprefix("// "))
    assert command[command.index("--memory-limit") + 1] == "1048576"
    tools.call(*command[1:])
    manifest = json.loads((folder / "a plan" / "manifest.json").read_text())
    assert "x86-64-v2" in json.dumps(manifest["target"])


def test_a_folder_whose_name_a_shell_has_completed(tools, model, tmp_path):
    for name in ("m.plan/", "m.plan//", "m.plan/."):
        compiled = tools.compile(model, f"{tmp_path}/{name}", "--dim", "batch=4")
        assert f"run it          gridloom run {tmp_path}/m.plan\n" in compiled.stdout
        assert [path.name for path in tmp_path.iterdir()] == ["m.plan"]


# Options that do nothing, or cannot be


def test_gpus_that_no_code_is_made_for(tools, model, tmp_path):
    compiled = tools.compile(model, tmp_path / "m.plan", "--dim", "batch=4", "--devices", "2xH100-80GB")
    assert "warning: --devices 2xH100-80GB estimates for H100-80GB but the plan is for --target cpu" in compiled.stderr
    assert "--target cuda:sm_90" in compiled.stderr and "estimate        main on H100-80GB" in compiled.stdout
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
    assert "data=2" in line and "the limit is 1.0 KiB; split over more devices, or raise --memory-limit" in line
    tools.call(*options, "1MiB", "--mesh", "data=2")
    assert json.loads(tools.call("explain", tmp_path / "m.plan", "--json").stdout)["limit_bytes"] == 1 << 20


def test_too_many_devices(tools, model, tmp_path):
    options = ["compile", model, "-o", tmp_path / "m.plan", "--dim", "batch=4"]
    assert "axis 'data' of 10000000 devices; the most are 1048576" in refused(tools, *options, "--mesh", "data=10000000")
    assert "more than the planner tries, 4096; give a --mesh" in refused(tools, *options, "--devices", "5000")


# Runs


def test_inputs_that_do_not_fit(tools, plan, tmp_path):
    for name, array in [("f64", np.zeros((4, 16))), ("narrow", np.zeros((4, 15), np.float32))]:
        np.save(tmp_path / f"{name}.npy", array)
    run = lambda value: refused(tools, "run", plan, "--input", f"x={value}")  # noqa: E731
    assert "holds f64 [4, 16], but the plan takes x f32 [4, 16]; convert it with numpy's astype" in run(tmp_path / "f64.npy")
    assert "[4, 15], but the plan takes x f32 [4, 16]; compile the model for this shape" in run(tmp_path / "narrow.npy")
    assert "randm: there is no such file, and no generator" in run("randm")
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
    """Also by ranks, for whom memory that they share must not become standard output."""
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
    """Wherever the signal comes: before, while and after the plan is written."""
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
    """What a command shows on a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = [tools.path("gridloom"), *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        shown += data
    os.close(ours)
    assert process.wait() == 0, process.stderr.read()
    process.stderr.close()
    return shown.decode().splitlines()


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
    with pytest.raises(gridloom.Error, match="no transport 'carrier'; there are local, nccl and loopback"):
        gridloom.load(plan, transport="carrier").run({"x": np.ones((4, 16), np.float32)})


def test_python_autotunes(tools, fake_gpus, model, tmp_path):
    fake_gpus(1, 1)
    plan = gridloom.compile(model, tmp_path / "m.plan", dims={"batch": 64}, target="cuda:sm_90")
    with gridloom.load(plan, autotune=True) as session:
        session.run({"x": np.ones((64, 16), np.float32)})
    assert list((plan.path / "autotune").glob("*.json"))
