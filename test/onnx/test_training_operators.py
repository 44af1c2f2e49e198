"""ai.onnx.preview.training: Gradient, Adagrad, Adam and Momentum, compiled for 1, 2 and 4 ranks; ONNX's own node tests of the last three
are in test_suite.py."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from suite import backend

import gridloom
from gridloom import CompileError

DOMAIN = "ai.onnx.preview.training"
MESHES = {1: "", 2: "x=2", 4: "x=2,y=2"}
KINDS = {np.dtype(np.float32): T.FLOAT, np.dtype(np.float64): T.DOUBLE, np.dtype(np.int64): T.INT64}


def declare(name: str, array: np.ndarray):
    return helper.make_tensor_value_info(name, KINDS[array.dtype], array.shape)


def make(nodes, inputs: dict[str, np.ndarray], outputs: dict[str, tuple], initializers: dict[str, np.ndarray] | None = None, kind=T.FLOAT):
    """A model that imports both domains; `outputs` are shapes by name."""
    graph = helper.make_graph(
        nodes,
        "g",
        [declare(name, array) for name, array in inputs.items()],
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (initializers or {}).items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def run(model, inputs: dict[str, np.ndarray], ranks: int = 1) -> list[np.ndarray]:
    strategy = f"random:{ranks}" if ranks > 1 else None
    return backend.run_model(model, list(inputs.values()), mesh=MESHES[ranks], strategy=strategy)


def refusal(model, inputs) -> str:
    with pytest.raises(CompileError) as error:
        run(model, inputs)
    return str(error.value)


# ----------------------------------------------------------------------------------------------------------------------
# Optimizers, by the pseudo-code of ONNX's schemas
# ----------------------------------------------------------------------------------------------------------------------


def adagrad(r, t, x, g, h, norm_coefficient=0.0, decay_factor=0.0, epsilon=1e-6):
    g = norm_coefficient * x + g
    h = h + g * g
    return x - r / (1 + t * decay_factor) * g / (np.sqrt(h) + epsilon), h


def adam(r, t, x, g, v, h, alpha=0.9, beta=0.999, epsilon=1e-6, norm_coefficient=0.0, norm_coefficient_post=0.0):
    g = norm_coefficient * x + g
    v, h = alpha * v + (1 - alpha) * g, beta * h + (1 - beta) * g * g
    r = r * np.sqrt(1 - beta**t) / (1 - alpha**t) if t > 0 else r
    return (1 - norm_coefficient_post) * (x - r * v / (np.sqrt(h) + epsilon)), v, h


def momentum(r, t, x, g, v, norm_coefficient, alpha, beta, mode):
    g = norm_coefficient * x + g
    v = alpha * v + (beta if t > 0 else 1) * g
    return x - r * (g + alpha * v if mode == "nesterov" else v), v


OPTIMIZERS = [
    ("Adagrad", adagrad, {}),
    ("Adagrad", adagrad, {"norm_coefficient": 0.25, "decay_factor": 0.5, "epsilon": 0.125}),
    ("Adam", adam, {}),
    ("Adam", adam, {"alpha": 0.0, "beta": 0.5, "epsilon": 0.25, "norm_coefficient": 0.125, "norm_coefficient_post": 0.25}),
    ("Momentum", momentum, {"norm_coefficient": 0.0, "alpha": 0.75, "beta": 0.25, "mode": "standard"}),
    ("Momentum", momentum, {"norm_coefficient": 0.125, "alpha": 0.75, "beta": 0.25, "mode": "nesterov"}),
]
KEPT = {"Adagrad": ["h"], "Adam": ["v", "h"], "Momentum": ["v"]}
SHAPES = [(5, 3), (), (4,), (2, 7, 3)]


def optimize(op: str, attributes: dict, count: int, dtype=np.float32, shapes=SHAPES):
    """A model of one optimizer node, its inputs, and the tensors that the node updates."""
    rng = np.random.default_rng(len(attributes))
    inputs = {"R": np.array(0.1, dtype), "T": np.array(count, np.int64)}
    for name in ["x", "g", *KEPT[op]]:
        for i, shape in enumerate(shapes):
            values = rng.uniform(0.1, 2, shape) if name == "h" else rng.standard_normal(shape)
            inputs[f"{name}{i}"] = values.astype(dtype)
    results = {f"new_{name}{i}": shape for name in ["x", *KEPT[op]] for i, shape in enumerate(shapes)}
    node = helper.make_node(op, list(inputs), list(results), name="step", domain=DOMAIN, **attributes)
    return make([node], inputs, results, kind=KINDS[np.dtype(dtype)]), inputs


@pytest.mark.parametrize("count, dtype", [(0, np.float32), (1, np.float32), (1000, np.float32), (7, np.float64)])
@pytest.mark.parametrize("op, rule, attributes", OPTIMIZERS)
def test_several_tensors_in_one_node(op, rule, attributes, count, dtype):
    model, inputs = optimize(op, attributes, count, dtype)
    for ranks in (1, 4) if count == 1 else (1,):
        outputs = run(model, inputs, ranks)
        for i in range(len(SHAPES)):
            tensors = [inputs[f"{name}{i}"].astype(np.float64) for name in ["x", "g", *KEPT[op]]]
            expected = rule(inputs["R"].astype(np.float64), count, *tensors, **attributes)
            for list_, want in enumerate(expected):
                got = outputs[list_ * len(SHAPES) + i]
                # Attributes such as 0.999 are float32, so 1 - 0.999 has lost digits.
                np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
                assert got.dtype == dtype and got.shape == SHAPES[i]


def test_wrong_optimizers_are_refused(tmp_path):
    settings = {"norm_coefficient": 0.0, "alpha": 0.75, "beta": 0.25}
    model, inputs = optimize("Momentum", {**settings, "mode": "fast"}, 1)
    assert "Momentum 'step': mode 'fast' is not one of standard, nesterov" in refusal(model, inputs)
    onnx.save(optimize("Momentum", settings, 1)[0], tmp_path / "m.onnx")
    with pytest.raises(CompileError, match="has no attribute 'mode'"):
        gridloom.compile(tmp_path / "m.onnx", tmp_path / "m.plan")
    assert "Adam 'step': beta is 1.000000e+00, expected at least 0 and below 1" in refusal(*optimize("Adam", {"beta": 1.0}, 1))

    def change(edit) -> str:
        model, inputs = optimize("Adam", {}, 1, shapes=[(2,), (3,)])
        edit(model.graph.node[0].input)
        return refusal(model, inputs)

    assert "has 7 operands after R and T, expected 4 for each tensor" in change(lambda names: names.pop())

    def swap(names):
        names[4], names[5] = names[5], names[4]

    assert "operand 4 is tensor<3xf32>, but tensor 0 is tensor<2xf32>" in " ".join(change(swap).replace("'", "").split())
    model, inputs = optimize("Adam", {}, 1)
    inputs["R"] = np.ones(2, np.float32)
    model.graph.input[0].CopyFrom(declare("R", inputs["R"]))
    assert "R is" in refusal(model, inputs) and "expected one number" in refusal(model, inputs)


# ----------------------------------------------------------------------------------------------------------------------
# Gradient
# ----------------------------------------------------------------------------------------------------------------------

node = helper.make_node


def gradient(inputs, outputs, name="gradient", **attributes):
    return node("Gradient", inputs, outputs, name=name, domain=DOMAIN, **attributes)


@pytest.mark.parametrize("name", ["test_gradient_of_add", "test_gradient_of_add_and_mul"])
def test_onnx_has_two_models(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        (test,) = (test for test in load_model_tests(kind="simple") if test.name == name)
    folder = Path(test.model_dir)

    def read(kind: str) -> list[np.ndarray]:
        files = sorted((folder / "test_data_set_0").glob(f"{kind}_*.pb"))
        return [numpy_helper.to_array(onnx.load_tensor(str(file))) for file in files]

    outputs = backend.run_model(onnx.load(str(folder / "model.onnx")), read("input"))
    for got, want in zip(outputs, read("output"), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def tensors(**shapes) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("ranks", MESHES)
def test_weights_inputs_and_what_is_computed(ranks):
    """y = relu(x w) z: gradients by the weight w, the input z and the intermediate h, which a second node treats as independent."""
    inputs, weights = tensors(x=(6, 4), z=(3, 2)), tensors(w=(4, 3))
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="first"),
        node("Relu", ["a"], ["h"], name="relu"),
        node("MatMul", ["h", "z"], ["y"], name="second"),
        gradient(["w", "z", "x"], ["dw", "dz"], "whole", xs=["w", "z"], zs=["x"], y="y"),
        gradient(["h", "z"], ["dh", ""], "part", xs=["h", "z"], y="y"),
    ]
    model = make(nodes, inputs, {"y": (6, 2), "dw": (4, 3), "dz": (3, 2), "dh": (6, 3)}, weights)
    y, dw, dz, dh = run(model, inputs, ranks)
    x, z, w = (array.astype(np.float64) for array in (*inputs.values(), weights["w"]))
    h, ones = np.maximum(x @ w, 0), np.ones((6, 2))
    expected = {"y": h @ z, "dw": x.T @ ((ones @ z.T) * (x @ w > 0)), "dz": h.T @ ones, "dh": ones @ z.T}
    for got, (name, want) in zip((y, dw, dz, dh), expected.items(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("ranks", MESHES)
def test_derivatives_at_other_values(ranks):
    """The operands give the point of the derivative; the graph's own values do not change."""
    inputs = tensors(x=(5, 3), other=(5, 3))
    nodes = [
        node("Tanh", ["x"], ["t"]),
        node("Mul", ["t", "x"], ["y"]),
        gradient(["other"], ["d"], xs=["x"], y="y"),
    ]
    y, d = run(make(nodes, inputs, {"y": (5, 3), "d": (5, 3)}), inputs, ranks)
    x, other = inputs["x"].astype(np.float64), inputs["other"].astype(np.float64)
    np.testing.assert_allclose(y, x * np.tanh(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(d, np.tanh(other) + other * (1 - np.tanh(other) ** 2), rtol=1e-5, atol=1e-6)


def test_derivatives_of_derivatives():
    """The second derivative of the sum of x^3, and a step of Momentum along the first."""
    inputs = tensors(x=(4,), v=(4,)) | {"R": np.array(0.5, np.float32), "T": np.array(1, np.int64)}
    settings = {"norm_coefficient": 0.0, "alpha": 0.5, "beta": 1.0, "mode": "standard"}
    nodes = [
        node("Mul", ["x", "x"], ["s"]),
        node("Mul", ["s", "x"], ["y"]),
        gradient(["x"], ["d"], "once", xs=["x"], y="y"),
        gradient(["x"], ["dd"], "twice", xs=["x"], y="d"),
        node("Momentum", ["R", "T", "x", "d", "v"], ["next", "kept"], name="step", domain=DOMAIN, **settings),
    ]
    d, dd, following = run(make(nodes, inputs, dict.fromkeys(["d", "dd", "next"], (4,))), inputs)
    x, v = inputs["x"], inputs["v"]
    np.testing.assert_allclose(d, 3 * x * x, rtol=1e-5)
    np.testing.assert_allclose(dd, 6 * x, rtol=1e-5)
    np.testing.assert_allclose(following, x - 0.5 * (0.5 * v + 3 * x * x), rtol=1e-5, atol=1e-6)


def test_corners_and_what_y_does_not_depend_on():
    """Relu's derivative at 0 is 0, as with --gradients-of; gradients are zero where y does not depend on the operand."""
    inputs = {"x": np.array([-1, 0, 2], np.float32), "u": np.ones(2, np.float32)}
    nodes = [node("Relu", ["x"], ["y"]), gradient(["x", "u"], ["dx", "du"], xs=["x", "u"], y="y")]
    dx, du = run(make(nodes, inputs, {"dx": (3,), "du": (2,)}), inputs)
    np.testing.assert_array_equal(dx, [0, 0, 1])
    np.testing.assert_array_equal(du, [0, 0])


def test_wrong_gradients_are_refused():
    inputs = tensors(x=(3,), u=(2,)) | {"i": np.arange(3)}

    def refuse(nodes=(), names=("x",), one=None, **attributes) -> str:
        attributes = {"xs": ["x"], "y": "y"} | attributes
        graph = [node("Neg", ["x"], ["y"]), *nodes, gradient(list(names), ["d"], **attributes)]
        return refusal(make(graph, inputs, {"d": (3,)}, one), inputs)

    assert "Gradient 'gradient': has 2 operands for 1 tensors in xs and zs" in refuse(names=("x", "u"))
    assert "operand 0 is" in (text := refuse(names=("u",))) and "but 'x', whose value it gives, is" in text
    assert "xs names 'i', which is" in (text := refuse(xs=["i"], names=("i",))) and "only floats have gradients" in text
    assert "reads 'q', which no input, initializer or node provides" in refuse(y="q")
    assert "'y' depends on none of the weights and inputs" in refuse(xs=["u"], names=("u",))
    assert "xs and zs name 'x' and 'x', which are one value" in refuse(zs=["x"], names=("x", "x"))
    one = {"c": np.ones(1, np.float32)}
    product = [node("Mul", ["x", "c"], ["p"])]
    assert "'c', which is a constant of the program" in refuse(nodes=product, xs=["c"], names=("c",), y="p", one=one)
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Mul", ["v", "x"], ["w"], name="product")],
        "body",
        [helper.make_tensor_value_info("n", T.INT64, []), helper.make_tensor_value_info("go", T.BOOL, []), declare("v", inputs["x"])],
        [helper.make_tensor_value_info("on", T.BOOL, []), declare("w", inputs["x"])],
    )
    trips = [node("ReduceSum", ["i"], ["trips"], keepdims=0), node("Loop", ["trips", "", "x"], ["p"], name="loop", body=body)]
    assert "Gradient 'gradient': 'p' depends on weights through it, and loom.while has no derivative yet" in refuse(nodes=trips, y="p")
