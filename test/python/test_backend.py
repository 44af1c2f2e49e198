"""gridloom.backend follows ONNX's backend interface."""

from __future__ import annotations

import unittest

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import TensorProto, helper

from gridloom import CompileError, backend


def make(nodes, inputs, outputs, initializers=()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "test", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def value(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


@pytest.fixture
def reshape() -> onnx.ModelProto:
    """x, reshaped to the sum of two inputs."""
    nodes = [helper.make_node("Add", ["a", "b"], ["shape"]), helper.make_node("Reshape", ["x", "shape"], ["y"])]
    inputs = [value("x", ["n"]), value("a", [2], TensorProto.INT64), value("b", [2], TensorProto.INT64)]
    return make(nodes, inputs, [value("y", ["rows", "columns"])])


def test_what_decides_shapes_is_fixed(reshape):
    assert backend.fixed_inputs(reshape) == {"a", "b"}


def test_a_shape_taken_from_an_input_does_not_fix_it():
    nodes = [helper.make_node("Shape", ["like"], ["shape"]), helper.make_node("Reshape", ["x", "shape"], ["y"])]
    model = make(nodes, [value("x", [6]), value("like", [2, 3])], [value("y", [2, 3])])
    assert backend.fixed_inputs(model) == set()
    x = np.arange(6, dtype=np.float32)
    (y,) = backend.run_model(model, [x, np.zeros((2, 3), np.float32)])
    np.testing.assert_array_equal(y, x.reshape(2, 3))


def test_other_shapes_and_values_compile_again(reshape):
    program = backend.prepare(reshape)
    for size, shape in [(6, [2, 3]), (8, [2, 4]), (8, [4, 2]), (6, [2, 3])]:
        x = np.arange(size, dtype=np.float32)
        (y,) = program.run([x, np.array(shape), np.zeros(2, np.int64)])
        np.testing.assert_array_equal(y, x.reshape(shape))
    program.close()


def test_inputs_go_by_their_names():
    """Equal shapes in another order are another program's, and no input keeps an earlier run's value."""
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((3, 2), np.float32)
    inputs = [value("a", ["m", "k"]), value("b", ["k", "n"])]
    program = backend.prepare(make([helper.make_node("MatMul", ["a", "b"], ["c"])], inputs, [value("c", ["m", "n"])]))
    for given in ({"a": a, "b": b}, {"b": b, "a": a}, {"b": a, "a": b}):
        np.testing.assert_array_equal(program.run(given)[0], given["a"] @ given["b"])
    for given, words in [
        ({"a": a}, "input 'b' is missing; the model takes a, b"),
        ({"a": a, "c": b}, "there is no input 'c'; the model takes a, b"),
        ({"a": a, "b": b, "c": b}, "there is no input 'c'"),
    ]:
        with pytest.raises(ValueError, match=words):
            program.run(given)
    program.close()


@pytest.mark.parametrize("location", ["../evil", "sub/../../evil", "{outside}/evil"])
def test_weights_outside_of_the_models_folder_are_not_linked(tmp_path, location):
    (tmp_path / "base").mkdir()
    (tmp_path / "evil").write_bytes(np.ones(4, np.float32).tobytes())
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    entry = weight.external_data.add()
    entry.key, entry.value = "location", location.format(outside=tmp_path)
    model = make([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", [4])], [value("y", [4])], [weight])
    program = backend.prepare(model, base=tmp_path / "base")
    with pytest.raises(CompileError, match="evil"):
        program.run([np.ones(4, np.float32)])
    program.close()
    assert not list((tmp_path / "base").iterdir()) and (tmp_path / "evil").stat().st_nlink == 1


@pytest.mark.parametrize("mesh,strategy", [("", None), ("data=2", None), ("x=2,y=2", "random:5")])
def test_run_node(mesh, strategy):
    x = np.random.default_rng(0).standard_normal((4, 6), dtype=np.float32)
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    (y,) = backend.run_node(node, [x], mesh=mesh, strategy=strategy)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_the_same_seed_gives_the_same_sharding():
    inputs = [value("a", [4, 6]), value("b", [6, 8])]
    model = make([helper.make_node("MatMul", ["a", "b"], ["y"])], inputs, [value("y", [4, 8])])
    a, b = np.ones((4, 6), np.float32), np.ones((6, 8), np.float32)

    def shardings(seed: int) -> list[str]:
        program = backend.prepare(model, mesh="x=2,y=2", strategy=f"random:{seed}")
        program.run([a, b])
        found = [entry["sharding"] for entry in program.plan.report["values"]]
        program.close()
        return found

    assert shardings(1) == shardings(1)
    assert len({tuple(shardings(seed)) for seed in range(6)}) > 2


def test_wrong_calls_are_refused(reshape):
    with pytest.raises(ValueError, match="device 'CUDA' is not supported"):
        backend.prepare(reshape, "CUDA")
    with pytest.raises(ValueError, match="4 inputs for a model that has 3"):
        backend.prepare(reshape).run([1, 2, 3, 4])
    with pytest.raises(ValueError, match="input 'b' is missing; the model takes x, a, b"):
        backend.prepare(reshape).run([np.ones(2, np.float32), np.array([2, 1])])
    model = make([helper.make_node("Abs", ["x"], ["y"])], [value("x", [2])], [value("y", [2])])
    with pytest.raises(CompileError, match="write random:SEED"):
        backend.prepare(model, mesh="x=2", strategy="random:often").run([np.ones(2, np.float32)])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_onnx_own_runner():
    """Runs a backend as onnx.backend.test does: module-level functions, unittest cases."""
    runner = onnx.backend.test.BackendTest(backend, __name__)
    runner.include(r"^test_(add|softmax_axis_1|reshape_negative_dim|matmul_3d)_cpu$")
    suite = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromTestCase(case) for case in runner.test_cases.values()
    )
    result = unittest.TestResult()
    suite.run(result)
    assert not result.errors and not result.failures, result.errors + result.failures
    assert result.testsRun - len(result.skipped) == 4
