"""doctor --train: what would be trained and why not, what an export lost, and a command that works."""

from __future__ import annotations

import shlex

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from training_models import Mlp

import gridloom
from gridloom import zoo

make = helper.make_node


RANDOM = np.random.default_rng(3)


def draw(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def save(path, nodes, inputs: dict, outputs: dict, weights: dict):
    kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64, np.dtype(bool): TensorProto.BOOL}
    value = lambda item: helper.make_tensor_value_info(item[0], TensorProto.INT64 if item[0] == "ids" else TensorProto.FLOAT, item[1])  # noqa: E731
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    assert all(np.asarray(array).dtype in kinds for array in weights.values())
    graph = helper.make_graph(nodes, "g", list(map(value, inputs.items())), list(map(value, outputs.items())), tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


class Doctor:
    def __init__(self, tools, *arguments):
        self.result = tools.call("doctor", *arguments, "--train", check=False)
        self.text = self.result.stdout
        self.lines = self.text.splitlines()

    def rows(self, label: str) -> list[str]:
        return [line.removeprefix(f"  {label}").strip() for line in self.lines if line.startswith(f"  {label} ")]

    def row(self, label: str, start: str) -> str:
        (line,) = [line for line in self.rows(label) if line.startswith(start)]
        return line

    def command(self) -> list[str]:
        assert self.result.returncode == 0, self.text + self.result.stderr
        return shlex.split(self.lines[-1].split("can be trained: ")[1])

    def follow(self, tools, folder):
        """Runs the command on the last line."""
        tools.call(*self.command()[1:], "-o", folder / "doctor.plan")
        return gridloom.Plan.read(folder / "doctor.plan")


def test_a_perceptron(tools, tmp_path):
    doctor = Doctor(tools, Mlp(draw).save(tmp_path / "m.onnx"))
    assert doctor.row("trained", "matmul weight") == "matmul weight: 2 tensors, 210 elements, 840 B, optimizer's states 1.6 KiB; 'w1', 'w2'"
    assert doctor.row("trained", "bias").endswith("'b1', 'b2'") and "2 tensors, 19 elements, 76 B" in doctor.row("trained", "bias")
    assert doctor.row("trained", "all, with adamw").startswith("all, with adamw: 4 tensors, 229 elements")
    assert not doctor.rows("frozen") and not doctor.rows("tie")
    assert "taken for classes" in doctor.rows("loss")[0]
    command = doctor.command()
    assert command[command.index("--loss") + 1] == "cross_entropy(y, labels)"
    plan = doctor.follow(tools, tmp_path)
    assert {"train_step", "eval", "main"} == {entry.name for entry in plan.entries}
    sgd = Doctor(tools, tmp_path / "m.onnx", "--optimizer", "sgd(lr=0.1)", "--param", "b*: frozen", "--loss", "mse(y, target)")
    assert "optimizer's states 0 B" in sgd.row("trained", "all, with sgd(lr=0.1)")
    assert sgd.row("frozen", "--param") == "--param: 2 tensors; 'b1', 'b2'"
    command = sgd.command()
    assert command[command.index("--param") + 1] == "b*: frozen" and command[command.index("--loss") + 1] == "mse(y, target)"
    sgd.follow(tools, tmp_path / "two")
    command = Doctor(tools, tmp_path / "m.onnx", "--bucket-size", "1KiB").command()
    assert command[command.index("--bucket-size") + 1] == "1024"


def convolutional(path, nodes_between, weights=None, size=8, features=None):
    """A convolution with weight c and bias d; the given nodes; a layer w, b over `features` values, by default [4, size, size]."""
    nodes = [make("Conv", ["x", "c", "d"], ["a"], name="conv", pads=[1] * 4), *nodes_between]
    nodes += [make("Flatten", ["h"], ["f"], name="flatten"), make("Gemm", ["f", "w", "b"], ["y"], name="last")]
    every = {"c": draw(4, 2, 3, 3), "d": draw(4), "w": draw(features or 4 * size * size, 5), "b": draw(5)} | (weights or {})
    return save(path, nodes, {"x": ["batch", 2, size, size]}, {"y": ["batch", 5]}, every)


def test_batch_normalizations_and_dropouts_of_an_evaluation_export(tools, tmp_path):
    norm = make("BatchNormalization", ["a", "s", "o", "mean", "var"], ["n"], name="norm")
    drop = make("Dropout", ["n", "half"], ["h"], name="drop")
    weights = {"s": draw(4), "o": draw(4), "mean": draw(4), "var": np.abs(draw(4)), "half": np.float32(0.5)}
    doctor = Doctor(tools, convolutional(tmp_path / "m.onnx", [norm, drop], weights))
    assert doctor.row("trained", "norm scale").endswith("; 's'") and doctor.row("trained", "norm bias").endswith("; 'o'")
    assert doctor.row("trained", "convolution weight").endswith("; 'c'") and doctor.row("trained", "bias").endswith("; 'd', 'b'")
    assert doctor.row("frozen", "running statistic") == "running statistic: 2 tensors; 'mean', 'var'"
    assert "whose statistics training keeps as they are: 'norm'" in doctor.row("lost", "1 BatchNormalization in evaluation mode")
    assert "does nothing in training either: 'drop'" in doctor.row("lost", "1 Dropout in evaluation mode")
    assert doctor.row("lost", "to keep these, export in training mode")
    assert doctor.follow(tools, tmp_path).entries
    nodes = [
        make("BatchNormalization", ["a", "s", "o", "mean", "var"], ["n", "mean2", "var2"], name="norm", training_mode=1),
        make("Dropout", ["n", "half", "yes"], ["h"], name="drop"),
    ]
    doctor = Doctor(tools, convolutional(tmp_path / "t.onnx", nodes, weights | {"yes": np.array(True)}), "--dim", "batch=4")
    assert not doctor.rows("lost"), doctor.text
    assert doctor.row("frozen", "running statistic") == "running statistic: 2 tensors; 'mean', 'var'"
    assert doctor.row("frozen", "integers or quantised").endswith("'yes'")
    doctor.follow(tools, tmp_path / "t")


def test_what_may_have_been_folded(tools, tmp_path):
    doctor = Doctor(tools, convolutional(tmp_path / "m.onnx", [make("Relu", ["a"], ["h"])]))
    assert "if the network has some, the exporter has folded them" in doctor.row("lost", "1 Conv has a bias and the model has no BatchNorm")
    assert "if the network has some" in doctor.row("lost", "the model has no Dropout")


def test_a_node_without_derivative(tools, tmp_path):
    """The printed command freezes the weights behind it and trains the rest."""
    pool = make("MaxPool", ["a"], ["h"], name="pool", kernel_shape=[40, 40])
    doctor = Doctor(tools, convolutional(tmp_path / "m.onnx", [pool], size=40, features=4))
    assert "no derivative" in doctor.row("stop", "node 'pool'") and "2 weights behind it" in doctor.row("stop", "node 'pool'")
    assert doctor.row("frozen", "its readers lead to node 'pool'").endswith("2 tensors; 'c', 'd'")
    assert doctor.row("trained", "all").startswith("all, with adamw: 2 tensors")
    assert doctor.command().count("--param") == 2
    doctor.follow(tools, tmp_path)


def test_loops_and_what_nothing_reads(tools, tmp_path):
    """A loop whose trip count depends on data."""
    body = helper.make_graph(
        [make("MatMul", ["v", "r"], ["u"], name="inner"), make("Identity", ["c"], ["k"])],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in [("i", TensorProto.INT64, []), ("c", TensorProto.BOOL, []), ("v", TensorProto.FLOAT, ["batch", 4])]],
        [helper.make_tensor_value_info("k", TensorProto.BOOL, []), helper.make_tensor_value_info("u", TensorProto.FLOAT, ["batch", 4])],
    )
    nodes = [make("Loop", ["ids", "", "x"], ["l"], name="loop", body=body), make("MatMul", ["l", "w"], ["y"], name="last")]
    path = save(tmp_path / "m.onnx", nodes, {"ids": [], "x": ["batch", 4]}, {"y": ["batch", 3]}, {"r": draw(4, 4), "w": draw(4, 3), "z": draw(7)})
    doctor = Doctor(tools, path)
    assert doctor.result.returncode == 1 and "loop that is not unrolled cannot be trained" in doctor.result.stderr
    assert doctor.row("frozen", "read inside a loop").endswith("'r'") and doctor.row("frozen", "no output depends on it").endswith("'z'")
    assert doctor.row("stop", "node 'loop'")


