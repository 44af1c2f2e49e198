"""Sequences, all of which the import removes: against ONNX Runtime, compiled for 1, 2 and 4 ranks."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import evaluate
from suite import backend

MESHES = {1: "", 2: "x=2", 4: "x=2,y=2"}
X = np.arange(48, dtype=np.float32).reshape(6, 8) / 7


def tensor(name, shape, type=T.FLOAT):
    return helper.make_tensor_value_info(name, type, shape)


def sequence(name, type=T.FLOAT):
    return helper.make_tensor_sequence_value_info(name, type, None)


def ints(name, values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def model(nodes, outputs, initializers=(), inputs=(("x", [6, 8]),)):
    inputs = [i if not isinstance(i, tuple) else tensor(*i) for i in inputs]
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def node(op, inputs, outputs=("y",), **attributes):
    return helper.make_node(op, list(inputs), list(outputs), name=op.lower(), **attributes)


def edit():
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Neg", ["x"], ["b"]),
        node("SequenceConstruct", ["x", "a"], ["s"]),
        node("SequenceInsert", ["s", "b", "first"], ["t"]),  # b x a
        node("SequenceInsert", ["t", "a"], ["u"]),  # b x a a
        node("SequenceInsert", ["u", "b", "end"], ["v"]),  # b x a a b
        node("SequenceErase", ["v", "last"], ["w"]),  # b x a b
        node("SequenceErase", ["w"], ["z"]),  # b x a
        node("Identity", ["z"], ["i"]),
        node("SequenceAt", ["i", "last"], ["y"]),
        node("SequenceLength", ["i"], ["n"]),
        node("ConcatFromSequence", ["i"], ["c"], axis=1),
        node("ConcatFromSequence", ["i"], ["k"], axis=-1, new_axis=1),
    ]
    outputs = [tensor("y", [6, 8]), tensor("n", [], T.INT64), tensor("c", [6, 24]), tensor("k", [6, 8, 3])]
    return model(nodes, outputs, [ints("first", -2), ints("end", 4), ints("last", -2)])


def split():
    nodes = [
        node("SplitToSequence", ["x", "three"], ["s"], axis=1),
        node("SplitToSequence", ["x", "parts"], ["t"], axis=0),
        node("SplitToSequence", ["x"], ["u"], axis=0, keepdims=0),
        *(node("SequenceAt", [s, "last"], [f"y{s}"]) for s in "stu"),
    ]
    outputs = [tensor("ys", [6, 2]), tensor("yt", [3, 8]), tensor("yu", [8])]
    return model(nodes, outputs, [ints("three", 3), ints("parts", [1, 2, 3]), ints("last", -1)])


def grow():
    """A loop that collects rows, starting from an empty sequence."""
    body = helper.make_graph(
        [
            node("Gather", ["x", "i"], ["row"], axis=0),
            node("SequenceInsert", ["s_in", "row"], ["s_out"]),
            node("Identity", ["c"], ["go"]),
        ],
        "body",
        [tensor("i", [], T.INT64), tensor("c", [], T.BOOL), sequence("s_in")],
        [tensor("go", [], T.BOOL), sequence("s_out")],
    )
    nodes = [
        node("SequenceEmpty", [], ["e"]),
        node("Loop", ["trips", "", "e"], ["s"], body=body),
        node("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=1),
    ]
    return model(nodes, [tensor("y", [5, 8])], [ints("trips", 5)])


def branch():
    """Both branches return a sequence and read one from outside; which branch runs is known only at run time."""
    graphs = {
        name: helper.make_graph(
            [
                node("SequenceAt", ["s", "zero"], [name + "a"]),
                node(op, [name + "a"], [name + "b"]),
                node("SequenceConstruct", [name + "b", name + "a"], [name]),
            ],
            name,
            [],
            [sequence(name)],
        )
        for name, op in (("then", "Neg"), ("else", "Relu"))
    }
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Greater", ["m", "limit"], ["p"]),
        node("If", ["p"], ["t"], then_branch=graphs["then"], else_branch=graphs["else"]),
        node("ConcatFromSequence", ["t"], ["y"], axis=1),
    ]
    return model(nodes, [tensor("y", [6, 16])], [ints("zero", 0), numpy_helper.from_array(np.float32(3), "limit")])


def apply():
    body = helper.make_graph(
        [node("MatMul", ["a", "w"], ["b"]), node("ReduceSum", ["a"], ["r"], keepdims=0)],
        "body",
        [tensor("a", None), tensor("w", [8, 4])],
        [tensor("b", None), tensor("r", None)],
    )
    nodes = [
        node("SplitToSequence", ["x", "parts"], ["s"], axis=0),
        node("SequenceMap", ["s", "w"], ["t", "q"], body=body),
        node("ConcatFromSequence", ["t"], ["y"], axis=0),
        node("ConcatFromSequence", ["q"], ["z"], axis=0, new_axis=1),
    ]
    return model(nodes, [tensor("y", [6, 4]), tensor("z", [2])], [ints("parts", [4, 2])], [("x", [6, 8]), ("w", [8, 4])])


@pytest.mark.parametrize("ranks", MESHES)
@pytest.mark.parametrize("make", [edit, split, grow, branch, apply])
def test_sequences(make, ranks):
    what = make()
    for number, each in enumerate(what.graph.node):  # ONNX Runtime wants them to differ
        each.name += str(number)
    inputs = [X, np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)][: len(what.graph.input)]
    given = {i.name: a for i, a in zip(what.graph.input, inputs)}
    session = onnxruntime.InferenceSession(what.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, given)
    strategy = f"random:{ranks}" if ranks > 1 else None
    for want, got in zip(expected, backend.run_model(what, inputs, mesh=MESHES[ranks], strategy=strategy), strict=True):
        assert got.shape == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def endless():
    what = grow()
    what.graph.input.append(tensor("trips", [], T.INT64))
    del what.graph.initializer[:]
    return what


PAIR = node("SequenceConstruct", ["x", "x"], ["s"])
REFUSED = {
    "output": (model([PAIR], [sequence("s")]), "output 's' is a sequence; only tensors can be given"),
    "input": (
        model([node("SequenceLength", ["q"])], [tensor("y", [], T.INT64)], inputs=[sequence("q")]),
        "input 'q' is a sequence; only tensors can be given",
    ),
    "a tensor is wanted": (
        model([PAIR, node("Neg", ["s"])], [tensor("y", None)]),
        "Neg 'neg': operand 0 is a sequence; take a tensor of it (SequenceAt) or join them (ConcatFromSequence)",
    ),
    "a sequence is wanted": (
        model([node("SequenceAt", ["x", "p"])], [tensor("y", None)], [ints("p", 0)]),
        "SequenceAt 'sequenceat': input 0 is 'tensor<6x8xf32>', expected a sequence",
    ),
    "a tensor in a sequence is wanted": (
        model([PAIR, node("SequenceConstruct", ["s"], ["t"])], [sequence("t")]),
        "SequenceConstruct 'sequenceconstruct': input 0 is a sequence, expected a tensor",
    ),
    "position": (
        model([PAIR, node("SequenceAt", ["s", "p"])], [tensor("y", None)], [ints("p", 2)]),
        "SequenceAt 'sequenceat': position [2] is not one of the sequence's 2",
    ),
    "negative position": (
        model([PAIR, node("SequenceErase", ["s", "p"], ["y"])], [sequence("y")], [ints("p", -3)]),
        "SequenceErase 'sequenceerase': position [-3] is not one of the sequence's 2",
    ),
    "position at run time": (
        model([PAIR, node("SequenceAt", ["s", "p"])], [tensor("y", None)], inputs=[("x", [6, 8]), tensor("p", [], T.INT64)]),
        "SequenceAt 'sequenceat': input 'position' must be integers known at compile time",
    ),
    "nothing to join": (
        model([node("SequenceEmpty", [], ["s"]), node("ConcatFromSequence", ["s"], axis=0)], [tensor("y", None)]),
        "ConcatFromSequence 'concatfromsequence': joins an empty sequence",
    ),
    "shapes to join": (
        model(
            [node("Transpose", ["x"], ["t"]), node("SequenceConstruct", ["x", "t"], ["s"]), node("ConcatFromSequence", ["s"], axis=0)],
            [tensor("y", None)],
        ),
        "ConcatFromSequence 'concatfromsequence': tensors [6, 8] and [8, 6] cannot be joined along axis 0",
    ),
    "parts": (
        model([node("SplitToSequence", ["x", "p"], ["s"]), node("SequenceLength", ["s"])], [tensor("y", [], T.INT64)], [ints("p", [1, 9])]),
        "SplitToSequence 'splittosequence': parts [1, 9] do not make up 6",
    ),
    "size of parts": (
        model([node("SplitToSequence", ["x", "p"], ["s"]), node("SequenceLength", ["s"])], [tensor("y", [], T.INT64)], [ints("p", 0)]),
        "SplitToSequence 'splittosequence': cannot split 6 into parts of 0",
    ),
    "many parts": (
        model([node("SplitToSequence", ["x"], ["s"]), node("SequenceLength", ["s"])], [tensor("y", [], T.INT64)], inputs=[("x", [1 << 30])]),
        "SplitToSequence 'splittosequence': cannot split 1073741824 into parts of 1, at most 4096",
    ),
    "a loop that is not unrolled": (endless(), "Loop 'loop': carries a sequence, but its loop cannot be unrolled; that needs a constant number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, tmp_path):
    what, message = REFUSED[name]
    case = evaluate.evaluate(tmp_path, what)
    assert case.error is not None and message in case.error
    assert "\n" not in case.error
