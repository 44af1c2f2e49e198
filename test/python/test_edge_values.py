"""Values at the edges of types and functions, compared with ONNX Runtime or numpy: where a formula loses its digits."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import gridloom
from gridloom import zoo


def save(path, nodes, inputs, outputs, weights=(), opset=17):
    """A model of f32 tensors; `inputs` and `outputs` map names to shapes."""
    values = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in each.items()] for each in (inputs, outputs)]
    graph = helper.make_graph([helper.make_node(*node[:3], **(node[3] if len(node) > 3 else {})) for node in nodes], "edges", *values,
                              [numpy_helper.from_array(value, name) for name, value in dict(weights).items()])  # fmt: skip
    return zoo.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)


def run(tools, path, inputs, **options):
    plan = gridloom.compile(path, path.with_suffix(".plan"), tools=tools.folder, **options)
    with gridloom.load(plan, threads=1) as session:
        return session.run(inputs)


def test_functions_keep_their_digits(tools, tmp_path):
    x = np.array([-80, -20, -10, -1, -1e-4, 0, 1e-45, 1e-40, 1e-30, 1, 20, 1e4, 1e14, 1e16, 1e17, 1e20], np.float32)
    kinds = ["Softplus", "Mish", "Log", "Sin", "Cos"]
    path = save(tmp_path / "m.onnx", [(kind, ["x"], [kind]) for kind in kinds], {"x": x.shape}, {kind: x.shape for kind in kinds}, opset=18)
    results = run(tools, path, {"x": x})
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = {"Softplus": np.logaddexp(0, wide), "Mish": wide * np.tanh(np.logaddexp(0, wide)), "Log": np.log(wide),
                    "Sin": np.sin(wide), "Cos": np.cos(wide)}  # fmt: skip
    for kind in kinds:
        atol = 2e-7 if kind == "Cos" else 1e-44  # of cos, zeros are between numbers of f32
        np.testing.assert_allclose(results[kind], expected[kind], rtol=2e-6, atol=atol, err_msg=kind)


def test_a_norm_without_division_is_none_of_means(tools, tmp_path):
    """x / sqrt(sum(x * x) + epsilon) has no mean in it, nor has x - sum(x)."""
    x = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    axes, epsilon = {"axes": np.array([-1])}, {"epsilon": np.float32(1e-6)}
    nodes = [
        ("Mul", ["x", "x"], ["square"]), ("ReduceSum", ["square", "axes"], ["sum"]), ("Add", ["sum", "epsilon"], ["more"]),
        ("Sqrt", ["more"], ["root"]), ("Div", ["x", "root"], ["y"]),
        ("ReduceSum", ["x", "axes"], ["total"]), ("Sub", ["x", "total"], ["apart"]), ("Mul", ["apart", "apart"], ["square2"]),
        ("ReduceMean", ["square2"], ["mean"], {"axes": [-1]}), ("Add", ["mean", "epsilon"], ["more2"]), ("Sqrt", ["more2"], ["root2"]),
        ("Div", ["apart", "root2"], ["z"]),
    ]  # fmt: skip
    path = save(tmp_path / "m.onnx", nodes, {"x": x.shape}, {"y": x.shape, "z": x.shape}, {**axes, **epsilon})
    results = run(tools, path, {"x": x})
    for name, value in zip("yz", onnxruntime.InferenceSession(str(path)).run(["y", "z"], {"x": x}), strict=True):
        np.testing.assert_allclose(results[name], value, rtol=1e-5, err_msg=name)


def test_a_value_is_the_same_in_every_kernel(tools, tmp_path):
    """The maximum of a column is one of its elements, although two kernels compute these, with other readers of the product."""
    random = np.random.default_rng(2)
    h, s, b = (random.standard_normal(shape).astype(np.float32) for shape in ((64, 128), 128, 128))
    nodes = [
        ("Mul", ["h", "s"], ["p"]), ("Add", ["p", "b"], ["x"]), ("ReduceMax", ["x"], ["most"], {"axes": [0]}), ("Equal", ["x", "most"], ["is"]),
        ("Where", ["is", "p", "zero"], ["y"]), ("ReduceMin", ["x"], ["least"], {"axes": [0]}), ("Sub", ["x", "least"], ["above"]),
        ("Sqrt", ["above"], ["root"]), ("Mul", ["root", "p"], ["z"]), ("Mul", ["h", "h"], ["one"]), ("Mul", ["copy", "copy"], ["other"]),
        ("Sub", ["one", "other"], ["none"]), ("Sqrt", ["none"], ["nothing"]),
    ]  # fmt: skip
    path = save(tmp_path / "m.onnx", nodes, {"h": h.shape, "copy": h.shape}, {"y": h.shape, "z": h.shape, "nothing": h.shape},
                {"s": s, "b": b, "zero": np.float32(0)})  # fmt: skip
    results = run(tools, path, {"h": h, "copy": h})
    assert (results["y"] != 0).any(axis=0).all()
    assert np.isfinite(results["z"]).all()
    assert (results["nothing"] == 0).all()


@pytest.mark.parametrize("norm", ["reduce", "layer", "pool", "pool of cubes"])
def test_a_vector_of_zeros_has_the_gradient_zero(tools, tmp_path, norm):
    random = np.random.default_rng(3)
    nodes, shape = [("MatMul", ["x", "w"], ["h"])], (4, 5)
    if norm == "reduce":  # as PyTorch exports F.normalize
        nodes += [("ReduceL2", ["h"], ["l"], {"axes": [-1], "keepdims": 1}), ("Clip", ["l", "least"], ["c"]), ("Div", ["h", "c"], ["y"])]
    elif norm != "layer":
        shape = (4, 1, 1)
        nodes += [("Unsqueeze", ["h", "one"], ["u"]), ("LpPool", ["u"], ["y"], {"kernel_shape": [5], "p": 2 if norm == "pool" else 3})]
    else:
        nodes += [("LpNormalization", ["h"], ["y"], {"axis": -1, "p": 2})]
    path = save(tmp_path / "m.onnx", nodes, {"x": (4, 3)}, {"y": shape},
                {"w": random.standard_normal((3, 5)).astype(np.float32), "least": np.float32(1e-12), "one": np.array([1])})  # fmt: skip
    plan = gridloom.compile(path, tmp_path / "m.plan", train=True, loss="mse(y, t)", optimizer="sgd(lr=0.1)", tools=tools.folder)
    x = random.standard_normal((4, 3)).astype(np.float32)
    x[2] = 0
    step = gridloom.Trainer(plan).step({"x": x, "t": random.standard_normal(shape).astype(np.float32)})
    assert step["committed"] and np.isfinite(step["gradient_norm"]) and step["gradient_norm"] > 0


def test_a_half_is_the_same_in_every_kernel(tools, tmp_path):
    """As above: kernels compute the elements in f32, and their extremes are in memory as f16."""
    a = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float16)
    value, node = helper.make_tensor_value_info, helper.make_node
    nodes = [
        node("Mul", ["a", "c"], ["x"]), node("ReduceMin", ["x"], ["least"], axes=[0]), node("Sub", ["x", "least"], ["above"]),
        node("Sqrt", ["above"], ["root"]), node("ReduceMax", ["x"], ["most"], axes=[0]), node("Equal", ["x", "most"], ["is"]),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "halves", [value("a", TensorProto.FLOAT16, a.shape)],
                              [value("root", TensorProto.FLOAT16, a.shape), value("is", TensorProto.BOOL, a.shape)],
                              [numpy_helper.from_array(np.float16(0.1), "c")])  # fmt: skip
    path = zoo.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    results = run(tools, path, {"a": a})
    assert np.isfinite(results["root"]).all()
    assert results["is"].any(axis=0).all()


def test_a_sum_of_halves_is_not_rounded_in_between(tools, tmp_path):
    """Rows' sums are 32,000 and -32,000; three of them are more than f16 holds, all of them 64."""
    x = np.zeros((16, 64), np.float16)
    x[:3], x[3:6], x[6] = 500, -500, 1
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, [])
    graph = helper.make_graph([helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], "sum",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT16, x.shape)], [y])  # fmt: skip
    path = zoo.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    assert run(tools, path, {"x": x})["y"] == 64


