"""DFT and STFT against numpy, and diagonals of Einsum against ONNX Runtime, compiled for 1, 2 and 4 ranks.

ONNX Runtime refuses some lengths and does not implement onesided inverses."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from suite import backend

MESHES = {1: "", 2: "x=2", 4: "x=2,y=2"}


def make_model(op, opset, x, constants, rank, **attributes):
    """A node on `x` and `constants`, some of which may be None, with a result of rank `rank`."""
    declared = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    names = ["" if c is None else f"c{i}" for i, c in enumerate(constants)]
    fixed = [numpy_helper.from_array(np.asarray(c), n) for n, c in zip(names, constants) if n]
    node = helper.make_node(op, ["x", *names], ["y"], **attributes)
    result = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(x.dtype), [None] * rank)
    graph = helper.make_graph([node], "g", [declared], [result], fixed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def run(model, inputs, ranks):
    strategy = f"random:{ranks}" if ranks > 1 else None
    return backend.run_model(model, inputs, mesh=MESHES[ranks], strategy=strategy)


def pairs(array, dtype):
    return np.stack([array.real, array.imag], -1).astype(dtype)


# name: shape, axis, dft_length, inverse, onesided, dtype. Lengths above 256 are decomposed, except primes.
TRANSFORMS = {
    "real": ((3, 20, 1), 1, None, 0, 0, np.float32),
    "first axis": ((12, 4, 2), 0, None, 0, 0, np.float32),
    "negative axis": ((4, 6, 5, 2), -3, None, 1, 0, np.float32),
    "onesided": ((4, 21, 1), 1, None, 0, 1, np.float32),
    "padded": ((4, 10, 1), 1, 16, 0, 0, np.float32),
    "cropped": ((4, 10, 2), 1, 7, 0, 0, np.float64),
    "back to real": ((4, 9, 2), 1, None, 1, 1, np.float32),
    "back to an odd number": ((4, 9, 2), 1, 17, 1, 1, np.float64),
    "back along the first axis": ((6, 4, 10, 2), 0, None, 1, 1, np.float32),
    "back along an axis as long as the last": ((2, 6, 10, 2), 1, None, 1, 1, np.float32),
    "cut": ((4, 400, 1), 1, None, 0, 1, np.float32),
    "cut twice": ((2, 2048, 2), 1, None, 0, 0, np.float32),
    "cut back": ((2, 2, 257, 2), 2, None, 1, 1, np.float64),
    "cut by a prime": ((2, 514, 1), 1, None, 0, 0, np.float32),
    "a prime": ((2, 311, 2), 1, None, 1, 0, np.float64),
    "one point": ((4, 1, 1), 1, None, 0, 0, np.float32),
    "half precision": ((4, 32, 1), 1, None, 0, 1, np.float16),
}


@pytest.mark.parametrize("ranks", MESHES)
@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_dft(name, opset, ranks):
    shape, axis, length, inverse, onesided, dtype = TRANSFORMS[name]
    x = np.random.default_rng(len(name)).standard_normal(shape).astype(dtype)
    given = {"inverse": inverse, "onesided": onesided} | ({"axis": axis} if opset < 20 else {})
    constants = [None if length is None else np.int64(length)] + ([np.int64(axis)] if opset >= 20 else [])
    (actual,) = run(make_model("DFT", opset, x, constants, x.ndim, **given), [x], ranks)
    wide = x.astype(np.float64)
    signal, axis = wide[..., 0] + 1j * wide[..., -1] * (shape[-1] == 2), axis % len(shape)
    if inverse and onesided:
        want = np.fft.irfft(signal, length, axis)[..., None].astype(dtype)
    elif onesided:
        want = pairs(np.fft.rfft(signal.real, length, axis), dtype)
    else:
        want = pairs((np.fft.ifft if inverse else np.fft.fft)(signal, length, axis), dtype)
    scale = np.abs(want).max()
    tolerance = {np.float64: 1e-12, np.float32: 1e-6, np.float16: 1e-3}[dtype]
    assert actual.dtype == dtype and actual.shape == want.shape
    np.testing.assert_allclose(actual, want, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("ranks", MESHES)
@pytest.mark.parametrize(
    "shape, step, window, length, onesided",
    [
        ((2, 64, 1), 4, None, 16, 1),
        ((1, 50, 1), 3, 12, None, 0),
        ((4, 33, 2), 5, 8, 8, 0),
        ((2, 1200, 1), 160, 400, None, 1),
        ((2, 16, 1), 7, None, None, 1),
    ],
)
def test_stft(shape, step, window, length, onesided, ranks):
    random = np.random.default_rng(step)
    x = random.standard_normal(shape).astype(np.float32)
    weights = None if window is None else random.uniform(0.1, 1, window).astype(np.float32)
    model = make_model("STFT", 17, x, [np.int64(step), weights, length and np.int64(length)], 4, onesided=onesided)
    (actual,) = run(model, [x], ranks)
    n = length or window or shape[1]
    signal = x[..., 0] + 1j * x[..., -1] * (shape[-1] == 2)
    frames = np.lib.stride_tricks.sliding_window_view(signal, n, 1)[:, ::step] * (1 if weights is None else weights)
    want = pairs(np.fft.rfft(frames.real) if onesided else np.fft.fft(frames), np.float32)
    assert actual.shape == want.shape
    np.testing.assert_allclose(actual, want, rtol=0, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize("ranks", MESHES)
@pytest.mark.parametrize(
    "equation, shapes, rank",
    [
        ("ii->i", [(6, 6)], 1),
        ("ii", [(7, 7)], 0),
        ("...ii->...i", [(2, 3, 5, 5)], 3),
        ("bii,bij->bj", [(4, 6, 6), (4, 6, 3)], 2),
        ("iii->i", [(5, 5, 5)], 1),
        ("iji->ji", [(4, 3, 4)], 2),
        ("ijij->ij", [(4, 3, 4, 3)], 2),
        ("ii,jj->ij", [(4, 4), (3, 3)], 2),
    ],
)
def test_diagonals(equation, shapes, rank, ranks):
    random = np.random.default_rng(len(equation))
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    declared = [helper.make_tensor_value_info(f"x{i}", 1, a.shape) for i, a in enumerate(arrays)]
    node = helper.make_node("Einsum", [d.name for d in declared], ["y"], equation=equation)
    graph = helper.make_graph([node], "g", declared, [helper.make_tensor_value_info("y", 1, [None] * rank)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {d.name: a for d, a in zip(declared, arrays)})
    (actual,) = run(model, arrays, ranks)
    assert actual.shape == want.shape
    np.testing.assert_allclose(actual, want, rtol=1e-5, atol=1e-5)
