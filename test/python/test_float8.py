"""8-bit floats end to end, on CPU ranks and on fake GPUs, compared with ml_dtypes: every code is widened, every f16 and bf16 is
narrowed, and operations that move elements keep them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import gridloom
from gridloom import zoo

FORMATS = {
    "f8e4m3fn": (T.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
    "f8e5m2": (T.FLOAT8E5M2, ml_dtypes.float8_e5m2),
    "f8e4m3fnuz": (T.FLOAT8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz),
    "f8e5m2fnuz": (T.FLOAT8E5M2FNUZ, ml_dtypes.float8_e5m2fnuz),
}
WIDE = {"f32": (T.FLOAT, np.float32), "f16": (T.FLOAT16, np.float16), "bf16": (T.BFLOAT16, ml_dtypes.bfloat16)}
TARGETS = ["cpu", "cuda:sm_90"]
TYPES = {name: number for name, (number, _) in {**FORMATS, **WIDE}.items()}


def model(folder, nodes, inputs, outputs, initializers=()):
    def values(items):
        return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in items.items()]

    graph = helper.make_graph(nodes, "float8", values(inputs), values(outputs), list(initializers))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return zoo.save(made, folder / "model.onnx")


def execute(tools, fake_gpus, target, folder, path, inputs, ranks=1):
    """The model's outputs by name, as stored in files."""
    plan = folder / "model.plan"
    tools.compile(path, plan, "--target", target, "--mesh", f"x={ranks}", *(("--strategy", "random:3") * (ranks > 1)))
    if target != "cpu":
        fake_gpus(ranks, 1)
    result = tools.run(plan, inputs, folder / "run", "--in-process")
    assert "fake GPU" not in result.text, result.text
    return result.outputs


def narrow(values: np.ndarray, dtype, saturate: bool) -> np.ndarray:
    """ONNX's tables for Cast; ml_dtypes rounds but never saturates."""
    with np.errstate(all="ignore"):
        result = values.astype(np.float32).astype(dtype)
    if saturate:
        most = ml_dtypes.finfo(dtype).max.astype(np.float32)
        beyond = ~np.isnan(values.astype(np.float32)) & ~np.isfinite(result.astype(np.float32))
        limit = np.where(np.signbit(values.astype(np.float32)), -most, most).astype(dtype)
        result = np.where(beyond, limit, result)
    return result


def assert_same(actual: np.ndarray, expected: np.ndarray, what: str) -> None:
    """Equal bits, except for those of NaN."""
    bits = np.uint8 if expected.dtype.itemsize == 1 else f"u{expected.dtype.itemsize}"
    assert actual.dtype.itemsize == expected.dtype.itemsize and actual.shape == expected.shape, what
    actual = actual.view(expected.dtype)
    nan = np.isnan(expected.astype(np.float32))
    assert np.array_equal(np.isnan(actual.astype(np.float32)), nan), what
    assert np.array_equal(actual[~nan].view(bits), expected[~nan].view(bits)), what


def edges() -> np.ndarray:
    """f32 at and around every code of every format and the midpoints between them, and numbers far from any code."""
    values = [0, np.inf, np.nan, 1e-45, 1e-38, 3e38, 1e5]
    for _, dtype in FORMATS.values():
        codes = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
        codes = np.unique(codes[np.isfinite(codes) & (codes >= 0)])
        steps = np.append(codes, 2 * codes[-1] - codes[-2])
        values += [*steps, *((steps[1:] + steps[:-1]) / 2)]
    values = np.array(values, np.float32)
    values = np.concatenate([values, np.nextafter(values, np.float32(0)), np.nextafter(values, np.float32(np.inf))])
    return np.concatenate([values, -values])


@pytest.mark.parametrize("target", TARGETS)
def test_every_code_is_widened(tools, fake_gpus, tmp_path, target):
    codes = np.arange(256, dtype=np.uint8)
    nodes = [helper.make_node("Cast", [f], [f"{f}_{w}"], to=TYPES[w]) for f in FORMATS for w in WIDE]
    path = model(tmp_path, nodes, {f: (TYPES[f], [256]) for f in FORMATS},
                 {f"{f}_{w}": (TYPES[w], [256]) for f in FORMATS for w in WIDE})  # fmt: skip
    inputs = {f: codes.view(dtype) for f, (_, dtype) in FORMATS.items()}
    outputs = execute(tools, fake_gpus, target, tmp_path, path, inputs)
    for f, (_, dtype) in FORMATS.items():
        for w, (_, wide) in WIDE.items():
            assert_same(outputs[f"{f}_{w}"], codes.view(dtype).astype(wide), f"{f} to {w}")


