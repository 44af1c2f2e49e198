"""Sessions from Python: numpy and DLPack in, numpy out."""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from conftest import TOLERANCE, OnlyDlpack, onnxruntime_session, sentences
from onnx import TensorProto, helper, numpy_helper
from signing_keys import write_keys

import gridloom
from gridloom import zoo


@pytest.fixture(scope="module")
def mlp(tools, tmp_path_factory):
    """A plan of a perceptron on a 2x2 mesh for batches of 4 and 8; its model; and ONNX Runtime's results."""
    folder = tmp_path_factory.mktemp("mlp")
    model = zoo.save(zoo.mlp([16, 64, 8], zoo.Random(0, scale=0.2)), folder / "mlp.onnx")
    plan = gridloom.compile(model, mesh={"data": 2, "model": 2}, dims={"batch": (4, 8)}, tools=tools.folder)
    session = onnxruntime_session(model)
    return plan, model, lambda x: session.run(None, {"x": x})[0]


@pytest.fixture
def session(mlp):
    with gridloom.load(mlp[0]) as session:
        yield session


def rows(batch: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((batch, 16), dtype=np.float32)


def test_a_session_runs_every_specialisation(mlp, session):
    for batch in (4, 8, 4):
        x = rows(batch, seed=batch)
        outputs = session.run({"x": x})
        assert list(outputs) == ["y"] and outputs["y"].dtype == np.float32
        np.testing.assert_allclose(outputs["y"], mlp[2](x), atol=1e-5)


def test_outputs_outlive_later_runs_and_the_session(mlp):
    with gridloom.load(mlp[0]) as session:
        first = session.run({"x": rows(4)})["y"]
        kept = first.copy()
        session.run({"x": rows(4, seed=9)})
    np.testing.assert_array_equal(first, kept)


def test_inputs_may_be_strided_or_come_by_dlpack(mlp, session):
    x = rows(8)
    expected = mlp[2](x)
    wide = np.repeat(x, 2, axis=1)[:, ::2]
    assert not wide.flags.c_contiguous
    for given in (wide, np.asfortranarray(x), OnlyDlpack(x)):
        np.testing.assert_allclose(session.run({"x": given})["y"], expected, atol=1e-5)


def test_bound_inputs_stay(mlp, session):
    x = rows(4)
    session.bind("x", x)
    np.testing.assert_allclose(session.run()["y"], mlp[2](x), atol=1e-5)
    np.testing.assert_array_equal(session.run()["y"], session.run()["y"])


def test_run_async_overlaps_with_python(mlp, session):
    x = rows(8)
    future = session.run_async({"x": x})
    result = future.result()["y"]
    assert future.done()
    np.testing.assert_allclose(result, mlp[2](x), atol=1e-5)
    assert future.result()["y"] is result


def test_run_async_returns_while_a_run_is_in_progress(mlp, session):
    x, futures = rows(8), []

    def submit():
        futures.extend(session.run_async({"x": x}) for _ in range(2))

    with session._lock:  # like a run in progress
        thread = threading.Thread(target=submit)
        thread.start()
        thread.join(timeout=30)
        assert not thread.is_alive() and not any(future.done() for future in futures)
    for future in futures:
        np.testing.assert_allclose(future.result(timeout=60)["y"], mlp[2](x), atol=1e-5)


def test_a_forked_process_is_refused(session):
    """The parent's ranks are threads, which the child does not have."""
    session.run({"x": rows(4)})
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        signal.alarm(30)
        try:
            session.run({"x": rows(4)})
        except gridloom.Error as error:
            os.write(write, str(error).encode())
        session.close()
        os._exit(0)
    os.close(write)
    with open(read) as file:
        message = file.read()
    assert os.waitpid(child, 0)[1] == 0
    assert f"the session was made in process {os.getpid()} and cannot be used in process {child}" in message
    assert session.run({"x": rows(4)})["y"].shape == (4, 8)


# Ranks as separate processes


@pytest.fixture(scope="module")
def pair(tools, mlp, tmp_path_factory):
    """The perceptron for two ranks."""
    plan = tmp_path_factory.mktemp("pair") / "mlp.plan"
    return gridloom.compile(mlp[1], plan, mesh={"model": 2}, dims={"batch": 4}, tools=tools.folder)


RANK = """
import os, sys, threading, time
import numpy as np
import gridloom
rank, x = int(os.environ["RANK"]), np.ones((4, 16), np.float32)
def load(path=sys.argv[1], **options):
    return gridloom.load(path, ranks="environment", deadline=60, **options)
"""


def start_ranks(plan, script: str, size: int = 2, only: int | None = None, local: int = 0) -> list[subprocess.Popen]:
    """Starts all ranks, or rank `only`, as torchrun would with `local` ranks per machine."""
    local = local or size
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(size) if only is None else [only]:
        names = {
            "RANK": rank,
            "WORLD_SIZE": size,
            "LOCAL_RANK": rank % local,
            "LOCAL_WORLD_SIZE": local,
            "MASTER_ADDR": "127.0.0.1",
        }
        environment = {**os.environ, **{name: str(value) for name, value in names.items()}, "MASTER_PORT": str(port)}
        command = [sys.executable, "-c", RANK + textwrap.dedent(script), os.fspath(plan)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(command, env=environment, text=True, **pipes))
    return processes


def finish(processes, timeout=50) -> list[tuple[int, str]]:
    """Exit codes and output. The ranks' own deadline is longer, so a test fails here if a rank waits for it."""
    results = [process.communicate(timeout=timeout) for process in processes]
    return [(process.returncode, out + err) for process, (out, err) in zip(processes, results, strict=True)]


def test_the_number_of_ranks_must_be_the_plans(pair):
    for code, text in finish(start_ranks(pair, "load()", size=3)):
        assert code == 1 and re.search(r"mlp.plan is for 2 ranks but torchrun \(RANK, WORLD_SIZE\) says 3", text), text


def test_a_rank_without_the_plan_tells_the_others(pair, tmp_path):
    script = f"load({str(tmp_path)!r} if rank == 1 else sys.argv[1])"
    first, second = finish(start_ranks(pair, script))
    assert second[0] == 1 and "has no manifest.json" in second[1]
    assert first[0] == 1 and re.search("rank 1 gave up: .*has no manifest.json", first[1]), first[1]


def test_every_rank_verifies_what_it_loads(tools, pair, tmp_path):
    keys = write_keys(tmp_path)
    tools.call("sign", os.fspath(pair), "--key", keys / "private.pem")
    script = f"load(require_signature={str(keys)!r} + ('/other.pub' if rank == 1 else '/public.pem'))"
    first, second = finish(start_ranks(pair, script))
    assert second[0] == 1 and "is signed with key" in second[1], second[1]
    assert first[0] == 1 and re.search("rank 1 gave up: .*is signed with key", first[1]), first[1]


@pytest.mark.parametrize(
    "inputs,words",
    [
        ("{'x': x[:3]}", r"\[3, 16\]"),
        ("{'x': x.astype(np.float64)}", "f64"),
        ("{'x': x}, dims={'batch': 4.5}", "dimension 'batch' is 4.5, expected an integer"),
        ("{'x': x}, entry=None", "the name of an entry is a string, not None"),
    ],
    ids=["shape", "type", "size", "entry"],
)
def test_a_wrong_input_of_one_rank_ends_the_job(pair, inputs, words):
    script = f"""
    session = load()
    if rank == 0:
        session.run({{"x": x}})
    session.run({inputs})
    """
    first, second = finish(start_ranks(pair, script))
    assert second[0] == 1 and re.search(words, second[1]), second[1]
    assert first[0] == 1 and re.search("rank 1 gave up: .*" + words, first[1]), first[1]


def test_a_waiting_run_sees_an_interrupt(pair):
    script = """
    session = load()
    print("ready", flush=True)
    if rank == 1:
        time.sleep(60)
        os._exit(0)
    session.run({"x": x})
    """
    ranks = start_ranks(pair, script)
    assert ranks[0].stdout.readline() == "ready\n"
    time.sleep(1)
    ranks[0].send_signal(signal.SIGINT)
    _, err = ranks[0].communicate(timeout=30)  # less than the ranks' deadline
    ranks[1].kill()
    ranks[1].communicate()
    assert "KeyboardInterrupt" in err, err


@pytest.fixture(scope="module")
def endless(tools, tmp_path_factory):
    """Plans of a loop that runs as often as input `times` says, for a mesh."""
    scalar = lambda name, kind: helper.make_tensor_value_info(name, kind, [])  # noqa: E731
    vector = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])  # noqa: E731
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["goes"]), helper.make_node("Neg", ["a"], ["b"])],
        "body",
        [scalar("i", TensorProto.INT64), scalar("go", TensorProto.BOOL), vector("a")],
        [scalar("goes", TensorProto.BOOL), vector("b")],
    )
    loop = helper.make_node("Loop", ["times", "yes", "x"], ["y"], body=body)
    inputs = [scalar("times", TensorProto.INT64), scalar("yes", TensorProto.BOOL), vector("x")]
    graph = helper.make_graph([loop], "endless", inputs, [vector("y")])
    folder = tmp_path_factory.mktemp("endless")
    model = zoo.save(helper.make_model(graph), folder / "m.onnx")
    return lambda mesh=None: gridloom.compile(model, folder / f"{mesh}.plan", mesh=mesh, tools=tools.folder)