def test_equal_halves_share_the_derivative_of_their_maximum(tools, tmp_path):
    """There are 90,000 of them, which f16 does not hold."""
    x = np.zeros((300, 300), np.float16)
    value = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("ReduceMax", ["x"], ["y"], keepdims=0)], "maximum",
                              [value("x", TensorProto.FLOAT16, x.shape)], [value("y", TensorProto.FLOAT16, [])])  # fmt: skip
    path = zoo.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    tools.compile(path, tmp_path / "m.plan", "--gradients-of", "y", "--with-respect-to", "x")
    with gridloom.load(tmp_path / "m.plan", threads=1) as session:
        np.testing.assert_allclose(session.run({"x": x})["x.grad"], np.full(x.shape, 1 / x.size), rtol=0.01)


def test_the_derivative_of_a_split_norm_of_halves(tools, tmp_path):
    """The sum of squares, 1e7, is more than f16 holds."""
    random = np.random.default_rng(4)
    x, c = (random.standard_normal((4, 1024)) * size for size in (100, 1))
    x, c = x.astype(np.float16), c.astype(np.float16)
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("RMSNormalization", ["x", "s"], ["n"]), helper.make_node("Mul", ["n", "c"], ["y"])]
    inputs = [value(name, TensorProto.FLOAT16, x.shape) for name in "xc"]
    ones = numpy_helper.from_array(np.ones(1024, np.float16), "s")
    graph = helper.make_graph(nodes, "norm", inputs, [value("y", TensorProto.FLOAT16, x.shape)], [ones])
    path = zoo.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), tmp_path / "m.onnx")
    split = [word for name in "xc" for word in ("--shard", f"{name}=[{{}},{{m}}]")]
    by = ["--gradients-of", "y", "--with-respect-to", "x", "--with-respect-to", "s"]
    tools.compile(path, tmp_path / "m.plan", "--mesh", "m=2", *split, *by)
    with gridloom.load(tmp_path / "m.plan", threads=1) as session:
        results = session.run({"x": x, "c": c})
    wide, ct = x.astype(np.float64), c.astype(np.float64)
    r = 1 / np.sqrt((wide**2).mean(1, keepdims=True))
    expected = {"x.grad": r * (ct - wide * r * (ct * wide * r).mean(1, keepdims=True)), "s.grad": (ct * wide * r).sum(0)}
    for name, want in expected.items():
        np.testing.assert_allclose(results[name], want, atol=2e-3 * np.abs(want).max(), rtol=2e-3, err_msg=name)


