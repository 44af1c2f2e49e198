"""Models in the form that PyTorch's exporters write: small ones built here node by node, and real exports."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from conftest import onnxruntime_session
from onnx import TensorProto, helper, numpy_helper


class Graph:
    """Builds a model node by node, with the given names, so that tests can refer to them."""

    def __init__(self, opset: int = 20):
        self.opset = opset
        self.nodes, self.initializers, self.inputs, self.outputs = [], [], [], []
        self.random = np.random.default_rng(0)

    def input(self, name: str, shape, dtype=TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name: str, shape, dtype=TensorProto.FLOAT) -> str:
        self.outputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def weight(self, name: str, *shape: int, scale: float = 0.2) -> str:
        return self.constant(name, (self.random.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, name: str, array) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *values: int) -> str:
        name = "ints_" + "_".join(map(str, values)).replace("-", "m")
        if all(known.name != name for known in self.initializers):
            self.constant(name, np.array(values, np.int64))
        return name

    def add(self, operator: str, name: str, *inputs: str, **attributes) -> str:
        """Appends a node `name` with one output of the same name."""
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def save(self, path) -> "onnx.ModelProto":
        graph = helper.make_graph(self.nodes, "main_graph", self.inputs, self.outputs, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)
        return model


def test_constant_that_is_small_in_16_bits(tools, tmp_path):
    """A mask is expanded to 128 KiB in f32, which is above the folding limit, but 64 KiB in bf16, which is exactly the limit."""
    graph = Graph()
    graph.input("x", [4, 1, 128, 64])
    mask = np.random.default_rng(1).integers(0, 3, (1, 1, 128, 64)).astype(np.float32)
    graph.add("Constant", "mask", value=numpy_helper.from_array(mask))
    graph.add("Expand", "all", "mask", graph.ints(4, 1, 128, 64))
    graph.add("Add", "sum", "x", "all")
    graph.constant("w", np.eye(64, dtype=np.float32))
    graph.add("MatMul", "y", "sum", "w")
    graph.output("y", [4, 1, 128, 64])
    graph.save(tmp_path / "model.onnx")
    tools.compile(tmp_path / "model.onnx", tmp_path / "model.plan", "--precision", "bf16")
    x = np.random.default_rng(0).integers(-4, 4, (4, 1, 128, 64)).astype(np.float32)
    run = tools.run(tmp_path / "model.plan", {"x": x}, tmp_path)
    np.testing.assert_array_equal(run.outputs["y"], x + mask)


BATCH, ROWS, HEADS, DEPTH = 2, 6, 4, 8
WIDTH = HEADS * DEPTH


def norm(graph: Graph, name: str, x: str, bias: str) -> str:
    scale = "ones" if any(known.name == "ones" for known in graph.initializers) else None
    scale = scale or graph.constant("ones", np.ones(WIDTH, np.float32))
    return graph.add("LayerNormalization", name, x, scale, bias, axis=-1)


def linear(graph: Graph, name: str, x: str, columns: int, bias: str | None = None, rows: int = WIDTH) -> str:
    """MatMul, and Add if `bias` names an initializer, which several layers may share."""
    product = graph.add("MatMul", name, x, graph.weight(f"{name}.weight", rows, columns))
    return graph.add("Add", f"{name}/add", product, bias) if bias else product


def split_heads(graph: Graph, name: str, x: str) -> str:
    view = graph.add("Reshape", f"{name}/view", x, graph.ints(BATCH, ROWS, HEADS, DEPTH))
    return graph.add("Transpose", f"{name}/heads", view, perm=[0, 2, 1, 3])


def mlp(graph: Graph, x: str, bias: str) -> str:
    up = linear(graph, "up", x, 4 * WIDTH)
    return linear(graph, "down", graph.add("Gelu", "gelu", up), WIDTH, bias, rows=4 * WIDTH)


def dynamo_attention(graph: Graph) -> None:
    """The dynamo exporter below opset 23: keys are transposed with batch and heads merged, and NaNs are masked. All biases are zero, and
    so one initializer: of the norms, of query, key and value, and after the row-split products."""
    x = graph.input("x", [BATCH, ROWS, WIDTH])
    zeros = graph.constant("zeros", np.zeros(WIDTH, np.float32))
    normed = norm(graph, "norm", x, zeros)
    query, key, value = (
        split_heads(graph, name, linear(graph, name, normed, WIDTH, zeros)) for name in ("query", "key", "value")
    )
    merged = graph.add("Reshape", "key/merged", key, graph.ints(-1, ROWS, DEPTH))
    turned = graph.add("Transpose", "key/turned", merged, perm=[0, 2, 1])
    key = graph.add("Reshape", "key/split", turned, graph.ints(BATCH, HEADS, DEPTH, ROWS))
    scale = graph.constant("scale", np.float32(DEPTH**-0.25))
    scores = graph.add(
        "MatMul", "scores", graph.add("Mul", "query/scaled", query, scale), graph.add("Mul", "key/scaled", key, scale)
    )
    weights = graph.add("Softmax", "softmax", scores, axis=-1)
    nan = graph.add("IsNaN", "nan", weights)
    weights = graph.add("Where", "where", nan, graph.constant("nothing", np.float32(0)), weights)
    mixed = graph.add("Transpose", "mixed", graph.add("MatMul", "mix", weights, value), perm=[0, 2, 1, 3])
    flat = graph.add("Reshape", "flat", mixed, graph.ints(BATCH, ROWS, WIDTH))
    first = graph.add("Add", "residual", x, linear(graph, "out", flat, WIDTH, zeros))
    graph.add("Add", "y", first, mlp(graph, norm(graph, "norm2", first, zeros), zeros))
    graph.output("y", [BATCH, ROWS, WIDTH])


def packed_attention(graph: Graph) -> None:
    """nn.MultiheadAttention: query, key and value are one product that is unsqueezed, transposed and split; heads are merged with the
    batch; the last product is a Gemm of rows times batch. The attention weights are also an output."""
    x = graph.input("x", [BATCH, ROWS, WIDTH])
    rows = graph.add("Transpose", "rows", x, perm=[1, 0, 2])
    packed = linear(graph, "in_proj", rows, 3 * WIDTH, graph.weight("in_proj.bias", 3 * WIDTH))
    view = graph.add("Reshape", "unflatten", packed, graph.ints(ROWS, BATCH, 3, WIDTH))
    wide = graph.add("Unsqueeze", "unsqueeze", view, graph.ints(0))
    turned = graph.add("Transpose", "transpose", wide, perm=[3, 1, 2, 0, 4])
    parts = graph.add("Squeeze", "squeeze", turned, graph.ints(3))
    heads = []
    for i, name in enumerate(("query", "key", "value")):
        part = graph.add("Gather", name, parts, graph.constant(f"{name}.index", np.int64(i)), axis=0)
        view = graph.add("Reshape", f"{name}/view", part, graph.ints(ROWS, BATCH * HEADS, DEPTH))
        heads.append(graph.add("Transpose", f"{name}/heads", view, perm=[1, 0, 2]))
    query, key, value = heads
    query = graph.add("Mul", "scaled", query, graph.constant("scale", np.float32(DEPTH**-0.5)))
    scores = graph.add("MatMul", "scores", query, graph.add("Transpose", "key/turned", key, perm=[0, 2, 1]))
    weights = graph.add("Softmax", "softmax", scores, axis=-1)
    mixed = graph.add("Transpose", "mixed", graph.add("MatMul", "mix", weights, value), perm=[1, 0, 2])
    flat = graph.add("Reshape", "flat", mixed, graph.ints(ROWS * BATCH, WIDTH))
    out = graph.add("Gemm", "out", flat, graph.weight("out.weight", WIDTH, WIDTH), graph.weight("out.bias", WIDTH), transB=1)
    back = graph.add("Reshape", "back", out, graph.ints(ROWS, BATCH, WIDTH))
    graph.add("Transpose", "y", back, perm=[1, 0, 2])
    graph.output("y", [BATCH, ROWS, WIDTH])
    by_head = graph.add("Reshape", "by_head", weights, graph.ints(BATCH, HEADS, ROWS, ROWS))
    graph.add("ReduceMean", "mean", by_head, graph.ints(1), keepdims=0)
    graph.output("mean", [BATCH, ROWS, ROWS])


def split_attention(graph: Graph) -> None:
    """GPT-2: Gemms of flattened rows, query, key and value by Split."""
    x = graph.input("x", [BATCH, ROWS, WIDTH])
    flat = graph.add("Reshape", "x/flat", x, graph.ints(BATCH * ROWS, WIDTH))
    packed = graph.add("Gemm", "c_attn", flat, graph.weight("c_attn.weight", WIDTH, 3 * WIDTH), graph.weight("c_attn.bias", 3 * WIDTH))
    view = graph.add("Reshape", "c_attn/view", packed, graph.ints(BATCH, ROWS, 3 * WIDTH))
    names = ["query", "key", "value"]
    graph.nodes.append(helper.make_node("Split", [view, graph.ints(WIDTH, WIDTH, WIDTH)], names, "split", axis=2))
    query, key, value = (split_heads(graph, name, name) for name in names)
    turned = graph.add("Transpose", "key/turned", key, perm=[0, 1, 3, 2])
    weights = graph.add("Softmax", "softmax", graph.add("MatMul", "scores", query, turned), axis=-1)
    mixed = graph.add("Transpose", "mixed", graph.add("MatMul", "mix", weights, value), perm=[0, 2, 1, 3])
    rows = graph.add("Reshape", "rows", mixed, graph.ints(BATCH * ROWS, WIDTH))
    out = graph.add("Gemm", "c_proj", rows, graph.weight("c_proj.weight", WIDTH, WIDTH), graph.weight("c_proj.bias", WIDTH))
    graph.add("Reshape", "y", out, graph.ints(BATCH, ROWS, WIDTH))
    graph.output("y", [BATCH, ROWS, WIDTH])


def cached_attention(graph: Graph) -> None:
    """A decoding step with caches as inputs, and outputs that are one row longer."""
    past = 5
    x = graph.input("x", [BATCH, 1, WIDTH])
    heads = {}
    for name in ("query", "key", "value"):
        product = linear(graph, name, x, WIDTH)
        view = graph.add("Reshape", f"{name}/view", product, graph.ints(BATCH, 1, HEADS, DEPTH))
        heads[name] = graph.add("Transpose", f"{name}/heads", view, perm=[0, 2, 1, 3])
    for name in ("key", "value"):
        cache = graph.input(f"past_{name}", [BATCH, HEADS, past, DEPTH])
        heads[name] = graph.add("Concat", f"present_{name}", cache, heads[name], axis=2)
    turned = graph.add("Transpose", "key/turned", heads["key"], perm=[0, 1, 3, 2])
    weights = graph.add("Softmax", "softmax", graph.add("MatMul", "scores", heads["query"], turned), axis=-1)
    mixed = graph.add("Transpose", "mixed", graph.add("MatMul", "mix", weights, heads["value"]), perm=[0, 2, 1, 3])
    linear(graph, "y", graph.add("Reshape", "flat", mixed, graph.ints(BATCH, 1, WIDTH)), WIDTH)
    graph.output("y", [BATCH, 1, WIDTH])
    for name in ("key", "value"):
        graph.output(f"present_{name}", [BATCH, HEADS, past + 1, DEPTH])


def experts(graph: Graph) -> None:
    """Mixtral: each token's expert weights are gathered; gate and up are one weight, which is the product's left operand."""
    tokens, count, inner = BATCH * ROWS, 3, 16
    x = graph.input("x", [BATCH, ROWS, WIDTH])
    flat = graph.add("Reshape", "flat", x, graph.ints(tokens, WIDTH))
    choice = graph.add("ArgMax", "choice", linear(graph, "gate", flat, count), axis=-1, keepdims=0)
    rows = graph.add("Unsqueeze", "rows", choice, graph.ints(1))
    both = graph.add("GatherND", "both", graph.weight("gate_up", count, 2 * inner, WIDTH), rows)
    column = graph.add("Unsqueeze", "column", flat, graph.ints(2))
    product = graph.add("Squeeze", "product", graph.add("MatMul", "bmm", both, column), graph.ints(2))
    graph.nodes.append(helper.make_node("Split", [product, graph.ints(inner, inner)], ["g", "u"], "chunk", axis=1))
    active = graph.add("Mul", "active", graph.add("Mul", "silu", "g", graph.add("Sigmoid", "sigmoid", "g")), "u")
    down = graph.add("GatherND", "expert", graph.weight("down", count, WIDTH, inner), rows)
    out = graph.add("MatMul", "bmm2", down, graph.add("Unsqueeze", "inner", active, graph.ints(2)))
    graph.add("Reshape", "y", out, graph.ints(BATCH, ROWS, WIDTH))
    graph.output("y", [BATCH, ROWS, WIDTH])


# The builder, the weights that stay replicated, and the number of all_reduces.
SPELLINGS = {
    "dynamo_attention": (dynamo_attention, [], 2),
    "packed_attention": (packed_attention, [], None),
    "split_attention": (split_attention, [], 1),
    "cached_attention": (cached_attention, [], 1),
    "experts": (experts, [], None),
}


def read_weights(tools, plan):
    weights = json.loads(tools.call("inspect", plan, "weights", "--json").stdout)["weights"]
    return [weight for weight in weights if weight["shape"].count(",") >= 1]


@pytest.mark.parametrize("mesh", ["model=2", "data=2,model=2"])
@pytest.mark.parametrize("name", SPELLINGS)
def test_exporters_spelling_does_not_stop_splits(tools, tmp_path, name, mesh):
    build, whole, reductions = SPELLINGS[name]
    graph = Graph()
    build(graph)
    path, plan = tmp_path / "model.onnx", tmp_path / "model.plan"
    model = graph.save(path)
    tools.compile(path, plan, "--mesh", mesh)
    weights = read_weights(tools, plan)
    assert weights and [weight["name"] for weight in weights if "model" not in weight["sharding"]] == whole
    collectives = json.loads(tools.call("inspect", plan, "collectives", "--json").stdout)["collectives"]
    kinds = [collective["kind"] for collective in collectives if collective["over"] == "model"]
    if reductions is not None:
        assert kinds == ["all_reduce"] * reductions
    random = np.random.default_rng(3)
    inputs = {
        value.name: random.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim]).astype(np.float32)
        for value in model.graph.input
    }
    expected = onnxruntime_session(path).run(None, inputs)
    outputs = tools.run(plan, inputs, tmp_path).outputs
    for value, array in zip(model.graph.output, expected, strict=True):
        np.testing.assert_allclose(outputs[value.name], array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["dynamo_attention", "packed_attention", "split_attention", "cached_attention"])
def test_annotations_say_enough(tools, tmp_path, name):
    """Weights that the compiler splits up have no name in the model, and a shared bias has several shardings; the other annotations are
    enough for the same plan."""
    graph = Graph()
    SPELLINGS[name][0](graph)
    graph.save(tmp_path / "model.onnx")
    written = tmp_path / "annotated.onnx"
    tools.compile(tmp_path / "model.onnx", tmp_path / "a.plan", "--mesh", "model=2", "--emit-onnx", written)
    tools.compile(written, tmp_path / "b.plan")
    first, second = (
        [(w["name"], w["sharding"]) for w in read_weights(tools, tmp_path / name)] for name in ("a.plan", "b.plan")
    )
    assert first == second


def test_names_in_annotations_are_no_patterns(tools, tmp_path):
    """Storage is annotated in lines of names, and a name may contain a star, a newline or a backslash."""
    names = ["w*", "w2", "w\nnext", "w\\n3"]
    rows = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 64]) for name in ("x", "y4")]
    weights = [onnx.numpy_helper.from_array(np.full((64, 64), i, np.float32), name) for i, name in enumerate(names)]
    nodes = []
    for i, name in enumerate(names):
        nodes += [helper.make_node("MatMul", [f"y{i}" if i else "x", name], [f"e{i}"], name=f"/e{i}"), helper.make_node("Exp", [f"e{i}"], [f"y{i + 1}"], name=f"/x{i}")]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", rows[:1], rows[1:], weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "model.onnx")
    stored = {"w*": "[{a}, {}]", "w\nnext": "[{}, {a}]", "w\\n3": "[{a}, {}]"}
    lines = [f"  {json.dumps(name)}: {stored.get(name, '[{}, {}]')}" for name in names]
    text = ["strategy: 1", "mesh: a=2", "weights:", *(f"  {json.dumps(name)}: [{{}}, {{}}]" for name in names), "storage:", *lines]
    (tmp_path / "hand.strategy").write_text("\n".join(text) + "\n")
    written = tmp_path / "annotated.onnx"
    tools.compile(tmp_path / "model.onnx", tmp_path / "a.plan", "--strategy", tmp_path / "hand.strategy", "--emit-onnx", written)
    tools.compile(written, tmp_path / "b.plan")
    first, second = ({w["name"]: (w["sharding"], w["bytes"]) for w in read_weights(tools, tmp_path / name)} for name in ("a.plan", "b.plan"))
    assert first == second and [name for name in names if first[name][0] != first["w2"][0]] == list(stored)


def test_pinned_packed_weight_stays_one(tools, tmp_path):
    graph = Graph()
    split_attention(graph)
    graph.save(tmp_path / "model.onnx")
    options = "--mesh", "model=2", "--shard", "c_attn.weight=[{},{model}]"
    tools.compile(tmp_path / "model.onnx", tmp_path / "model.plan", *options)
    shardings = {weight["name"]: weight["sharding"] for weight in read_weights(tools, tmp_path / "model.plan")}
    assert shardings["c_attn.weight"] == "[-, model]"


def test_remark_names_what_stops_a_split(tools, tmp_path):
    """A softmax over all heads and rows: no split of the product can pass it."""
    graph = Graph()
    x = graph.input("x", [1, ROWS, WIDTH])
    product = linear(graph, "project", x, WIDTH)
    flat = graph.add("Reshape", "flatten", product, graph.ints(1, ROWS * WIDTH))
    normed = graph.add("Softmax", "normalise", flat, axis=-1)
    linear(graph, "y", graph.add("Reshape", "back", normed, graph.ints(1, ROWS, WIDTH)), WIDTH)
    graph.output("y", [1, ROWS, WIDTH])
    graph.save(tmp_path / "model.onnx")
    failed = tools.call("compile", tmp_path / "model.onnx", "-o", tmp_path / "m.plan", "--mesh", "model=2", check=False)
    assert failed.returncode != 0
    assert "weight 'project.weight': split by columns over 'model', its product would have to be gathered for 'flatten'" in failed.stderr


def test_shapes_from_constant_tables(tools, tmp_path):
    """Repeats and sizes that OneHot, Trilu, EyeLike and MatMul compute from constants are known at compile time."""
    graph = Graph()
    x = graph.input("x", [2, 3])
    at, depth, values = np.array([1]), np.array(2), np.array([1, 2])
    table = [graph.constant(name, array) for name, array in (("at", at), ("depth", depth), ("values", values))]
    repeats = graph.add("Squeeze", "repeats", graph.add("OneHot", "hot", *table), graph.ints(0))
    tiled = graph.add("Tile", "tiled", x, repeats)
    square = graph.constant("square", np.array([[2, 9], [3, 2]]))
    low = graph.add("Trilu", "low", square, upper=0)  # [[2, 0], [3, 2]]
    eye = graph.add("EyeLike", "eye", square)
    product = graph.add("MatMul", "product", low, eye)
    shape = graph.add("ReduceMax", "shape", product, graph.ints(1), keepdims=0)  # [2, 3]
    wide = graph.add("Concat", "wide", shape, graph.ints(2), axis=0)
    graph.add("Reshape", "y", tiled, wide)
    graph.output("y", [2, 3, 2])
    graph.save(tmp_path / "model.onnx")
    tools.compile(tmp_path / "model.onnx", tmp_path / "model.plan")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    run = tools.run(tmp_path / "model.plan", {"x": x}, tmp_path)
    np.testing.assert_array_equal(run.outputs["y"], np.tile(x, (1, 2)).reshape(2, 3, 2))


def test_layers_that_stop_alike_share_a_remark(tools, tmp_path):
    """Four layers stop two products each; one remark names the first node."""
    graph = Graph()
    x = graph.input("x", [1, ROWS, WIDTH])
    for i in range(4):
        product = linear(graph, f"project{i}", x, WIDTH)
        flat = graph.add("Reshape", f"flatten{i}", product, graph.ints(1, ROWS * WIDTH))
        normed = graph.add("Softmax", f"normalise{i}", flat, axis=-1)
        x = graph.add("Reshape", f"back{i}", normed, graph.ints(1, ROWS, WIDTH))
    up = linear(graph, "up", x, 2 * WIDTH)
    graph.add("MatMul", "y", graph.add("Relu", "relu", up), graph.weight("down", 2 * WIDTH, WIDTH))
    graph.output("y", [1, ROWS, WIDTH])
    graph.save(tmp_path / "model.onnx")
    printed = tools.compile(tmp_path / "model.onnx", tmp_path / "m.plan", "--mesh", "model=2", "--remarks").stderr
    remarks = [line for line in printed.splitlines() if "split by columns" in line and "'project0.weight'" in line.split(":")[1]]
    assert len(remarks) == 1, printed
    assert "'project2.weight' and 1 more: replicated: split by columns over 'model'" in remarks[0]
    assert "gathered for 'flatten0'; the others likewise" in remarks[0]