@pytest.mark.parametrize("transposed", [False, True])
def test_weights_that_were_shared(tools, tmp_path, transposed):
    table = draw(11, 6)
    nodes = [make("Gather", ["table", "ids"], ["e"], name="embed"), make("MatMul", ["e", "inner"], ["h"], name="inner_product")]
    nodes += [make("MatMul", ["h", "out"], ["y"], name="project")] if transposed else [make("Gemm", ["h", "out"], ["y"], name="project", transB=1)]
    weights = {"table": table, "inner": draw(6, 6), "out": table.T.copy() if transposed else table.copy(), "zero": np.zeros((11, 6), np.float32)}
    nodes[-1].output[0] = "p"
    nodes += [make("ReduceSum", ["zero"], ["q"], name="sum", keepdims=0), make("Add", ["p", "q"], ["y"], name="plus")]
    path = save(tmp_path / "m.onnx", nodes, {"ids": ["batch"]}, {"y": ["batch", 11]}, weights)
    doctor = Doctor(tools, path)
    (line,) = doctor.rows("tie")
    assert line.startswith("'table' and 'out' hold the same numbers") and ("transposed" in line) == transposed
    assert doctor.row("trained", "embedding").endswith("'table'") and doctor.row("trained", "matmul weight").endswith("'inner', 'out'")
    assert doctor.row("trained", "other").endswith("'zero'")


