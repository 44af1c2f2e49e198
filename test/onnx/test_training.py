"""Models in training mode, compiled for 1, 2 and 4 ranks: batch normalisation against its formula, dropout against a generator defined
here."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from suite import backend

MESHES = {1: "", 2: "x=2", 4: "x=2,y=2"}


def make(op, inputs, outputs, initializers, opset, **attributes):
    """A model of one node; `inputs` are arrays by name, `outputs` element types by name. y and mask have the shape of the first input,
    others that of the first initializer."""
    full, vector = (next(iter(arrays.values())).shape for arrays in (inputs, initializers))
    shapes = {n: full if n in ("y", "mask") else vector for n in outputs}
    names = [*inputs, *initializers]
    graph = helper.make_graph(
        [helper.make_node(op, names, list(outputs), name="node", **attributes)],
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info(n, kind, shapes[n]) for n, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def run(model, inputs, ranks):
    strategy = f"random:{ranks}" if ranks > 1 else None
    return backend.run_model(model, inputs, mesh=MESHES[ranks], strategy=strategy)


# ----------------------------------------------------------------------------------------------------------------------
# BatchNormalization
# ----------------------------------------------------------------------------------------------------------------------


def normalise(x, scale, bias, mean, var, epsilon, momentum):
    """In f64: the result, both running statistics, both batch statistics."""
    x, axes = x.astype(np.float64), (0, *range(2, x.ndim))
    wide = [-1 if d == 1 else 1 for d in range(x.ndim)]
    now, spread = x.mean(axes), x.var(axes)
    y = (x - now.reshape(wide)) / np.sqrt(spread + epsilon).reshape(wide) * scale.reshape(wide) + bias.reshape(wide)
    return y, mean * momentum + now * (1 - momentum), var * momentum + spread * (1 - momentum), now, spread


# Sizes that 2 and 4 do not divide; one element per channel; means far from zero, where squares would cancel.
@pytest.mark.parametrize("ranks", MESHES)
@pytest.mark.parametrize("shape", [(5, 3), (7, 5, 3), (4, 6, 2, 4), (1, 2, 1), (6, 1, 3)])
@pytest.mark.parametrize("opset", [9, 14, 15])
def test_batch_statistics(shape, opset, ranks):
    rng = np.random.default_rng(sum(shape))
    x = (100 + rng.normal(size=shape)).astype(np.float32)
    numbers = {n: rng.uniform(0.5, 1.5, shape[1]).astype(np.float32) for n in ("scale", "bias", "mean", "var")}
    outputs = ["y", "running_mean", "running_var", *(["saved_mean", "saved_var"] if opset < 14 else [])]
    mode = {} if opset < 14 else {"training_mode": 1}
    model = make(
        "BatchNormalization", {"x": x}, dict.fromkeys(outputs, T.FLOAT), numbers, opset, epsilon=0.01, momentum=0.8, **mode
    )
    expected = normalise(x, *numbers.values(), 0.01, 0.8)
    for want, got in zip(expected, run(model, [x], ranks)):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-4)


def test_statistics_of_half_floats_are_of_single_ones():
    x = (1000 + np.random.default_rng(3).normal(size=(64, 2, 33))).astype(np.float16)
    numbers = {n: np.ones(2, np.float16) for n in ("scale", "bias")} | {n: np.ones(2, np.float32) for n in ("mean", "var")}
    outputs = {"y": T.FLOAT16, "running_mean": T.FLOAT, "running_var": T.FLOAT}
    model = make("BatchNormalization", {"x": x}, outputs, numbers, 15, training_mode=1)
    expected = normalise(x, *numbers.values(), 1e-5, 0.9)
    for want, got, rtol in zip(expected, run(model, [x], 1), (2**-9, 1e-5, 1e-5)):
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=rtol, atol=rtol)


# ----------------------------------------------------------------------------------------------------------------------
# Dropout
# ----------------------------------------------------------------------------------------------------------------------


def philox(count, seed, stream, iteration=0):
    """The words 0 .. count - 1 of Philox4x32-10 (Salmon et al. 2011), in Python's integers."""
    words = []
    for block in range(-(-count // 4)):
        c = [block & 0xFFFFFFFF, block >> 32, stream, iteration]
        k = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
        for _ in range(10):
            even, odd = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
            c = [odd >> 32 ^ c[1] ^ k[0], odd & 0xFFFFFFFF, even >> 32 ^ c[3] ^ k[1], even & 0xFFFFFFFF]
            k = [k[0] + 0x9E3779B9 & 0xFFFFFFFF, k[1] + 0xBB67AE85 & 0xFFFFFFFF]
        words += c
    return np.array(words[:count], np.uint32)


def test_the_generator_is_the_published_one():
    assert [hex(word) for word in philox(4, 0, 0)] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


def dropout(x, ratio, **attributes):
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    numbers = {"ratio": np.array(ratio, np.float32), "training_mode": np.array(True)}
    return make("Dropout", {"x": x}, {"y": kind, "mask": T.BOOL}, numbers, 13, **attributes)


@pytest.mark.parametrize("ranks", MESHES)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 3), (4, 6, 10), (3, 1, 5, 2)])
@pytest.mark.parametrize("seed", [0, -1, 81985529216486895])
def test_dropout_draws_by_position(shape, seed, ranks):
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    uniform = (philox(x.size, seed, 0) >> 8).astype(np.float64) * 2.0**-24
    kept = (uniform >= np.float32(0.3)).reshape(shape)
    y, mask = run(dropout(x, 0.3, seed=seed), [x], ranks)
    np.testing.assert_array_equal(mask, kept)
    np.testing.assert_allclose(y, np.where(kept, x / 0.7, 0), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_dropout_of_other_floats(dtype):
    x = np.random.default_rng(2).normal(size=(9, 11)).astype(dtype)
    y, mask = run(dropout(x, 0.5, seed=5), [x], 1)
    np.testing.assert_array_equal(y, np.where(mask, x * 2, 0).astype(dtype))
    assert y.dtype == dtype


def test_dropout_keeps_its_share_and_no_nan():
    x = np.full((200, 500), np.nan, np.float32)
    for ratio in (0.1, 0.5, 0.9):
        y, mask = run(dropout(x, ratio), [x], 1)
        assert abs(mask.sum() - (1 - ratio) * x.size) < 4 * np.sqrt(ratio * (1 - ratio) * x.size)
        assert np.isnan(y[mask]).all() and (y[~mask] == 0).all()


def test_dropout_without_seed_draws_the_same_each_time():
    x = np.ones((40, 25), np.float32)
    first, second = (run(dropout(x, 0.5), [x], ranks)[1] for ranks in (1, 4))
    np.testing.assert_array_equal(first, second)
    assert (run(dropout(x, 0.5, seed=1), [x], 1)[1] != first).any()
