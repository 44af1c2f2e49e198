"""Results whose length depends on data are padded, and their length is an extra output: against ONNX Runtime, compiled for 1, 2 and 4
ranks."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import evaluate
from suite import backend

import gridloom

MESHES = {1: "", 2: "x=2", 4: "x=2,y=2"}


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, list(inputs), list(outputs), name=op.lower(), **attributes)


def number(name, value, dtype=np.int64):
    return numpy_helper.from_array(np.array(value, dtype), name)


def model(nodes, inputs, outputs, initializers=()):
    """`inputs` are arrays by name, `outputs` are types and ranks by name."""
    given = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()]
    made = [helper.make_tensor_value_info(n, kind, [None] * rank) for n, (kind, rank) in outputs.items()]
    graph = helper.make_graph(list(nodes), "g", given, made, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compare(what, inputs, ranks):
    for index, each in enumerate(what.graph.node):  # ONNX Runtime wants names to differ
        each.name += str(index)
    session = onnxruntime.InferenceSession(what.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    strategy = f"random:{ranks}" if ranks > 1 else None
    program = backend.prepare(what, mesh=MESHES[ranks], strategy=strategy)
    try:
        for _ in range(2):
            for want, got in zip(expected, program.run(inputs), strict=True):
                assert got.dtype == want.dtype and got.shape == want.shape
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    finally:
        program.close()
    return expected


def random(seed):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("ranks", MESHES)
@pytest.mark.parametrize(
    "x",
    [
        np.where(random(1).random((6, 5)) < 0.4, 0, random(2).standard_normal((6, 5))).astype(np.float32),
        random(3).random((3, 4, 2)) < 0.5,
        random(4).integers(0, 2, 17),
        np.zeros((4, 3), np.int64),
        np.ones(8, bool),
    ],
    ids=["floats", "booleans", "integers", "none", "all"],
)
def test_non_zero(x, ranks):
    compare(model([node("NonZero", ["x"], ["y"])], {"x": x}, {"y": (T.INT64, 2)}), {"x": x}, ranks)


@pytest.mark.parametrize("ranks", MESHES)
@pytest.mark.parametrize("axis, count", [(None, 18), (0, 6), (1, 2), (-1, 3)])
def test_compress(axis, count, ranks):
    inputs = {"x": random(5).standard_normal((6, 3)).astype(np.float32), "c": random(6).random(count) < 0.6}
    given = {} if axis is None else {"axis": axis}
    what = model([node("Compress", ["x", "c"], ["y"], **given)], inputs, {"y": (T.FLOAT, 1 if axis is None else 2)})
    compare(what, inputs, ranks)


@pytest.mark.parametrize("ranks", MESHES)
@pytest.mark.parametrize(
    "x, axis, sorted",
    [
        (random(7).integers(0, 5, 20), None, 1),
        (random(8).integers(0, 5, 20), None, 0),
        (random(9).integers(-2, 2, (4, 6)).astype(np.float32), None, 1),
        (random(10).integers(0, 2, (9, 3)), 0, 1),
        (random(11).integers(0, 2, (2, 8, 2)).astype(np.float32), 1, 1),
        (random(12).integers(0, 2, (3, 9)), -1, 0),
        (np.zeros(6, np.int64), None, 1),
        (np.arange(8, dtype=np.int64)[::-1].copy(), None, 0),
    ],
)
def test_unique(x, axis, sorted, ranks):
    attributes = {"sorted": sorted} | ({} if axis is None else {"axis": axis})
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    outputs = {"y": (kind, 1 if axis is None else x.ndim)} | {n: (T.INT64, 1) for n in ("first", "inverse", "counts")}
    compare(model([node("Unique", ["x"], outputs, **attributes)], {"x": x}, outputs), {"x": x}, ranks)


def detections(seed, batch, classes, n):
    r = random(seed)
    corner, size = r.uniform(0, 10, (batch, n, 2)), r.uniform(1, 5, (batch, n, 2))
    boxes = np.concatenate([corner, corner + size], -1).astype(np.float32)
    return {"boxes": boxes, "scores": r.random((batch, classes, n)).astype(np.float32)}


@pytest.mark.parametrize("ranks", MESHES)
@pytest.mark.parametrize(
    "batch, classes, n, most, iou, score, center",
    [
        (1, 1, 20, 5, 0.5, 0.3, 0),
        (2, 3, 16, 16, 0.1, 0.5, 0),
        (2, 4, 12, 100, 0.3, None, 1),
        (1, 2, 9, 3, 0.0, 0.0, 0),
        (1, 3, 30, 4, 1.0, 0.9, 0),
        (2, 2, 8, 4, 0.5, 2.0, 0),  # none
        (1, 1, 1, 1, 0.5, 0.0, 0),
    ],
)
def test_non_max_suppression(batch, classes, n, most, iou, score, center, ranks):
    inputs = detections(n, batch, classes, n)
    given = [number("most", most), number("iou", iou, np.float32)]
    given += [] if score is None else [number("score", score, np.float32)]
    names = ["boxes", "scores", *(t.name for t in given)]
    nodes = [node("NonMaxSuppression", names, ["y"], center_point_box=center)]
    compare(model(nodes, inputs, {"y": (T.INT64, 2)}, given), inputs, ranks)


def detector():
    """The nodes that exporters write after the suppression: a table of the boxes, scores and classes that it picks."""
    nodes = [
        node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "score"], ["picked"]),
        node("Gather", ["picked", "two"], ["box"], axis=1),
        node("Gather", ["picked", "one"], ["class"], axis=1),
        node("Squeeze", ["boxes", "zero"], ["all"]),
        node("Gather", ["all", "box"], ["rows"], axis=0),
        node("Mul", ["rows", "scale"], ["scaled"]),
        node("GatherND", ["scores", "picked"], ["score_"]),
        node("Unsqueeze", ["score_", "one_"], ["score__"]),
        node("Cast", ["class"], ["class_"], to=T.FLOAT),
        node("Unsqueeze", ["class_", "one_"], ["class__"]),
        node("Concat", ["scaled", "score__", "class__"], ["y"], axis=1),
        node("Shape", ["y"], ["shape"]),
        node("Size", ["y"], ["size"]),
        node("Gather", ["shape", "one"], ["columns"], axis=0),  # constant
        node("Unsqueeze", ["columns", "zero"], ["columns_"]),
        node("ConstantOfShape", ["columns_"], ["zeros"]),
        node("Slice", ["shape", "one_", "two_"], ["last"]),
        node("Expand", ["zeros", "last"], ["z"]),
    ]
    constants = [
        number("most", 6), number("iou", 0.4, np.float32), number("score", 0.8, np.float32), number("two", 2),
        number("one", 1), number("zero", [0]), number("one_", [1]), number("two_", [2]), number("scale", [2, 2, 2, 2], np.float32),
    ]  # fmt: skip
    outputs = {"y": (T.FLOAT, 2), "picked": (T.INT64, 2), "shape": (T.INT64, 1), "size": (T.INT64, 0), "z": (T.FLOAT, 1)}
    inputs = detections(3, 1, 4, 24)
    return model(nodes, inputs, outputs, constants), inputs


@pytest.mark.parametrize("ranks", MESHES)
def test_detector(ranks):
    what, inputs = detector()
    compare(what, inputs, ranks)


def test_what_a_plan_gives(tmp_path):
    """Outputs have room for the largest possible number of elements; the actual number is an extra output."""
    what, inputs = detector()
    onnx.save(what, tmp_path / "m.onnx")
    plan = gridloom.compile(tmp_path / "m.onnx", tmp_path / "m.plan")
    with gridloom.load(plan) as session:
        results = session.run(inputs)
    assert set(results) == {"y", "picked", "shape", "size", "z", "y.dim0", "picked.dim0"}
    assert results["y"].shape == (24, 6) and results["picked"].shape == (24, 3)  # 1 batch, 4 classes, 6 each
    assert results["y.dim0"] == results["picked.dim0"] == results["shape"][0] < 24
    trimmed = backend.trim(results, ["y", "picked"])
    assert trimmed["y"].shape == (results["y.dim0"], 6)
    # Padding must be valid as indices.
    assert results["picked"].min() >= 0 and results["picked"][:, 2].max() < 24


def behind(*nodes, outputs=None, initializers=()):
    inputs = {"x": np.zeros((4, 3), np.float32)}
    outputs = outputs or {"y": (T.FLOAT, 2)}
    return model([node("NonZero", ["x"], ["i"]), *nodes], inputs, outputs, initializers)


def branching():
    branches = {
        name: helper.make_graph(
            [node("NonZero", ["x"], [name])], name, [], [helper.make_tensor_value_info(name, T.INT64, [2, None])]
        )
        for name in ("then", "else")
    }
    nodes = [
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Cast", ["m"], ["p"], to=T.BOOL),
        node("If", ["p"], ["y"], then_branch=branches["then"], else_branch=branches["else"]),
    ]
    return model(nodes, {"x": np.zeros((4, 3), np.float32)}, {"y": (T.INT64, 2)})


TO_FLOAT = node("Cast", ["i"], ["f"], to=T.FLOAT)
LOST = "reads a tensor whose length NonZero 'nonzero' computes at run time, and needs to know it; elementwise"
REFUSED = {
    "reduction": (behind(TO_FLOAT, node("ReduceSum", ["f", "a"], ["y"]), initializers=[number("a", [1])]), f"'reducesum' {LOST}"),
    "softmax": (behind(TO_FLOAT, node("Softmax", ["f"], ["y"])), f"'softmax' {LOST}"),
    "top k": (
        behind(TO_FLOAT, node("TopK", ["f", "k"], ["y", "z"]), initializers=[number("k", [1])]),
        f"'topk' {LOST}",
    ),
    "slice": (
        behind(TO_FLOAT, node("Slice", ["f", "a", "b", "b"], ["y"]), initializers=[number("a", [0]), number("b", [1])]),
        f"'slice' {LOST}",
    ),
    "joined along it": (behind(TO_FLOAT, node("Concat", ["f", "f"], ["y"], axis=1)), f"'concat' {LOST}"),
    "another length": (
        behind(node("NonZero", ["n"], ["j"]), node("Neg", ["x"], ["n"]), node("Add", ["i", "j"], ["y"]), outputs={"y": (T.INT64, 2)}),
        f"'add' {LOST}",
    ),
    "its shape": (
        behind(TO_FLOAT, node("Softmax", ["f"], ["s"]), node("Shape", ["s"], ["y"]), outputs={"y": (T.INT64, 1)}),
        f"'softmax' {LOST}",
    ),
    "a shape of it": (
        behind(node("Shape", ["i"], ["s"]), node("ConstantOfShape", ["s"], ["y"])),
        "ConstantOfShape 'constantofshape': input 'input' must be integers known at compile time",
    ),
    "a tensor of the padded size": (
        behind(TO_FLOAT, node("Add", ["f", "w"], ["y"]), initializers=[number("w", np.arange(12), np.float32)]),
        f"'add' {LOST}",
    ),
    "parts of it": (
        behind(node("SplitToSequence", ["i"], ["s"], axis=1), node("SequenceLength", ["s"], ["y"]), outputs={"y": (T.INT64, 0)}),
        "SplitToSequence 'splittosequence': splits dimension 1, whose length NonZero 'nonzero' computes at run time (at most 12)",
    ),
    "parts that make up what is there": (
        behind(TO_FLOAT, node("Split", ["f", "p"], ["y", "z"], axis=1), initializers=[number("p", [1, 1])]),
        "Split 'split': splits dimension 1, whose length NonZero 'nonzero' computes at run time (at most 12)",
    ),
    "a matrix of its shape": (
        behind(TO_FLOAT, node("EyeLike", ["f"], ["y"])),
        "EyeLike 'eyelike': takes its result's shape from a tensor whose length NonZero 'nonzero' computes at run time",
    ),
    "which of two ones": (
        model(
            [node("NonZero", ["x"], ["i"]), node("Unsqueeze", ["i", "a"], ["j"]), node("Neg", ["j"], ["y"])],
            {"x": np.zeros(1, np.float32)},
            {"y": (T.INT64, 3)},
            [number("a", [0])],
        ),
        f"'unsqueeze' {LOST}",
    ),
    "in a branch": (branching(), "NonZero 'nonzero': the length of its result depends on data, which is not supported in a branch or loop"),
    "a scalar": (
        model([node("NonZero", ["x"], ["y"])], {"x": np.float32(1)}, {"y": (T.INT64, 2)}),
        "NonZero 'nonzero': input is a scalar computed at run time; give it a dimension",
    ),
    "wide slices": (
        model([node("Unique", ["x"], ["y"], axis=0)], {"x": np.zeros((4, 65), np.float32)}, {"y": (T.FLOAT, 2)}),
        "Unique 'unique': compares slices of 65 elements, more than 64",
    ),
    "boxes": (
        model(
            [node("NonMaxSuppression", ["b", "s", "m"], ["y"])],
            {"b": np.zeros((1, 5, 4), np.float32), "s": np.zeros((1, 2, 6), np.float32)},
            {"y": (T.INT64, 2)},
            [number("m", 3)],
        ),
        "NonMaxSuppression 'nonmaxsuppression': boxes 'tensor<1x5x4xf32>' and scores 'tensor<1x2x6xf32>' are not floats",
    ),
    "how many at run time": (
        model(
            [node("NonMaxSuppression", ["b", "s", "m"], ["y"])],
            {"b": np.zeros((1, 5, 4), np.float32), "s": np.zeros((1, 2, 5), np.float32), "m": np.int64(1)},
            {"y": (T.INT64, 2)},
        ),
        "NonMaxSuppression 'nonmaxsuppression': input 'max_output_boxes_per_class' must be one number known at compile time",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, tmp_path):
    what, message = REFUSED[name]
    case = evaluate.evaluate(tmp_path, what)
    assert case.error is not None and message in case.error
    assert "\n" not in case.error


def test_a_name_that_is_taken(tmp_path):
    what = behind(node("Neg", ["x"], ["y.dim1"]), node("Identity", ["i"], ["y"]), outputs={"y": (T.INT64, 2), "y.dim1": (T.FLOAT, 2)})
    case = evaluate.evaluate(tmp_path, what)
    assert case.error is not None and "has the name of the length of 'y'; rename it" in case.error


def test_constants_are_of_their_length(tmp_path):
    """A result computed at import has its exact length."""
    what = model(
        [
            node("Compress", ["x", "k"], ["y"], axis=0),
            node("Unique", ["c"], ["u"]),
            node("NonZero", ["c"], ["n"]),
            node("NonZero", ["seven"], ["none"]),
        ],
        {"x": np.zeros((4, 3), np.float32)},
        {"y": (T.FLOAT, 2), "u": (T.INT64, 1), "n": (T.INT64, 2), "none": (T.INT64, 2)},
        [number("k", [1, 0, 1, 0], bool), number("c", [3, 0, 3]), number("seven", 7)],
    )
    case = evaluate.evaluate(tmp_path, what, [np.ones((4, 3), np.float32)])
    assert case.error is None, case.error
    assert case.names == ["y", "u", "n", "none"]
    assert case.imported[0].shape == (2, 3) and case.imported[1].tolist() == [0, 3] and case.imported[2].tolist() == [[0, 2]]
    assert case.imported[3].shape == (0, 1)  # which differs from numpy
