"""Sessions from Python: numpy and DLPack in, numpy out."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from conftest import TOLERANCE, onnxruntime_session, sentences

import gridloom
from gridloom import zoo


@pytest.fixture(scope="module")
def mlp(tools, tmp_path_factory):
    """A perceptron on a 2x2 mesh, for batches of 4 and 8; its model; and ONNX Runtime's results."""
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
    class OnlyDlpack:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

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
    # A refusal is no failure: the session still runs.
    assert session.run({"x": rows(4)})["y"].shape == (4, 8)


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
