"""Functions that a model defines: their calls are expanded."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper

import evaluate

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
X = np.array([[-1.5, 0, 1], [2, -3, 0.5]], np.float32)


def ref(node, name, attribute, type):
    """The node, with attribute `name` referring to the function's `attribute`."""
    node.attribute.append(onnx.AttributeProto(name=name, ref_attr_name=attribute, type=type))
    return node


def function(name, inputs, outputs, nodes, attributes=(), defaults=(), opsets=None):
    return helper.make_function(
        "local", name, inputs, outputs, nodes, opsets or OPSETS, list(attributes), list(defaults)
    )


def call(op, inputs, outputs, name="", **attributes):
    return helper.make_node(op, inputs, outputs, name=name, domain="local", **attributes)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def model(nodes, functions, outputs=("y",), shape=(2, 3)):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", T.FLOAT, shape)],
        [helper.make_tensor_value_info(o, T.FLOAT, None) for o in outputs],
    )
    return helper.make_model(graph, opset_imports=OPSETS, functions=functions, ir_version=10)


def check(folder, what) -> evaluate.Case:
    case = evaluate.evaluate(folder, what, [X])
    assert case.error is None, case.error
    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(what.SerializeToString(), providers=["CPUExecutionProvider"])
    for outputs in (case.imported, case.simplified):
        for actual, want in zip(outputs, session.run(None, {"x": X}), strict=True):
            np.testing.assert_allclose(actual, want, rtol=1e-5)
    return case


LEAKY = function(
    "Leaky", ["a"], ["b"], [ref(node("LeakyRelu", ["a"], ["b"]), "alpha", "slope", onnx.AttributeProto.FLOAT)], ["slope"]
)


def test_attributes_come_from_the_call(tmp_path):
    what = model([call("Leaky", ["x"], ["t"], slope=0.25), call("Leaky", ["t"], ["y"], slope=0.5)], [LEAKY])
    check(tmp_path, what)


def test_attribute_the_call_does_not_give(tmp_path):
    check(tmp_path, model([call("Leaky", ["x"], ["y"])], [LEAKY]))


def test_attribute_with_a_default(tmp_path):
    leaky = function(
        "Leaky",
        ["a"],
        ["b"],
        [ref(node("LeakyRelu", ["a"], ["b"]), "alpha", "slope", onnx.AttributeProto.FLOAT)],
        defaults=[helper.make_attribute("slope", 0.75)],
    )
    check(tmp_path, model([call("Leaky", ["x"], ["t"]), call("Leaky", ["t"], ["y"], slope=0.5)], [leaky]))


def test_names_say_the_way(tmp_path):
    inner = function("Inner", ["a"], ["b"], [node("Exp", ["a"], ["b"])])
    outer = function("Outer", ["a"], ["b"], [call("Inner", ["a"], ["t"], name="in"), node("Neg", ["t"], ["b"], name="neg")])
    case = check(tmp_path, model([call("Outer", ["x"], ["y"], name="out")], [outer, inner]))
    text = (case.folder / "simplified.mlir").read_text()
    assert '"out/neg"' in text and '"out/in/Exp_0"' in text


def test_constants_and_equal_names(tmp_path):
    """A function's names do not clash with the graph's, and its constants may be large."""
    table = np.arange(900, dtype=np.float32).reshape(300, 3)
    body = [
        node("Constant", [], ["x"], value=onnx.numpy_helper.from_array(table)),
        node("Constant", [], ["i"], value_ints=[7, 299]),
        node("Gather", ["x", "i"], ["y"]),
        node("Add", ["y", "a"], ["b"]),
    ]
    check(tmp_path, model([call("F", ["x"], ["y"])], [function("F", ["a"], ["b"], body)]))


def test_optional_input_and_unused_output(tmp_path):
    clip = function("C", ["a", "low", "high"], ["b", "c"], [node("Clip", ["a", "low", "high"], ["b"]), node("Neg", ["a"], ["c"])])
    limit = node("Constant", [], ["h"], value_float=0.75)
    case = evaluate.evaluate(tmp_path, model([limit, call("C", ["x", "", "h"], ["y"])], [clip]), [X])
    assert case.error is None, case.error
    np.testing.assert_array_equal(case.simplified[0], np.minimum(X, 0.75))