ENDLESS = """
import signal, sys, threading, time
import numpy as np
import gridloom
inputs = {"times": np.array(1 << 60), "yes": np.array(True), "x": np.ones(4, np.float32)}
session = gridloom.load(sys.argv[1])
"""


def start_endless(plan, script: str) -> subprocess.Popen:
    command = [sys.executable, "-c", ENDLESS + textwrap.dedent(script), os.fspath(plan)]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(process: subprocess.Popen, timeout: float = 30) -> tuple[str, str]:
    """What the process printed; it is killed if it does not end in time."""
    try:
        return process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


@pytest.mark.parametrize("mesh", [None, "data=2"])
def test_a_loop_without_an_end_sees_an_interrupt(endless, mesh):
    """Also ranks that do not communicate must be interruptible."""
    script = """
    with session:
        print("ready", flush=True)
        session.run(inputs)
    """
    with start_endless(endless(mesh), script) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = wait_for(process)
    assert "KeyboardInterrupt" in err, err


def test_a_signal_handler_cannot_call_the_session(endless):
    script = """
    def handle(*_):
        try:
            session.reset_states()
        except gridloom.Error as error:
            print(error.code.name, error)
            session.abort("the handler is done")
        else:  # the run has not begun
            signal.setitimer(signal.ITIMER_REAL, 0.5)
    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        session.run(inputs)
    except gridloom.Error as error:
        print(error)
    """
    with start_endless(endless(), script) as process:
        out, err = wait_for(process)
    first, second = out.splitlines()
    assert "INVALID_ARGUMENT a call is in progress on this thread" in first and "the handler is done" in second, (out, err)


