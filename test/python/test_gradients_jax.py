"""Gradients of whole models against JAX in float64, an oracle that shares no code with the compiler.

Each model of the zoo has a loss: cross entropy over its classes, or the sum of its output times random numbers. JAX differentiates
bench/jax_models.py's mapping of the ONNX file in float64. The model in float64 goes through import, simplify and the differentiation
to the reference interpreter, and must agree to 1e-10 of the largest gradient: rounding, but no wrong formula, is that small. The
float32 model is compiled for one device and two, and must agree to 5e-6 in the norm of all gradients.

Run as a program it prints docs/testing.md's table: .venv/bin/python test/python/test_gradients_jax.py."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
import real_models
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "test" / "onnx"), str(ROOT / "python")]

jax = pytest.importorskip("jax", reason="jax is not installed; extra 'oracle' of pyproject.toml has it")
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)

import evaluate  # noqa: E402
import jax_models  # noqa: E402

from gridloom import zoo  # noqa: E402

INTERPRETED = 1e-10  # of the largest gradient of all, for every element
COMPILED = 5e-6  # of the norm of all gradients, for the norm of the error


@dataclasses.dataclass(frozen=True)
class Model:
    """`loss` is "classes", the cross entropy over dimension `classes` of the output, or "product". If not `smooth`, the float32 gradient
    has no bound: where normalisations use statistics of the batch, or Relu, Clip and HardSigmoid follow 62 convolutions, rounding moves
    values across their corners in any implementation. `mesh` is the mesh of two devices."""

    make: Callable[[], onnx.ModelProto]
    dims: dict[str, int]
    loss: str = "classes"
    classes: int = -1
    mesh: str = "data=2"
    vocabulary: int = 50
    smooth: bool = True
    inputs: Callable[[], dict[str, np.ndarray]] | None = None


def small(name: str, **options) -> Callable[[], onnx.ModelProto]:
    model, defaults = zoo.SMALL[name]
    return lambda: zoo.MODELS[model].make(**defaults, **options)


def take_batch_statistics(make: Callable[[], onnx.ModelProto]) -> Callable[[], onnx.ModelProto]:
    def made():
        model = make()
        for node in model.graph.node:
            if node.op_type == "BatchNormalization":
                node.attribute.append(helper.make_attribute("training_mode", 1))
                node.output.extend([f"{node.output[0]}.mean", f"{node.output[0]}.var"])
        return model

    return made


def load_detector() -> onnx.ModelProto:
    """PP-OCR's detector; its weights, which are Constant nodes, become initializers, so that they have gradients."""
    model, kept = onnx.load(str(real_models.MODELS["ocr-detector"].path())), []
    fixed = {name for node in model.graph.node if node.op_type == "Resize" for name in node.input[1:]}  # scales
    for node in model.graph.node:
        value = node.attribute[0].t if node.op_type == "Constant" and node.attribute[0].name == "value" else None
        if value is not None and value.data_type == TensorProto.FLOAT and np.prod(value.dims) > 1 and node.output[0] not in fixed:
            model.graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(value), node.output[0]))
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


QUICK = {"mlp", "gpt2", "lstm", "resnet, batch statistics"}  # the others are for --full
BERT = zoo.BertConfig(layers=2, hidden=32, heads=4, intermediate=64, vocabulary=50, positions=16)
TOKENS = {"batch": 2, "sequence": 6}
PICTURES = {"batch": 2}
MODELS = {
    "mlp": Model(lambda: zoo.mlp((16, 32, 8), zoo.Random(0, scale=0.5), "gelu"), {"batch": 4}),
    "bert": Model(lambda: zoo.bert(BERT, zoo.Random(0)), TOKENS, loss="product"),
    "gpt2": Model(small("gpt2"), TOKENS),
    "llama": Model(small("llama"), TOKENS),
    "moe": Model(small("moe"), TOKENS, mesh="model=2"),
    "vit": Model(small("vit"), PICTURES),
    "resnet": Model(small("resnet"), PICTURES, classes=1),
    "resnet, batch statistics": Model(take_batch_statistics(small("resnet")), PICTURES, classes=1, smooth=False),
    "unet": Model(small("unet"), PICTURES, classes=1),
    "unet, batch statistics": Model(take_batch_statistics(small("unet")), PICTURES, classes=1, smooth=False),
    "lstm": Model(small("lstm"), TOKENS),
    "lstm, both directions": Model(small("lstm-both"), TOKENS),
    "MiniLM, trained": Model(
        lambda: onnx.load(str(zoo.minilm_file(ROOT / "build" / "zoo" / "minilm.onnx"))), {"batch": 2, "sequence": 8},
        loss="product", inputs=lambda: zoo.encode(zoo.SENTENCES[:2], 8),
    ),
    "PP-OCRv4 detector, trained": Model(
        load_detector, {},
        loss="product", smooth=False, inputs=lambda: {"x": real_models.detector_inputs()["x"][:2, :, 16:48, :64]},
    ),
}  # fmt: skip


