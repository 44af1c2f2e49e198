"""What compile --train refuses, in one line that says what to do."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from training_models import Mlp

from gridloom import zoo


def draw(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return Mlp(draw).save(tmp_path_factory.mktemp("refusals") / "m.onnx")


LOSS = ["--loss", "mse(y, t)"]
REFUSED = {
    "no loss": ([], "--train needs a --loss"),
    "no such output": (["--loss", "mse(z, t)"], "'z' is not an output of the model; its outputs are 'y'"),
    "an output against itself": (["--loss", "mse(y, y)"], "the target 'y' is the output itself; name a new input or another tensor"),
    "only a name": (["--loss", "foo"], "error: 'foo' is not an output of the model; its outputs are 'y'"),
    "no such loss": (["--loss", "mae(y, t)"], "is not a known loss"),
    "labels of another shape": (["--loss", "cross_entropy(y, x)"], "target 'x' is"),
    "no such optimizer": ([*LOSS, "--optimizer", "adamx"], "adamx"),
    "no such weight": ([*LOSS, "--param", "v*: frozen"], "'v*: frozen': no weight of the model has such a name"),
    "nothing to train": ([*LOSS, "--param", "*: frozen"], "there is nothing to train"),
    "two metrics": ([*LOSS, *["--metric", "accuracy(y, l)"] * 2], "there are two metrics 'accuracy'"),
    "a target called as a weight": (["--loss", "mse(y, w1)"], "two inputs or states of the training step are called 'w1'"),
    "weights of other classes": (
        ["--loss", "cross_entropy(y, l, class_weights=[1, 2])"],
        "class_weights has 2 numbers, 'y' [8, 5] has 5 classes along axis -1; give one for each",
    ),
    "a search of stages": ([*LOSS, "--mesh", "pipe=2,x=2", "--strategy", "search"], "no search cuts a training step into pipeline stages"),
    "zero without data": ([*LOSS, "--mesh", "model=2", "--zero", "1"], "name an axis data"),
    "zero on one device": ([*LOSS, "--zero", "1"], "the program is for one device; give it a mesh with an axis data"),
    "zero without a mesh": ([*LOSS, "--devices", "4", "--strategy", "tp", "--zero", "1"], "the strategy 'tp' on 4 devices has none; name an axis data"),
    "zero with a search": ([*LOSS, "--mesh", "a=2", "--zero", "1", "--strategy", "search"], "--zero does not go with --strategy search"),
    "parts that do not divide": ([*LOSS, "--microbatches", "3"], "does not divide the batch 'batch' of 8; the nearest that do are 2 and 4"),
    "more parts than rows": ([*LOSS, "--microbatches", "9"], "the nearest that does is 8"),
    "parts of an output": (["--loss", "y", "--microbatches", "2"], "output 'y' may be a mean or a sum"),
    "parts of two losses": ([*LOSS, "--loss", "mse(y, u)", "--microbatches", "2"], "goes with one --loss, there are 2"),
    "parts by two names": ([*LOSS, "--microbatches", "2", "--accumulate", "2"], "give one of them"),
    "gradients": ([*LOSS, "--gradients-of", "y"], "--train and --gradients-of exclude each other"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tools, model, tmp_path, case):
    options, message = REFUSED[case]
    result = tools.call("compile", model, "--train", "--dim", "batch=8", "-o", tmp_path / "m.plan", *options, check=False)
    assert result.returncode == 1 and message in result.stderr, result.stderr
    assert result.stderr.count("error:") == 1 and not (tmp_path / "m.plan").exists()


def test_an_axis_that_splits_nothing_says_what_would(tools, model, tmp_path):
    """And the suggested strategy works."""
    lstm = zoo.MODELS["lstm"].write(tmp_path / "lstm.onnx", layers=1, hidden=16, vocabulary=20)
    reads_all = [lstm, "--loss", "cross_entropy(logits, labels)", "--dim", "sequence=4"]
    pinned = [model, "--loss", "cross_entropy(y, labels)", "--shard", "w1=[{data},{}]"]
    for job, obstacle in [
        (reads_all, "weight 'decoder.weight': split by columns over 'model', its product would have to be gathered for '/rnn/LSTM'"),
        (pinned, "weight 'w1' is given as [{data}, {}], without it; 'stored[{data}, {}]' says only how it lies"),
    ]:
        command = ["compile", *job, "--train", "--dim", "batch=8", "--mesh", "data=2,model=2", "-o", tmp_path / "m.plan"]
        error = tools.call(*command, check=False).stderr
        assert error.startswith("error: axis 'model' of 2 devices splits nothing") and obstacle in error, error
        for strategy in "dp", "search":
            assert f"--strategy {strategy}, which" in error
            tools.call(*command, "--strategy", strategy)
    stored = ["w1=stored[{data},{}]" if word == "w1=[{data},{}]" else word for word in pinned]
    tools.call("compile", *stored, "--train", "--dim", "batch=8", "--mesh", "data=2,model=2", "-o", tmp_path / "m.plan")


@pytest.mark.parametrize("option", [LOSS, ["--optimizer", "sgd(lr=1)"], ["--zero", "1"], ["--accumulate", "2"]])
def test_options_that_need_train(tools, model, tmp_path, option):
    result = tools.call("compile", model, "--dim", "batch=8", "-o", tmp_path / "m.plan", *option, check=False)
    assert result.returncode == 1 and "goes with --train" in result.stderr, result.stderr


def test_dumps_that_were_imported_otherwise(tools, model, tmp_path):
    tools.call("compile", model, "--dim", "batch=8", "--stop-after", "import", "--dump-ir", tmp_path / "plain")
    tools.call("compile", model, "--dim", "batch=8", "--train", *LOSS, "--stop-after", "import", "--dump-ir", tmp_path / "train")
    for folder, options, message in [("plain", ["--train", *LOSS], "was imported without --train"), ("train", [], "was imported with --train")]:
        dump = tmp_path / folder / "01-import.mlir"
        result = tools.call("compile", dump, "--start-from", "simplify", *options, "-o", tmp_path / "m.plan", check=False)
        assert result.returncode == 1 and message in result.stderr, result.stderr


def save(path, nodes, inputs, output, weights):
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_a_batch_that_is_not_first_is_not_cut(tools, tmp_path):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("ReduceSum", ["h", "axes"], ["y"], keepdims=0)]
    weights = {"w": draw(4, 3), "axes": np.array([0], np.int64)}
    path = save(tmp_path / "m.onnx", nodes, {"x": [5, "batch", 4], "z": ["batch"]}, ["batch", 3], weights)
    options = ["--train", *LOSS, "--dim", "batch=8", "--microbatches", "2", "-o", tmp_path / "m.plan"]
    result = tools.call("compile", path, *options, check=False)
    assert result.returncode == 1 and "input 'x' has the batch 'batch' in a dimension that is not its first" in result.stderr


def test_a_target_without_the_batch_is_not_cut(tools, tmp_path):
    """The output's first dimension has another name, so the target would not be cut into micro-batches."""
    path = save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ["batch", 4]}, ["N", 3], {"w": draw(4, 3)})
    options = ["--train", *LOSS, "--dim", "batch=8", "--microbatches", "2", "-o", tmp_path / "m.plan"]
    result = tools.call("compile", path, *options, check=False)
    assert result.returncode == 1 and "'t' of 'mse(y, t)' does not begin with the batch that is cut" in result.stderr