@pytest.mark.parametrize("times", ["100", "1 << 60"], ids=["between runs", "in a run"])
def test_a_daemon_thread_may_run_when_the_interpreter_ends(endless, times):
    script = f"""
    inputs["times"] = np.array({times})
    def loop():
        while True:
            session.run(inputs)
    threading.Thread(target=loop, daemon=True).start()
    time.sleep(0.3)
    """
    plan = endless()
    for _ in range(3):  # it ends in different places
        with start_endless(plan, script) as process:
            out, err = wait_for(process)
        assert (process.returncode, out, err) == (0, "", "")


def test_an_interrupt_is_no_failure_of_the_call(session):
    """Also one that arrives while a failed call becomes an exception."""

    def interrupt(*_):
        raise TimeoutError

    before, hits = signal.signal(signal.SIGALRM, interrupt), 0
    try:
        for i in range(200):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-4 + i * 1e-6)
                for _ in range(10000):
                    try:
                        session.update_weights("/nowhere.onnx")
                    except gridloom.Error:
                        pass
            except TimeoutError:
                hits += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert hits > 150


@pytest.mark.parametrize("local", [2, 1], ids=["one machine", "two machines"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_waiting_load_sees_an_interrupt(pair, rank, local):
    """The other rank never comes, and the deadline is a minute."""
    script = """
    print("ready", flush=True)
    load()
    """
    (process,) = start_ranks(pair, script, only=rank, local=local)
    assert process.stdout.readline() == "ready\n"
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in err, err


def test_an_interrupted_load_leaves_nothing(tools, tmp_path):
    weights = np.ones((2048, 3000), np.float32)  # large enough that reading takes a while
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, size]) for name, size in (("x", 2048), ("y", 3000))]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "wide", values[:1], values[1:], [numpy_helper.from_array(weights, "w")])
    tools.compile(zoo.save(helper.make_model(graph), tmp_path / "m.onnx"), tmp_path / "m.plan", "--mesh", "data=2")

    def interrupt(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, interrupt)
    threads, hits = len(os.listdir("/proc/self/task")), 0
    try:
        for delay in (0.001, 0.003, 0.01, 0.03, 0.1):  # on a machine of any speed one of them interrupts the load
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                gridloom.load(tmp_path / "m.plan").close()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except TimeoutError:
                hits += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    gc.collect()
    assert hits > 0
    assert len(os.listdir("/proc/self/task")) == threads