def test_operator_sets_of_its_own(tmp_path):
    """Softmax of operator set 12 treats its operand as a matrix; that of 17 reduces one axis."""
    old = function("Old", ["a"], ["b"], [node("Softmax", ["a"], ["b"], axis=0)], opsets=[helper.make_opsetid("", 12)])
    case = evaluate.evaluate(tmp_path, model([call("Old", ["x"], ["t"]), node("Softmax", ["t"], ["y"], axis=0)], [old]), [X])
    assert case.error is None, case.error
    inner = np.exp(X) / np.exp(X).sum()
    np.testing.assert_allclose(case.simplified[0], np.exp(inner) / np.exp(inner).sum(axis=0), rtol=1e-5)


def test_nested_attribute_of_a_branch(tmp_path):
    """Attribute references work in subgraphs."""
    then = helper.make_graph(
        [ref(node("LeakyRelu", ["a"], ["t"]), "alpha", "slope", onnx.AttributeProto.FLOAT)],
        "then",
        [],
        [helper.make_tensor_value_info("t", T.FLOAT, None)],
    )
    other = helper.make_graph([node("Neg", ["a"], ["e"])], "else", [], [helper.make_tensor_value_info("e", T.FLOAT, None)])
    body = [
        node("Constant", [], ["c"], value=helper.make_tensor("c", T.BOOL, [], [1])),
        node("If", ["c"], ["b"], then_branch=then, else_branch=other),
    ]
    case = evaluate.evaluate(tmp_path, model([call("F", ["x"], ["y"], slope=0.5)], [function("F", ["a"], ["b"], body, ["slope"])]), [X])
    assert case.error is None, case.error
    np.testing.assert_allclose(case.simplified[0], np.where(X < 0, X * 0.5, X))


def refused(folder, what) -> str:
    case = evaluate.evaluate(folder, what, [X])
    assert case.error is not None and "\n" not in case.error
    return case.error


def test_recursion(tmp_path):
    one = function("One", ["a"], ["b"], [call("Two", ["a"], ["b"], name="t")])
    two = function("Two", ["a"], ["b"], [call("One", ["a"], ["b"], name="o")])
    assert "One 'c/t/o': function 'local.One' calls itself" in refused(tmp_path, model([call("One", ["x"], ["y"], name="c")], [one, two]))


def chain(length, calls):
    """F0 is one node; each further function calls the previous one `calls` times."""
    functions = [function("F0", ["a"], ["b"], [node("Neg", ["a"], ["b"])])]
    for i in range(1, length):
        names = ["a"] + [f"t{k}" for k in range(calls - 1)] + ["b"]
        body = [call(f"F{i - 1}", [a], [b]) for a, b in zip(names, names[1:])]
        functions.append(function(f"F{i}", ["a"], ["b"], body))
    return functions


@pytest.mark.parametrize("reverse", [False, True])
def test_too_deep(tmp_path, reverse):
    # Visiting the inner functions first must not hide the depth of the last.
    nodes = [call(f"F{i}", ["x"], [f"y{i}"]) for i in range(100)]
    what = model(nodes[::-1] if reverse else nodes, chain(100, 1), [f"y{i}" for i in range(100)])
    assert "nests calls more than 64 deep" in refused(tmp_path, what)


def test_too_many(tmp_path):
    what = model([call("F39", ["x"], ["y"])], chain(40, 2))
    assert "expand to more than 1048576 nodes" in refused(tmp_path, what)


def test_unsupported_operators_together(tmp_path):
    inner = function("Inner", ["a"], ["b"], [node("StringNormalizer", ["a"], ["b"], name="s")])
    outer = function("Outer", ["a"], ["b"], [call("Inner", ["a"], ["t"], name="i"), call("Gone", ["t"], ["b"], name="g")])
    what = model([call("Outer", ["x"], ["t"], name="o"), call("Outer", ["t"], ["u"], name="p"), node("StringNormalizer", ["u"], ["y"], name="m")], [inner, outer])
    error = refused(tmp_path, what)
    assert (
        "2 operators are not supported at opset 17: StringNormalizer (2 nodes: 'o/i/s', 'm'), local.Gone (1 node: 'o/g')"
        in error
    )


def test_too_many_inputs(tmp_path):
    what = model([call("Leaky", ["x", "x"], ["y"], name="c")], [LEAKY])
    assert "Leaky 'c': has 2 inputs and 1 outputs, but the function has 1 and 1" in refused(tmp_path, what)


def test_impossible_constant(tmp_path):
    huge = T(data_type=T.FLOAT, dims=[1 << 40, 1 << 20], raw_data=b"1234")
    body = [node("Constant", [], ["c"], value=huge), node("Add", ["a", "c"], ["b"])]
    what = model([call("F", ["x"], ["y"], name="f")], [function("F", ["a"], ["b"], body)])
    assert "is too large for a tensor of a subgraph" in refused(tmp_path, what)