def test_names_are_utf8(tools, tmp_path):
    path = save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "wwww"], ["y"])], {"x": ["batch", 4]}, ["batch", 3], {"wwww": draw(4, 3)})
    path.write_bytes(path.read_bytes().replace(b"wwww", b"w\xff\xfew"))
    result = tools.call("compile", path, "--dim", "batch=8", "-o", tmp_path / "m.plan", check=False)
    assert result.returncode == 1 and "is not UTF-8; rename it in the model" in result.stderr, result.stderr


def test_loops_are_not_trained(tools, tmp_path):
    """A loop's body would read its weight outside of the trained function, and the weight would not change."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["s", "w"], ["m"]),
            helper.make_node("Tanh", ["m"], ["next"]),
            helper.make_node("Identity", ["go"], ["stay"]),
        ],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in [("i", TensorProto.INT64, []), ("go", TensorProto.BOOL, []), ("s", TensorProto.FLOAT, ["batch", 3])]],
        [helper.make_tensor_value_info("stay", TensorProto.BOOL, []), helper.make_tensor_value_info("next", TensorProto.FLOAT, ["batch", 3])],
    )  # fmt: skip
    weights = {"w": draw(3, 3), "v": draw(3, 2), "trips": np.array(20, np.int64), "true": np.array(True)}
    nodes = [helper.make_node("Loop", ["trips", "true", "x"], ["h"], name="loop", body=body), helper.make_node("MatMul", ["h", "v"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, {"x": ["batch", 3]}, ["batch", 2], weights)
    result = tools.call("compile", path, "--train", *LOSS, "--dim", "batch=8", "-o", tmp_path / "m.plan", check=False)
    assert result.returncode == 1 and "node 'loop': a loop that is not unrolled cannot be trained" in result.stderr, result.stderr