@pytest.mark.parametrize("target", TARGETS)
def test_everything_is_narrowed(tools, fake_gpus, tmp_path, target):
    bits = np.arange(65536, dtype=np.uint16)
    if target != "cpu":  # interpreting is slow, and both targets' kernels use the same operations
        bits = bits[::3]
    sources = {"f16": bits.view(np.float16), "bf16": bits.view(ml_dtypes.bfloat16), "f32": edges()}
    names = {(w, f, s): f"{w}_{f}_{s}" for w in sources for f in FORMATS for s in (0, 1)}
    nodes = [helper.make_node("Cast", [w], [name], to=TYPES[f], saturate=s) for (w, f, s), name in names.items()]
    path = model(tmp_path, nodes, {w: (TYPES[w], [x.size]) for w, x in sources.items()},
                 {name: (TYPES[f], [sources[w].size]) for (w, f, _), name in names.items()})  # fmt: skip
    outputs = execute(tools, fake_gpus, target, tmp_path, path, sources)
    for (w, f, s), name in names.items():
        assert_same(outputs[name], narrow(sources[w], FORMATS[f][1], bool(s)), name)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_what_moves_elements(tools, fake_gpus, tmp_path, target, ranks):
    random = np.random.default_rng(0)
    x = random.integers(0, 255, (6, 32), np.uint8).view(ml_dtypes.float8_e4m3fn)
    table = random.integers(0, 255, (10, 16), np.uint8).view(ml_dtypes.float8_e4m3fn)
    kind = T.FLOAT8E4M3FN
    weights = [
        helper.make_tensor("table", kind, table.shape, table.tobytes(), raw=True),
        numpy_helper.from_array(np.array([3, 9, 0, 3]), "rows"),
        numpy_helper.from_array(np.array([16, 12]), "shape"),
    ]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Concat", ["t", "t"], ["tt"], axis=1),
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Gather", ["table", "rows"], ["g"]),
        helper.make_node("Identity", ["x"], ["same"]),
    ]
    shapes = {"tt": [32, 12], "r": [16, 12], "g": [4, 16], "same": [6, 32]}
    path = model(tmp_path, nodes, {"x": (kind, [6, 32])}, {name: (kind, s) for name, s in shapes.items()}, weights)
    outputs = execute(tools, fake_gpus, target, tmp_path, path, {"x": x}, ranks)
    expected = {"tt": np.concatenate([x.T, x.T], 1), "r": x.reshape(16, 12), "g": table[[3, 9, 0, 3]], "same": x}
    for name, want in expected.items():
        assert np.array_equal(outputs[name].view(np.uint8), np.ascontiguousarray(want).view(np.uint8)), name


@pytest.mark.parametrize("target", TARGETS)
def test_a_layer_with_weights_of_8_bits(tools, fake_gpus, tmp_path, target):
    """Weights and activations quantised as exporters do it; the product is in f32."""
    random = np.random.default_rng(1)
    w = (random.standard_normal((64, 48)) * 3).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    scale = random.uniform(0.5, 2, 48).astype(np.float32)
    weights = [
        helper.make_tensor("w", T.FLOAT8E4M3FN, w.shape, w.tobytes(), raw=True),
        numpy_helper.from_array(scale, "scale"),
        numpy_helper.from_array(np.float32(0.05), "step"),
        helper.make_tensor("zero", T.FLOAT8E5M2, [], b"\0", raw=True),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "step", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "step", "zero"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "scale"], ["wd"], axis=1),
        helper.make_node("MatMul", ["xd", "wd"], ["y"]),
    ]
    x = random.standard_normal((8, 64)).astype(np.float32)
    path = model(tmp_path, nodes, {"x": (T.FLOAT, [8, 64])}, {"y": (T.FLOAT, [8, 48])}, weights)
    (y,) = execute(tools, fake_gpus, target, tmp_path, path, {"x": x}).values()
    quantised = narrow(x / np.float32(0.05), ml_dtypes.float8_e5m2, True).astype(np.float32) * np.float32(0.05)
    np.testing.assert_allclose(y, quantised @ (w.astype(np.float32) * scale), rtol=1e-4, atol=1e-4)


def test_arrays_of_python(tmp_path):
    """A session accepts and returns ml_dtypes' arrays; the plan names their types."""
    path = model(tmp_path, [helper.make_node("Transpose", ["x"], ["y"])], {"x": (T.FLOAT8E5M2, [2, 3])},
                 {"y": (T.FLOAT8E5M2, [3, 2])})  # fmt: skip
    x = np.arange(6, dtype=np.uint8).reshape(2, 3).view(ml_dtypes.float8_e5m2)
    plan = gridloom.compile(path, tmp_path / "model.plan", mesh="x=1")
    with gridloom.load(plan) as session:
        y = session.run({"x": x})["y"]
    assert y.dtype == x.dtype and np.array_equal(y.view(np.uint8), x.T.copy().view(np.uint8))
    (binding,) = gridloom.Plan.read(tmp_path / "model.plan").entries[0].specialisations[0].inputs
    assert binding.dtype == ml_dtypes.float8_e5m2