def test_outputs_that_do_not_tell_the_loss(tools, tmp_path):
    """The command has a placeholder for the loss; the rest of it works."""
    nodes = [make("MatMul", ["x", "w"], ["a"], name="m"), make("Relu", ["a"], ["y"], name="r")]
    doctor = Doctor(tools, save(tmp_path / "m.onnx", nodes, {"x": ["batch", 3]}, {"y": ["batch", 4]}, {"w": draw(3, 4)}))
    assert doctor.result.returncode == 0 and "the outputs do not tell the loss" in doctor.rows("loss")[0]
    command = shlex.split(doctor.lines[-1].split("can be trained with a loss: ")[1])
    command[command.index("LOSS")] = "mse(y, target)"
    tools.call(*command[1:], "-o", tmp_path / "m.plan")
    nodes[1] = make("Softmax", ["a"], ["y"], name="s")
    doctor = Doctor(tools, save(tmp_path / "s.onnx", nodes, {"x": ["batch", 3]}, {"y": ["batch", 4]}, {"w": draw(3, 4)}))
    assert "y is a softmax; losses take what goes into it" in doctor.rows("loss")[0]


def test_recurrent_weights(tools, tmp_path):
    nodes = [make("LSTM", ["x", "w", "r", "b"], ["all", "h", ""], name="lstm", hidden_size=3), make("Squeeze", ["h", "axis"], ["s"], name="s")]
    nodes.append(make("Gemm", ["s", "o"], ["y"], name="last"))
    weights = {"w": draw(1, 12, 2), "r": draw(1, 12, 3), "b": draw(1, 24), "axis": np.array([0]), "o": draw(3, 4)}
    doctor = Doctor(tools, save(tmp_path / "m.onnx", nodes, {"x": [5, "batch", 2]}, {"y": ["batch", 4]}, weights))
    assert doctor.row("trained", "recurrent weight").endswith("'w', 'r'") and doctor.row("trained", "bias").endswith("'b'")
    assert doctor.row("trained", "matmul weight").endswith("'o'")
    doctor.follow(tools, tmp_path)


def test_a_language_model(tools, tmp_path):
    config = zoo.Gpt2Config(layers=1, hidden=16, heads=2, vocabulary=19, positions=8)
    path = zoo.save(zoo.gpt2(config, zoo.Random(1)), tmp_path / "gpt.onnx")
    doctor = Doctor(tools, path, "--dim", "batch=2", "--dim", "sequence=4")
    roles = {line.split(":")[0] for line in doctor.rows("trained")}
    assert {"embedding", "matmul weight", "bias", "norm scale", "norm bias"} <= roles, doctor.text
    doctor.follow(tools, tmp_path)


def test_nothing_to_train(tools, tmp_path):
    path = save(tmp_path / "m.onnx", [make("Relu", ["x"], ["y"], name="r")], {"x": ["batch", 3]}, {"y": ["batch", 3]}, {})
    doctor = Doctor(tools, path)
    assert doctor.result.returncode == 1 and "no weight of the model can be trained" in doctor.result.stderr
    doctor = Doctor(tools, path, "--loss", "mse(z, t)")
    assert doctor.result.returncode == 1 and "'z' is not an output of the model" in doctor.result.stderr
