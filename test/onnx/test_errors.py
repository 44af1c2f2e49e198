"""Models that the importer refuses, with one line that names the place and the remedy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import evaluate


def value(name, shape, type=T.FLOAT):
    return helper.make_tensor_value_info(name, type, shape)


def model(nodes, inputs=(("x", [4]),), initializers=(), outputs=("y",), opset=17, **options):
    graph = helper.make_graph(
        nodes,
        "g",
        [i if isinstance(i, onnx.ValueInfoProto) else value(*i) for i in inputs],
        [value(name, None) for name in outputs],
        list(initializers),
    )
    opsets = [helper.make_opsetid("", opset)] if opset else []
    return helper.make_model(graph, opset_imports=opsets, ir_version=options.get("ir", 8))


def node(op, inputs, outputs=("y",), name="", **attributes):
    return helper.make_node(op, list(inputs), list(outputs), name=name, **attributes)


def ints(name, values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def external(name, shape, location, **entries):
    tensor = T(name=name, data_type=T.FLOAT, dims=shape, data_location=T.EXTERNAL)
    for key, text in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(text))
    return tensor


RELU = node("Relu", ["x"], name="r")


def nested_loops(depth: int):
    """Nested loops of 8 iterations each: 8 ** depth additions from a file of a few kilobytes."""
    body = [node("Add", ["c0", "c0"], ["o0"])]
    for level in range(depth):
        inputs = [value(f"i{level}", [], T.INT64), value(f"t{level}", [], T.BOOL), value(f"c{level}", [4])]
        outputs = [value(f"t{level}", [], T.BOOL), value(f"o{level}", [4])]
        graph = helper.make_graph(body, f"b{level}", inputs, outputs)
        body = [node("Loop", ["trips", "", f"c{level + 1}"], [f"o{level + 1}"], name=f"l{level}", body=graph)]
    body[0].input[2], body[0].output[0] = "x", "y"
    return model(body, initializers=[ints("trips", 8)])


def batched_scan(batch: int):
    graph = helper.make_graph([node("Neg", ["a"], ["b"])], "body", [value("a", [4])], [value("b", [4])])
    scan = node("Scan", ["", "x"], ["y"], name="s", num_scan_inputs=1, body=graph)
    return model([scan], [("x", [batch, 2, 4])], opset=8)


def branch(*inputs):
    """A graph for If, which must have no inputs."""
    return helper.make_graph([node("Neg", ["x"], ["z"])], "branch", [value(name, [4]) for name in inputs], [value("z", [4])])


REFUSALS = {
    "input of a branch": (
        model([node("If", ["c"], name="i", then_branch=branch(), else_branch=branch("q"))], [("x", [4]), value("c", [], T.BOOL)]),
        "graph 'branch' of node 'i' has 1 inputs, expected 0",
    ),
    "input of the branch taken": (
        model(
            [node("If", ["c"], name="i", then_branch=branch("q"), else_branch=branch())],
            initializers=[numpy_helper.from_array(np.array(True), "c")],
        ),
        "graph 'branch' of node 'i' has 1 inputs, expected 0",
    ),
    "unsupported operators together": (
        model(
            [
                node("StringNormalizer", ["x"], ["a"], name="c1"),
                node("StringNormalizer", ["a"], ["b"]),
                helper.make_node("Attend", ["b"], ["y"], name="t", domain="com.acme"),
            ]
        ),
        "2 operators are not supported at opset 17: StringNormalizer (2 nodes: 'c1', 'StringNormalizer_1'), com.acme.Attend (1 node: 't')",
    ),
    "kernel larger than the input": (
        model(
            [node("Conv", ["x", "w"], name="c")],
            [("x", [1, 2, 4, 4])],
            [numpy_helper.from_array(np.zeros([3, 2, 7, 3], np.float32), "w")],
        ),
        "Conv 'c': a window of 7 does not fit into spatial dimension 0, which has 4 elements with padding",
    ),
    "channels of a convolution": (
        model(
            [node("Conv", ["x", "w"], name="c", group=2)],
            [("x", [1, 4, 4, 4])],
            [numpy_helper.from_array(np.zeros([4, 4, 1, 1], np.float32), "w")],
        ),
        "Conv 'c': weight [4, 4, 1, 1] in 2 groups does not fit 4 input channels",
    ),
    "kernel_shape of another rank": (
        model([node("MaxPool", ["x"], name="p", kernel_shape=[2, 2])], [("x", [1, 2, 8])]),
        "MaxPool 'p': kernel_shape has 2 numbers, expected 1",
    ),
    "sizes computed at run time": (
        model(
            [node("Resize", ["x", "", "", "s"], name="r")],
            [("x", [1, 1, 4, 4]), value("s", [4], T.INT64)],
        ),
        "Resize 'r': sizes is not known at compile time; make it an initializer",
    ),
    "samples that depend on regions": (
        model(
            [node("RoiAlign", ["x", "rois", "i"], name="r")],
            [("x", [1, 1, 4, 4]), ("rois", [2, 4]), value("i", [2], T.INT64)],
        ),
        "RoiAlign 'r': sampling_ratio is 0, which makes the number of samples depend on the regions; give it",
    ),
    "unbound dimension": (
        model([RELU], [("x", ["batch", 4])]),
        "give batch a size: --dim batch=SIZE",
    ),
    "nameless dimension": (
        model([RELU], [("x", [None, 4])]),
        "give x.0 a size: --dim x.0=SIZE",
    ),
    "no shape": (model([RELU], [value("x", None)]), "input 'x' has no shape"),
    "cycle": (
        model([node("Add", ["x", "b"], ["a"], "n1"), node("Relu", ["a"], ["b"], "n2"), node("Relu", ["b"], name="n3")]),
        "node 'n1' is on a cycle or reads one; 3 nodes cannot be ordered",
    ),
    "defined twice": (model([RELU, node("Relu", ["x"], name="s")]), "'y' is defined more than once"),
    "reads nothing": (
        model([node("Add", ["x", "q"], name="a")]),
        "Add 'a': reads 'q', which no input, initializer or node provides",
    ),
    "an output twice": (model([RELU], outputs=["y", "y"]), "output 'y' is listed twice; list it once in the model"),
    "no such output": (model([RELU], outputs=["z"]), "reads 'z', which no input, initializer or node provides"),
    "opset too new": (model([RELU], opset=99), "opset 99 is not one of 1 to 28"),
    "operator of an old opset": (
        model([node("Add", ["x", "x"], name="a")], opset=6),
        "1 operator is not supported at opset 6: Add (1 node: 'a'); convert the model to opset 7 or newer",
    ),
    "layout of one processor": (
        model([helper.make_node("Conv", ["x", "x"], ["y"], name="c", domain="com.microsoft.nchwc")]),
        "com.microsoft.nchwc.Conv (1 node: 'c'); nchwc is ONNX Runtime's layout for one processor: save the model",
    ),
    "computing with 4-bit integers": (
        model([node("Neg", ["x"], name="n")], [value("x", [4], T.INT4)], opset=21),
        "Neg 'n': nothing is computed of operand 0, 'tensor<4xi4>'; convert it (Cast, DequantizeLinear)",
    ),
    "4-bit and 8-bit integers": (
        model([node("Concat", ["x", "b"], name="c", axis=0)], [value("x", [4], T.INT4), value("b", [4], T.INT8)], opset=21),
        "Concat 'c': operands 1 and 0 are of 'i8' and 'i4'; convert one (Cast)",
    ),
    "4-bit integers as others": (
        model([node("Identity", ["x"], name="i")], [value("x", [4], T.INT4)], opset=21),
        "output 'y' is declared as FLOAT, but computed as 'tensor<4xi4>'",
    ),
    "packed bytes": (
        model(
            [node("DequantizeLinear", ["w", "x"], name="d")],
            [("x", [])],
            [T(name="w", data_type=T.INT4, dims=[3, 5], raw_data=b"1234567")],
            opset=21,
        ),
        "'w' has 7 bytes of data, but its shape [3, 5] of i4 takes 8",
    ),
    "no opset": (model([RELU], opset=0), "imports no version of the standard operator set"),
    "IR version": (model([RELU], ir=99), "IR version 99 is not one of 3 to "),
    "operator before its time": (
        model([node("Gelu", ["x"], name="g")], opset=17),
        "1 operator is not supported at opset 17: Gelu (1 node: 'g')",
    ),
    "input type": (model([RELU], [value("x", [4], T.STRING)]), "input 'x' has element type STRING"),
    "initializer type": (
        model([node("Add", ["x", "w"], name="a")], initializers=[helper.make_tensor("w", T.COMPLEX64, [2], [1j, 2j])]),
        "Add 'a': initializer 'w' has element type COMPLEX64, which is not supported",
    ),
    "cast type": (model([node("Cast", ["x"], name="c", to=T.STRING)]), "Cast 'c': element type STRING is not"),
    "computing with 8-bit floats": (
        model([node("Cast", ["x"], ["q"], name="c", to=T.FLOAT8E5M2), node("Add", ["q", "q"], name="a")]),
        "Add 'a': nothing is computed of operand 0, 'tensor<4xf8E5M2>'; convert it (Cast, DequantizeLinear)",
    ),
    "function of integers": (
        model([node("Exp", ["x"], name="e")], [value("x", [4], T.INT32)]),
        "Exp 'e': operand 0 is 'tensor<4xi32>', expected floats; convert it (Cast)",
    ),
    "softmax of integers": (
        model([node("Softmax", ["x"], name="s")], [value("x", [4], T.INT32)]),
        "Softmax 's': operand 0 is 'tensor<4xi32>', expected floats; convert it (Cast)",
    ),
    "scales of a scalar": (
        model(
            [node("QLinearMatMul", ["x", "s", "z", "x", "s", "z", "s", "v"], name="q")],
            [value("x", [4], T.UINT8), ("s", []), value("z", [], T.UINT8), value("v", [4], T.UINT8)],
        ),
        "QLinearMatMul 'q': scale or zero point [4] does not fit []",
    ),
    "bits of floats": (
        model([node("And", ["b", "x"], name="a")], [("x", [4]), value("b", [4], T.BOOL)]),
        "And 'a': operand 1 is 'tensor<4xf32>', expected integers or booleans; convert it (Cast)",
    ),
    "mixed types": (
        model([node("Add", ["x", "i"], name="a")], [("x", [4]), value("i", [4], T.INT64)]),
        "Add 'a': operands 'tensor<4xf32>' and 'tensor<4xi64>' differ in element type",
    ),
    "broadcast": (
        model([node("Add", ["x", "z"], name="a")], [("x", [4]), ("z", [3])]),
        "Add 'a': shapes [4] and [3] do not broadcast",
    ),
    "matmul": (
        model([node("MatMul", ["x", "z"], name="m")], [("x", [2, 4]), ("z", [3, 5])]),
        "MatMul 'm': operands [2, 4] and [3, 5] cannot be multiplied: 4 columns times 3 rows",
    ),
    "reshape": (
        model([node("Reshape", ["x", "s"], name="r")], initializers=[ints("s", [3, -1])]),
        "Reshape 'r': cannot reshape [4] to [3, -1]",
    ),
    "reshape keeps nothing": (
        model([node("Reshape", ["x", "s"], name="r")], initializers=[ints("s", [4, 0])]),
        "Reshape 'r': shape [4, 0] keeps dimension 1 of an input of rank 1",
    ),
    "shape at run time": (
        model([node("Reshape", ["x", "s"], name="r")], [("x", [4]), value("s", [2], T.INT64)]),
        "Reshape 'r': input 'shape' must be integers known at compile time, but is computed at run time",
    ),
    "axis": (model([node("Softmax", ["x"], name="s", axis=3)]), "Softmax 's': axis 3 is not a dimension"),
    "attribute type": (model([node("Softmax", ["x"], name="s", axis=0.5)]), "attribute 'axis' is FLOAT, expected INT"),
    "missing operand": (model([node("Add", ["x"], name="a")]), "Add 'a': input 1 is missing"),
    "absent operand": (model([node("Add", ["x", ""], name="a")]), "Add 'a': input 1 is missing"),
    "gather outside": (
        model([node("Gather", ["x", "i"], name="g")], initializers=[ints("i", [0, -5])]),
        "Gather 'g': index -5 is outside of dimension 0 of [4]",
    ),
    "slice step": (
        model(
            [node("Slice", ["x", "s", "e", "a", "t"], name="s")],
            initializers=[ints("s", [0]), ints("e", [2]), ints("a", [0]), ints("t", [0])],
        ),
        "Slice 's': step of axis 0 is 0",
    ),
    "targets of a loss": (
        model(
            [node("NegativeLogLikelihoodLoss", ["x", "t"], name="l")],
            [value("x", [3, 5, 2]), value("t", [3, 5], T.INT64)],
        ),
        "NegativeLogLikelihoodLoss 'l': targets are [3, 5], expected [3, 2]",
    ),
    "weights of a loss": (
        model(
            [node("SoftmaxCrossEntropyLoss", ["x", "t", "w"], name="l")],
            [value("x", [3, 5]), value("t", [3], T.INT64), value("w", [3])],
        ),
        "SoftmaxCrossEntropyLoss 'l': weights are [3] for 5 classes",
    ),
    "reduction of a loss": (
        model(
            [node("SoftmaxCrossEntropyLoss", ["x", "t"], name="l", reduction="max")],
            [value("x", [3, 5]), value("t", [3], T.INT64)],
        ),
        "SoftmaxCrossEntropyLoss 'l': reduction 'max' is not one of none, sum, mean",
    ),
    "huge": (
        model([node("Expand", ["x", "s"], name="e")], initializers=[ints("s", [1 << 40, 1 << 40, 4])]),
        "the result would have the impossible shape",
    ),
    "sizes of a diagonal": (
        model([node("Einsum", ["x"], name="e", equation="ii->i")], [("x", [3, 4])]),
        "Einsum 'e': equation 'ii->i' gives 'i' sizes 3 and 4",
    ),
    "axis of a transform": (
        model([node("DFT", ["x", "", "a"], name="d")], [("x", [2, 8, 1])], [ints("a", -1)], opset=20),
        "DFT 'd': axis -1 is not a dimension of a tensor of rank 3 before its last",
    ),
    "attribute of a transform": (
        model([node("DFT", ["x"], name="d", axis=-4)], [("x", [2, 8, 1])]),
        "DFT 'd': axis -4 is not a dimension of a tensor of rank 3 before its last",
    ),
    "length of a transform": (
        model([node("DFT", ["x", "n"], name="d")], [("x", [2, 8, 1])], [ints("n", 1 << 62)], opset=20),
        "DFT 'd': dft_length is 4611686018427387904, expected 1 to 1048576",
    ),
    "negative length of a transform": (
        model([node("DFT", ["x", "n"], name="d")], [("x", [2, 8, 1])], [ints("n", -8)], opset=20),
        "DFT 'd': dft_length is -8, expected 1 to 1048576",
    ),
    "prime length of a transform": (
        model([node("DFT", ["x", "n"], name="d")], [("x", [2, 8, 1])], [ints("n", 16381)], opset=20),
        "DFT 'd': a transform of 16381 points cannot be cut into shorter ones and needs a matrix of 536674322 elements",
    ),
    "input of a transform": (
        model([node("DFT", ["x"], name="d")], [("x", [2, 8, 3])]),
        "is not of real or complex floats, [..., 1] or [..., 2]",
    ),
    "half of a complex spectrum": (
        model([node("DFT", ["x"], name="d", onesided=1)], [("x", [2, 8, 2])]),
        "DFT 'd': onesided is of a real input, or of a complex one that is transformed back, not of [2, 8, 2]",
    ),
    "step of frames": (
        model([node("STFT", ["x", "s"], name="d")], [("x", [2, 8, 1])], [ints("s", 0)]),
        "STFT 'd': frame_step is 0",
    ),
    "length of frames": (
        model([node("STFT", ["x", "s", "", "n"], name="d")], [("x", [2, 8, 1])], [ints("s", 2), ints("n", 9)]),
        "STFT 'd': frames of 9 samples do not fit a signal of 8",
    ),
    "window of frames": (
        model([node("STFT", ["x", "s", "w", "n"], name="d")], [("x", [2, 8, 1]), ("w", [5])], [ints("s", 2), ints("n", 4)]),
        "STFT 'd': frames of 4 samples do not fit a window of 5",
    ),
    "nested loops": (nested_loops(9), "and its loops with --unroll 8, expand to more than 1048576 nodes"),
    "batched scan": (batched_scan(5000), "Scan 's': scans a batch of 5000; opset 8 batches of at most 1024"),
    "padding of nothing": (
        model([node("Pad", ["x", "p"], name="p", mode="wrap")], [("x", [2])], [ints("p", [-2, 3])], opset=19),
        "Pad 'p': dimension 0 of [0] has no elements to repeat in mode 'wrap'; pad with a constant",
    ),
    "padding table": (
        model([node("Pad", ["x", "p"], name="p", mode="edge")], [("x", [2])], [ints("p", [(1 << 30) - 1, 0])], opset=19),
        "Pad 'p': dimension 0 would have 1073741825 elements, of at most 16777216 in mode 'edge'; pad with a constant",
    ),
    "kernel table": (
        model([node("ConvTranspose", ["x", "w"], name="c")], [("x", [1, 1, 1]), ("w", [1, 1, 1 << 30])]),
        "ConvTranspose 'c': a kernel of 1073741824 elements is larger than the 16777216 that can be mirrored",
    ),
    "blocks of scales": (
        model(
            [node("DequantizeLinear", ["x", "s"], name="d", axis=0, block_size=1 << 39)],
            [value("x", [1 << 40], T.UINT8), ("s", [2])],
            opset=21,
        ),
        "DequantizeLinear 'd': dimension 0 of [1099511627776] has more than the 16777216 elements that can be scaled in blocks",
    ),
    "blocks of an image": (
        model(
            [node("Col2Im", ["x", "i", "b"], name="c")],
            [("x", [1, 4, 1])],
            [ints("i", [65536] * 4), ints("b", [65536] * 4)],
            opset=18,
        ),
        "Col2Im 'c': cannot make images of [65536, 65536, 65536, 65536] from blocks of [65536, 65536, 65536, 65536] in [1, 4, 1]",
    ),
    "rank of indices": (
        model([node("GatherND", ["x", "i"], name="g")], initializers=[ints("i", 1)]),
        "GatherND 'g': indices [] do not index [4] from dimension 0 on",
    ),
    "condition of integers": (
        model(
            [node("Constant", [], ["c"], value=ints("", [1, 0])), node("Constant", [], ["f"], value_floats=[1.0, 2.0]),
             node("Where", ["c", "f", "f"], name="w")]
        ),
        "Where 'w': the condition is 'tensor<2xi64>', expected booleans; convert it (Cast)",
    ),
    "bounds of another type": (
        model([node("Constant", [], ["f"], value_floats=[1.0, 2.0]), node("Clip", ["f", "i"], name="c")], initializers=[ints("i", 1)]),
        "'loom.maximum' op",
    ),
    "rank of a constant": (
        model(
            [node("Constant", [], ["c"], value=T(data_type=T.FLOAT, dims=[1] * 100 + [2], raw_data=bytes(8))),
             node("Neg", ["c"])]
        ),
        "has 101 dimensions, of at most 64",
    ),
    "rank of an input": (
        model([RELU], [("x", [1] * 100)]),
        "input 'x' has the impossible shape [1, 1, 1, 1, 1, 1, 1, 1, ... of 100 dimensions]",
    ),
    "classes": (
        model(
            [node("OneHot", ["i", "d", "v"], name="o")],
            [value("i", [1000], T.INT64)],
            [ints("d", 1 << 40), numpy_helper.from_array(np.float32([0, 1]), "v")],
        ),
        "OneHot 'o': the result would have the impossible shape [1000, 1099511627776]",
    ),
    "resize table": (
        model(
            [node("Resize", ["x", "", "k"], name="r", mode="cubic")],
            [("x", [1 << 22])],
            initializers=[helper.make_tensor("k", T.FLOAT, [1], [2.0])],
        ),
        "Resize 'r': cannot resize a dimension of 4194304 to 8388608: its table would have 4 times 8388608 entries",
    ),
    "padded windows": (
        model([node("AveragePool", ["x"], name="p", kernel_shape=[2], pads=[1, 0])], [("x", [1, 1, 1 << 31])]),
        "AveragePool 'p': has 2147483648 windows along the padded dimension 2 of [1, 1, 2147483648], more than 16777216",
    ),
    "escape": (model([node("Add", ["x", "w"])], initializers=[external("w", [4], "../w")]), "leads out of the model's folder"),
    "absolute": (model([node("Add", ["x", "w"])], initializers=[external("w", [4], "/etc/passwd")]), "not a path inside the"),
    "missing file": (model([node("Add", ["x", "w"])], initializers=[external("w", [4], "none")]), "cannot be found beside"),
    "short file": (
        model([node("Add", ["x", "w"])], initializers=[external("w", [4], "dims", offset=1 << 20)]),
        "'w' takes 16 bytes at 1048576 of ",
    ),
    "wrong size": (
        model([node("Add", ["x", "w"])], initializers=[T(name="w", data_type=T.FLOAT, dims=[4], raw_data=b"12345678")]),
        "'w' has 8 bytes of data, but its shape [4] of f32 takes 16",
    ),
    "not a model": (b"\x3a\x05hello", "is not a valid ONNX file"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused(name, tmp_path):
    what, message = REFUSALS[name]
    case = evaluate.evaluate(tmp_path, what)
    assert case.error is not None and message in case.error
    assert "\n" not in case.error and not case.error.endswith(".")


@pytest.mark.parametrize(
    "dims, message",
    [
        ("batch=2\nrows=3", "no input has a dimension 'rows'; the model's are: batch"),
        ("batch", "--dim batch is not NAME=SIZE[,SIZE]..., e.g. --dim batch=1,8"),
        ("batch=x", "--dim batch=x is not NAME=SIZE"),
        ("batch=0", "--dim batch=0: 0 is not a size"),
        ("batch=2,2", "--dim batch=2,2 lists 2 twice"),
        ("batch=2\nbatch=3", "--dim gives 'batch' twice; list its sizes as batch=SIZE,SIZE"),
    ],
)
def test_dims(tmp_path, dims, message):
    case = evaluate.evaluate(tmp_path, model([RELU], [("x", ["batch", 4])]), [], dims)
    assert case.error is not None and message in case.error


def test_unsupported_nodes_nobody_needs(tmp_path):
    what = model([RELU, node("Conv", ["x", "x"], ["unused"])])
    x = np.array([-1, 0, 1, 2], np.float32)
    case = evaluate.evaluate(tmp_path, what, [x])
    assert case.error is None, case.error
    np.testing.assert_array_equal(case.simplified[0], np.maximum(x, 0))


def test_unsorted_nodes(tmp_path):
    what = model([node("Neg", ["a"]), node("Relu", ["x"], ["a"])])
    x = np.array([-1, 0, 1, 2], np.float32)
    case = evaluate.evaluate(tmp_path, what, [x])
    assert case.error is None, case.error
    np.testing.assert_array_equal(case.simplified[0], -np.maximum(x, 0))