def test_a_product_of_scaled_operands(tools, tmp_path):
    """Each intermediate value is in the range of f32; factors moved to the end would not be."""
    a, b = (np.full((8, 8), value, np.float32) for value in (1e-10, 1))
    nodes = [
        ("Mul", ["a", "large"], ["a1"]), ("Mul", ["b", "large"], ["b1"]), ("MatMul", ["a1", "b1"], ["p"]), ("Mul", ["p", "small"], ["y"]),
        ("MatMul", ["a", "b"], ["q"]), ("Div", ["q", "tiny"], ["z"]), ("Div", ["a", "nothing"], ["i"]), ("MatMul", ["i", "b"], ["r"]),
        ("Mul", ["r", "nothing"], ["n"]),
    ]  # fmt: skip
    weights = {"large": np.float32(1e20), "small": np.float32(1e-20), "tiny": np.float32(1e-39), "nothing": np.float32(0)}
    path = save(tmp_path / "m.onnx", nodes, {"a": a.shape, "b": b.shape}, {"y": a.shape, "z": a.shape, "n": a.shape}, weights)
    results = run(tools, path, {"a": a, "b": b})
    np.testing.assert_allclose(results["y"], 8e10, rtol=1e-5)
    np.testing.assert_allclose(results["z"], 8e29, rtol=1e-3)
    assert np.isnan(results["n"]).all()