def bind(model: onnx.ModelProto, dims: dict[str, int], inputs: dict[str, np.ndarray]) -> None:
    """Fixes the inputs' shapes."""
    for value in model.graph.input:
        if value.name in inputs:
            for dim, size in zip(value.type.tensor_type.shape.dim, inputs[value.name].shape, strict=True):
                dim.dim_value = size
    for output in model.graph.output:
        for dim in output.type.tensor_type.shape.dim:
            if dim.dim_param and dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]


def output_shape(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> tuple[int, ...]:
    weights, _ = jax_models.split(model)
    return jax.eval_shape(jax_models.function(model), weights, inputs).shape


def prepare(case: Model) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model in float32 with `loss` as its only output, all shapes fixed, and its inputs."""
    model = case.make()
    inputs = case.inputs() if case.inputs else zoo.random_inputs(model.graph, case.dims, case.vocabulary)
    if "token_type_ids" in inputs:
        inputs["token_type_ids"] = inputs["token_type_ids"] % 2
    if "attention_mask" in inputs and not case.inputs:
        inputs["attention_mask"] = np.ones_like(inputs["attention_mask"])
        inputs["attention_mask"][-1, -2:] = 0
    bind(model, case.dims, inputs)
    shape, random = output_shape(model, inputs), np.random.default_rng(5)
    output, graph = model.graph.output[0].name, model.graph
    if case.loss == "product":
        inputs["target"] = random.standard_normal(shape).astype(np.float32)
        graph.input.append(helper.make_tensor_value_info("target", TensorProto.FLOAT, shape))
        graph.node.append(helper.make_node("Mul", [output, "target"], ["products"], name="Products"))
        graph.node.append(helper.make_node("ReduceSum", ["products"], ["loss"], name="Loss", keepdims=0))
    else:
        axis = case.classes % len(shape)
        order = [0, axis, *(d for d in range(1, len(shape)) if d != axis)]
        places = [shape[d] for d in order if d != axis]
        inputs["labels"] = random.integers(0, shape[axis], places)
        graph.input.append(helper.make_tensor_value_info("labels", TensorProto.INT64, places))
        graph.node.append(helper.make_node("Transpose", [output], ["class scores"], name="Scores", perm=order))
        graph.node.append(helper.make_node("SoftmaxCrossEntropyLoss", ["class scores", "labels"], ["loss"], name="Loss"))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))
    return model, inputs


def differentiate_by_jax(model: onnx.ModelProto, inputs) -> tuple[float, dict[str, np.ndarray]]:
    """In float64: the loss, and its gradients by all float initializers with more than one element that affect it."""
    weights, _ = jax_models.split(model)
    loss, gradients = jax.jit(jax.value_and_grad(lambda w: jax_models.function(model)(w, inputs)))(weights)
    read = {name for node in model.graph.node for name in node.input}
    return float(loss), {n: np.asarray(g) for n, g in gradients.items() if g.size > 1 and n in read}


def take_gradients(outputs: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """The gradients of more than one element: smaller weights are constants of the program."""
    gradients = {key.removesuffix(".grad"): value for key, value in outputs.items() if key.endswith(".grad")}
    assert gradients, f"{name}: no gradients"
    return gradients


def interpret(folder: Path, model: onnx.ModelProto, inputs) -> tuple[float, dict[str, np.ndarray]]:
    """The gradients of a float64 model, by the reference interpreter."""
    values = [inputs[value.name] for value in model.graph.input if value.name in inputs]
    case = evaluate.Case(folder, model, values, gradients_of="loss")
    evaluate.run([case])
    assert case.error is None, case.error
    outputs = dict(zip(case.names, case.simplified, strict=True))
    return float(outputs["loss"]), take_gradients(outputs, folder.name)


@dataclasses.dataclass(frozen=True)
class Oracle:
    """A model in both types, its inputs in both, and JAX's float64 results."""

    model: onnx.ModelProto
    wide: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    wide_inputs: dict[str, np.ndarray]
    loss: float
    gradients: dict[str, np.ndarray]


@cache
def ask_jax(name: str) -> Oracle:
    model, inputs = prepare(MODELS[name])
    wide = jax_models.widen(model)
    wide_inputs = {key: array.astype(np.float64) if array.dtype == np.float32 else array for key, array in inputs.items()}
    return Oracle(model, wide, inputs, wide_inputs, *differentiate_by_jax(wide, wide_inputs))


def measure_interpreted(folder: Path, name: str) -> tuple[int, float]:
    """The number of gradients, and the largest error of an element relative to the largest gradient of all."""
    oracle = ask_jax(name)
    loss, gradients = interpret(folder / "f64", oracle.wide, oracle.wide_inputs)
    assert loss == pytest.approx(oracle.loss, rel=1e-12)
    absent = {key for key in oracle.gradients.keys() - gradients.keys() if oracle.gradients[key].any()}
    assert not absent and gradients.keys() <= oracle.gradients.keys(), (absent, gradients.keys() - oracle.gradients.keys())
    largest = max(np.abs(array).max() for array in oracle.gradients.values())
    errors = {key: float(np.abs(array - oracle.gradients[key]).max() / largest) for key, array in gradients.items()}
    worst = max(errors, key=errors.get)
    assert errors[worst] <= INTERPRETED, (worst, errors[worst])
    return len(errors), errors[worst]


def measure_compiled(tools, folder: Path, name: str, mesh: str) -> float:
    """The norm of all gradients' error, relative to their norm."""
    oracle = ask_jax(name)
    onnx.save(oracle.model, folder / "m.onnx")
    tools.compile(folder / "m.onnx", folder / f"{mesh}.plan", "--mesh", mesh, "--gradients-of", "loss")
    outputs = tools.run(folder / f"{mesh}.plan", oracle.inputs, folder / f"run {mesh}").outputs
    # The "product" loss cancels, so it has no bound.
    assert MODELS[name].loss == "product" or outputs["loss"] == pytest.approx(oracle.loss, rel=1e-5)
    actual = take_gradients(outputs, mesh)
    error = norm = 0.0
    for key, array in oracle.gradients.items():
        got = actual.get(key.replace("/", "_"))  # as files are named
        assert got is not None or not array.any(), key
        norm += float((array**2).sum())
        error += float(((got - array) ** 2).sum()) if got is not None else 0.0
    return float(np.sqrt(error / norm))


def list_cases(names) -> list:
    return [pytest.param(name, marks=[] if name in QUICK else pytest.mark.full) for name in names]


SMOOTH = [name for name, case in MODELS.items() if case.smooth]


@pytest.mark.parametrize("name", list_cases(MODELS))
def test_interpreted_gradients_are_those_of_jax_in_float64(tmp_path, name):
    count, error = measure_interpreted(tmp_path, name)
    print(f"{count} tensors, worst error {error:.1e} of the largest gradient")


@pytest.mark.parametrize("name", list_cases(SMOOTH))
def test_compiled_gradients_are_near_those_of_float64(tools, tmp_path, name):
    for mesh in ("x=1", MODELS[name].mesh):
        assert measure_compiled(tools, tmp_path, name, mesh) <= COMPILED, mesh


def test_a_wrong_gradient_is_seen(tmp_path, monkeypatch):
    """A relative error of 1e-9 in one weight's gradient must be detected."""
    true = interpret

    def wrong(folder, model, inputs):
        loss, gradients = true(folder, model, inputs)
        name = max(gradients, key=lambda each: np.abs(gradients[each]).max())
        return loss, gradients | {name: gradients[name] * (1 + 1e-9)}

    monkeypatch.setitem(globals(), "interpret", wrong)
    with pytest.raises(AssertionError):
        measure_interpreted(tmp_path, "mlp")


def main() -> None:
    from conftest import Tools

    tools = Tools(ROOT / "build" / "dev" / "bin")
    print("| model | gradients | interpreter, f64 | compiled, f32, 1 device | 2 devices |\n|---|---|---|---|---|")
    for name, case in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            count, error = measure_interpreted(Path(folder), name)
            compiled = ["not smooth", "not smooth"]
            if case.smooth:
                compiled = [f"{measure_compiled(tools, Path(folder), name, mesh):.1e}" for mesh in ("x=1", case.mesh)]
                compiled[1] += f" ({case.mesh})"
            print(f"| {name} | {count} | {error:.1e} | {compiled[0]} | {compiled[1]} |", flush=True)


if __name__ == "__main__":
    main()
