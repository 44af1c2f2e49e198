"""Convolutions, pooling and resizing of random shapes against ONNX Runtime, also in forms of old opsets.

A fixed seed draws the cases; GRIDLOOM_WINDOW_CASES sets another number of them."""

from __future__ import annotations

import os
import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import evaluate

onnxruntime = pytest.importorskip("onnxruntime")
COUNT = int(os.environ.get("GRIDLOOM_WINDOW_CASES", "24"))


def random(rng, shape):
    return rng.normal(size=shape).astype(np.float32)


def make_model(node, x, constants, opset, outputs=1):
    names = [f"y{i}" for i in range(outputs)]
    node.output[:] = names
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", T.FLOAT, x.shape)],
        [
            helper.make_tensor_value_info(name, T.INT64 if i else T.FLOAT, None)
            for i, name in enumerate(names)
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def draw_window(rng, spatial, attributes, dilates=True):
    """Sizes that a window fits into, and a random kind of padding."""
    rank = len(spatial)
    sizes = [int(rng.integers(1, 4)) for _ in range(rank)]
    dilations = [int(rng.integers(1, 3)) if dilates else 1 for _ in range(rank)]
    attributes["strides"] = [int(rng.integers(1, 4)) for _ in range(rank)]
    if dilates:
        attributes["dilations"] = dilations
    kind = rng.choice(["none", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if kind == "pads":
        attributes["pads"] = [int(rng.integers(0, size)) for size in sizes * 2]
    elif kind != "none":
        attributes["auto_pad"] = kind
        if kind.startswith("SAME") and dilates:
            attributes["dilations"] = [1] * rank  # ONNX Runtime pads differently there
    return sizes


def draw_conv(rng):
    rank = int(rng.integers(1, 4))
    groups = int(rng.choice([1, 1, 2, 4]))
    channels = groups * int(rng.integers(1, 4))
    spatial = [int(rng.integers(7, 12)) for _ in range(rank)]
    attributes = {"group": groups}
    sizes = draw_window(rng, spatial, attributes)
    outputs = groups * int(rng.integers(1, 4))
    constants = {"w": random(rng, [outputs, channels // groups, *sizes])}
    inputs = ["x", "w"]
    if rng.integers(2):
        inputs.append("b")
        constants["b"] = random(rng, [outputs])
    x = random(rng, [int(rng.integers(1, 3)), channels, *spatial])
    return make_model(helper.make_node("Conv", inputs, [], **attributes), x, constants, 11), x


def draw_transposed(rng):
    rank = int(rng.integers(1, 3))
    groups = int(rng.choice([1, 1, 2]))
    channels = groups * int(rng.integers(1, 4))
    strides = [int(rng.integers(1, 4)) for _ in range(rank)]
    sizes = [int(rng.integers(1, 5)) for _ in range(rank)]
    spatial = [int(rng.integers(3, 7)) for _ in range(rank)]
    attributes = {
        "group": groups,
        "strides": strides,
        "dilations": [int(rng.integers(1, 3)) for _ in range(rank)],
        "output_padding": [int(rng.integers(0, stride)) for stride in strides],
    }
    if rng.integers(2):
        attributes["pads"] = [int(rng.integers(0, (size + 1) // 2 + 1)) for size in sizes * 2]
    constants = {"w": random(rng, [channels, int(rng.integers(1, 4)), *sizes])}
    x = random(rng, [int(rng.integers(1, 3)), channels, *spatial])
    return make_model(helper.make_node("ConvTranspose", ["x", "w"], [], **attributes), x, constants, 11), x


def draw_disjoint(rng):
    """Transposed convolutions whose windows do not overlap."""
    rank = int(rng.integers(1, 4))
    groups = int(rng.choice([1, 1, 2]))
    channels = groups * int(rng.integers(1, 4))
    sizes = [int(rng.integers(1, 4)) for _ in range(rank)]
    sizes[0] = max(sizes[0], 2)
    attributes = {"group": groups, "strides": sizes}
    if rng.integers(2):
        attributes["pads"] = [int(rng.integers(0, size + 1)) for size in sizes * 2]
    constants = {"w": random(rng, [channels, int(rng.integers(1, 4)), *sizes])}
    inputs = ["x", "w"]
    if rng.integers(2):
        inputs.append("b")
        constants["b"] = random(rng, [groups * constants["w"].shape[1]])
    x = random(rng, [int(rng.integers(1, 3)), channels, *(int(rng.integers(3, 7)) for _ in range(rank))])
    return make_model(helper.make_node("ConvTranspose", inputs, [], **attributes), x, constants, 11), x


def draw_pool(rng):
    op = str(rng.choice(["MaxPool", "AveragePool", "LpPool"]))
    rank = int(rng.integers(1, 4))
    spatial = [int(rng.integers(7, 12)) for _ in range(rank)]
    attributes = {}
    attributes["kernel_shape"] = draw_window(rng, spatial, attributes, dilates=op == "MaxPool")
    outputs = 1
    if op == "AveragePool":
        attributes["count_include_pad"] = int(rng.integers(2))
    if op == "MaxPool" and "auto_pad" not in attributes:
        outputs = 2
        attributes["storage_order"] = int(rng.integers(2))
    if op != "LpPool" and "auto_pad" not in attributes and not attributes.get("count_include_pad"):
        attributes["ceil_mode"] = int(rng.integers(2))
    if op == "LpPool":
        attributes["p"] = int(rng.integers(1, 4))
    x = random(rng, [int(rng.integers(1, 3)), int(rng.integers(1, 4)), *spatial])
    return make_model(helper.make_node(op, ["x"], [], **attributes), x, {}, 12, outputs), x


def draw_resize(rng):
    x = random(rng, [1, 2, int(rng.integers(3, 9)), int(rng.integers(3, 9))])
    mode = str(rng.choice(["nearest", "linear", "cubic"]))
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": str(
            rng.choice(["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
        ),
    }
    if mode == "nearest":
        attributes["nearest_mode"] = str(
            rng.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
        )
    if mode == "cubic":
        attributes["exclude_outside"] = int(rng.integers(2))
    sizes = [1, 2, int(rng.integers(1, 17)), int(rng.integers(1, 17))]
    constants = {"sizes": np.array(sizes, np.int64)}
    node = helper.make_node("Resize", ["x", "", "", "sizes"], [], **attributes)
    return make_model(node, x, constants, 13), x


def draw_old(rng):
    """Forms that the newest versions of the operators no longer have."""
    x = random(rng, [1, 2, int(rng.integers(3, 7)), int(rng.integers(3, 7))])
    scales = [1.0, 1.0, float(rng.integers(1, 4)), float(rng.choice([1.0, 1.5, 2.0, 2.5]))]
    mode = str(rng.choice(["nearest", "linear"]))
    kind = int(rng.integers(3))
    if kind == 0:
        return make_model(helper.make_node("Upsample", ["x"], [], mode=mode, scales=scales), x, {}, 7), x
    op, opset = ("Upsample", 9) if kind == 1 else ("Resize", 10)
    constants = {"scales": np.array(scales, np.float32)}
    return make_model(helper.make_node(op, ["x", "scales"], [], mode=mode), x, constants, opset), x


def draw_grid(rng):
    x = random(rng, [2, 2, int(rng.integers(2, 7)), int(rng.integers(2, 7))])
    grid = (2.6 * rng.random([2, 3, 4, 2]) - 1.3).astype(np.float32)
    attributes = {
        "mode": str(rng.choice(["bilinear", "nearest", "bicubic"])),
        "padding_mode": str(rng.choice(["zeros", "border", "reflection"])),
        "align_corners": int(rng.integers(2)),
    }
    return make_model(helper.make_node("GridSample", ["x", "grid"], [], **attributes), x, {"grid": grid}, 16), x


DRAWS = {
    "conv": draw_conv,
    "transposed": draw_transposed,
    "disjoint": draw_disjoint,
    "pool": draw_pool,
    "resize": draw_resize,
    "old": draw_old,
    "grid": draw_grid,
}


def reference(model, x):
    """ONNX Runtime's outputs, or None if it refuses the model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, {"x": x})
    except Exception as error:  # its exception classes are not exported
        warnings.warn(f"ONNX Runtime refuses a case: {str(error)[:200]}", stacklevel=2)
        return None


@pytest.mark.parametrize("kind", DRAWS)
def test_random(kind, tmp_path):
    rng = np.random.default_rng(len(kind))
    drawn = [DRAWS[kind](rng) for _ in range(COUNT)]
    references = [reference(model, x) for model, x in drawn]
    assert sum(r is not None for r in references) > COUNT / 2
    cases = [evaluate.Case(tmp_path / str(i), model, [x]) for i, (model, x) in enumerate(drawn)]
    evaluate.run(cases)
    for case, (model, x), expected in zip(cases, drawn, references):
        if expected is None:
            continue
        what = f"{x.shape} {onnx.printer.to_text(model.graph)}"
        assert case.error is None, f"{case.error}\n{what}"
        for outputs in (case.imported, case.simplified):
            for actual, want in zip(outputs, expected, strict=True):
                assert actual.shape == want.shape, what
                np.testing.assert_allclose(actual, want, rtol=1e-4, atol=2e-5, err_msg=what)