def test_other_threads_run_while_a_trace_is_gathered(pair, tmp_path):
    script = f"""
    session = load(trace=True)
    session.run({{"x": x}})
    if rank == 1:
        time.sleep(2)
    begun, ticks = threading.Event(), []
    def tick():
        while not begun.wait(0.05):
            ticks.append(1)
    thread = threading.Thread(target=tick)
    thread.start()
    session.write_trace({str(tmp_path / "trace.json")!r})
    begun.set()
    if rank == 0:
        assert len(ticks) > 10, len(ticks)
    """
    for code, text in finish(start_ranks(pair, script)):
        assert code == 0, text
    assert (tmp_path / "trace.json").exists()


def test_other_threads_run_while_a_session_does(mlp, session):
    # The bindings release the interpreter lock: two sessions in two threads finish.
    x, results = rows(8), {}

    def work(name: str) -> None:
        with gridloom.load(mlp[0]) as own:
            for _ in range(20):
                results[name] = own.run({"x": x})["y"]

    threads = [threading.Thread(target=work, args=(n,)) for n in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    np.testing.assert_array_equal(results["a"], results["b"])


def test_update_weights_equals_a_fresh_compile(tools, mlp, session, tmp_path):
    other = zoo.save(zoo.mlp([16, 64, 8], zoo.Random(1, scale=0.2)), tmp_path / "other.onnx")
    x = rows(8)
    before = session.run({"x": x})["y"]
    session.update_weights(other)
    after = session.run({"x": x})["y"]
    assert np.abs(after - before).max() > 0.1
    fresh = gridloom.compile(other, mesh="data=2,model=2", dims={"batch": (4, 8)}, tools=tools.folder)
    with gridloom.load(fresh) as expected:
        np.testing.assert_array_equal(after, expected.run({"x": x})["y"])


def test_weights_of_convolutions_are_updated_again_and_again(tools, tmp_path):
    """Two updates without a run between them: new weights may have the address of those two updates ago."""
    paths, x = [], np.random.default_rng(0).standard_normal((2, 3, 16, 16), dtype=np.float32)
    value = helper.make_tensor_value_info
    for seed in range(3):
        weight = np.random.default_rng(seed).standard_normal((64, 3, 3, 3), dtype=np.float32)
        graph = helper.make_graph(
            [helper.make_node("Conv", ["x", "w"], ["y"])], "conv", [value("x", TensorProto.FLOAT, x.shape)],
            [value("y", TensorProto.FLOAT, [2, 64, 14, 14])], [numpy_helper.from_array(weight, "w")],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        paths.append(zoo.save(model, tmp_path / f"{seed}.onnx"))
    plans = [gridloom.compile(path, path.with_suffix(".plan"), tools=tools.folder) for path in (paths[0], paths[2])]
    with gridloom.load(plans[0]) as session, gridloom.load(plans[1]) as expected:
        session.run({"x": x})
        for path in paths[1:]:
            session.update_weights(path)
        np.testing.assert_array_equal(session.run({"x": x})["y"], expected.run({"x": x})["y"])


def test_refused_weights_leave_the_old_ones(mlp, session, tmp_path):
    other = zoo.save(zoo.mlp([16, 32, 8], zoo.Random(1)), tmp_path / "other.onnx")
    x = rows(8)
    before = session.run({"x": x})["y"]
    with pytest.raises(gridloom.Error, match="layer.0.weight"):
        session.update_weights(other)
    np.testing.assert_array_equal(session.run({"x": x})["y"], before)


@pytest.mark.parametrize(
    "inputs,words",
    [
        ({"z": rows(4)}, ["z"]),
        ({"x": rows(4).astype(np.float64)}, ["x", "f64", "f32"]),
        ({"x": rows(3)}, ["3"]),
        ({}, ["x"]),
    ],
    ids=["unknown name", "wrong type", "no such batch", "nothing bound"],
)
def test_wrong_inputs_are_refused_by_name(session, inputs, words):
    with pytest.raises(gridloom.Error) as caught:
        session.run(inputs)
    for word in words:
        assert word in str(caught.value)
    # A refused input does not fail the session.
    assert session.run({"x": rows(4)})["y"].shape == (4, 8)


@pytest.mark.parametrize(
    "options,words",
    [
        ({"threads": -1}, "threads is -1, expected an integer from 0 to 4096"),
        ({"threads": "2"}, "threads is '2', expected an integer"),
        ({"init_seed": 2**64}, "init_seed is 18446744073709551616, expected an integer from 0 to 18446744073709551615"),
        ({"weights": ""}, "weights is empty; name a file, or leave it out"),
        ({"deadline": 0}, "deadline 0 is not from 0.001 to 1000000 seconds"),
        ({"deadline": float("nan")}, "deadline nan is not"),
    ],
)
def test_wrong_options_are_refused_by_name(mlp, options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        gridloom.load(mlp[0], **options)


def test_names_and_sizes_of_other_types_are_refused(session):
    with pytest.raises(TypeError, match="the name of an input is a string, not 1"):
        session.run({1: rows(4)})
    with pytest.raises(ValueError, match=re.escape("dimension 'batch' is 18446744073709551616, expected an integer")):
        session.run({"x": rows(4)}, dims={"batch": 2**64})
    assert session.run({"x": rows(4)}, dims={"batch": np.int64(4)})["y"].shape == (4, 8)


def test_errors_carry_a_code(tmp_path):
    with pytest.raises(gridloom.Error) as caught:
        gridloom.load(tmp_path)
    assert caught.value.code == gridloom.ErrorCode.INVALID_PLAN
    assert "manifest.json" in str(caught.value)


def test_a_closed_session_says_so(mlp):
    session = gridloom.load(mlp[0])
    session.close()
    session.close()
    with pytest.raises(ValueError, match="session is closed"):
        session.run({"x": rows(4)})


def test_minilm_in_a_session(tools, minilm_path, minilm_reference, tmp_path):
    plan = gridloom.compile(
        minilm_path, tmp_path / "m.plan", mesh="data=2,model=2", dims={"batch": 8, "sequence": 32}, tools=tools.folder
    )
    with gridloom.load(plan) as session:
        inputs = sentences(8, 32)
        embedding = session.run(inputs)["embedding"]
    assert np.abs(embedding - minilm_reference(inputs)).max() <= TOLERANCE


def test_functions_at_exit_may_wait_for_threads(endless):
    script = """
    import atexit
    from threading import Event, Thread
    inputs["times"] = np.array(100)
    is_over = Event()
    def work():
        while not is_over.is_set():
            session.run(inputs)
    worker = Thread(target=work, daemon=True)
    def finish():
        is_over.set()
        worker.join()
        print("joined", flush=True)
    atexit.register(finish)
    worker.start()
    session.run(inputs)
    """
    with start_endless(endless(), script) as process:
        out, err = wait_for(process, 60)
    assert process.returncode == 0 and out.splitlines()[-1] == "joined", (out, err)
