"""Loops and branches on real ranks, compared with ONNX Runtime and ONNX's own node tests."""

from __future__ import annotations

import re
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import ROOT
from onnx import helper, numpy_helper

import gridloom
from gridloom import backend

sys.path.insert(0, str(ROOT / "test/onnx"))

import suite  # noqa: E402

F, I, B = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
D, H = 16, 32


def info(name, kind, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), name=attributes.pop("name", outputs), **attributes)


def write(path, nodes, inputs, outputs, weights=None, opset=17):
    initializers = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def weights(*shapes):
    rng = np.random.default_rng(0)
    return {f"w{i}": (rng.standard_normal(s) * 0.3).astype(np.float32) for i, s in enumerate(shapes)}


def reference(path, inputs):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)


def check(path, cases, mesh, strategy=None, dims=None, unroll=0):
    """Compiles once and runs every case; returns the plan."""
    options = {"strategy": strategy} if strategy else {}
    plan = gridloom.compile(path, path.with_suffix(".plan"), mesh=mesh, dims=dims, unroll=unroll, **options)
    with gridloom.load(plan, threads=1) as session:
        for inputs in cases:
            outputs = list(session.run(inputs).values())
            for got, want in zip(outputs, reference(path, inputs), strict=True):
                assert got.shape == want.shape
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return plan


MESHES = [("", None), ("model=2", "tp"), ("data=2", "dp"), ("data=2,model=2", "dp+tp"), ("model=4", "tp"), ("pipe=2", None)]


@pytest.fixture(scope="module")
def mlp_loop(tmp_path_factory):
    """A network repeated until its largest value passes a limit, at most `trips` times: both are inputs."""
    body = helper.make_graph(
        [
            node("MatMul", "x_in w0", "up"),
            node("Tanh", "up", "act"),
            node("MatMul", "act w1", "down"),
            node("Add", "down bias", "x_out"),
            node("ReduceMax", "x_out", "most", keepdims=0),
            node("Less", "most limit", "go"),
        ],
        "body",
        [info("i", I, []), info("c", B, []), info("x_in", F)],
        [info("go", B, []), info("x_out", F)],
    )
    path = tmp_path_factory.mktemp("loop") / "model.onnx"
    return write(
        path,
        [helper.make_node("Loop", ["trips", "", "x"], ["last"], name="loop", body=body), node("Add", "last x", "y")],
        [info("x", F, ["batch", D]), info("bias", F, ["batch", D]), info("limit", F, []), info("trips", I, [])],
        [info("y", F, ["batch", D])],
        weights((D, H), (H, D)),
    )


@pytest.mark.parametrize(("mesh", "strategy"), MESHES, ids=lambda value: value or "none")
def test_a_loop_with_a_collective(mlp_loop, mesh, strategy):
    rng = np.random.default_rng(1)
    x, bias = (rng.standard_normal((2, 8, D)) * 0.1).astype(np.float32)
    cases = [
        {"x": x, "bias": bias, "limit": np.array(limit, np.float32), "trips": np.array(trips)}
        for limit, trips in [(1e9, 0), (1e9, 1), (1e9, 7), (0.9, 100), (-5, 100)]
    ]
    plan = check(mlp_loop, cases, mesh, strategy, {"batch": 8})
    if "model" in mesh:
        while_ = next((plan.path / "ir").glob("*-schedule.mlir")).read_text().partition("plan.while")[2]
        assert re.search(r"plan\.group +all_reduce", while_), "the loop has no collective in its body"


def swapping_loop(path):
    """Two carried values are swapped, one is passed through, and a result is stacked in each iteration."""
    body = helper.make_graph(
        [
            node("Identity", "c", "go"),
            node("Mul", "a kept", "scaled"),
            node("Identity", "b", "a_out"),
            node("Identity", "scaled", "b_out"),
            node("Identity", "kept", "kept_out"),
            node("Sub", "a b", "difference"),
        ],
        "body",
        [info("i", I, []), info("c", B, []), info("a", F), info("b", F), info("kept", F)],
        [info("go", B, []), info("a_out", F), info("b_out", F), info("kept_out", F), info("difference", F)],
    )
    return write(
        path,
        [helper.make_node("Loop", ["count", "", "x", "y", "z"], ["p", "q", "r", "s"], name="loop", body=body)],
        [info(name, F, [4, 6]) for name in "xyz"],
        [info(name, F, [4, 6]) for name in "pqr"] + [info("s", F, [5, 4, 6])],
        {"count": np.array(5)},
    )


@pytest.mark.parametrize("unroll", [0, 8])
@pytest.mark.parametrize("mesh", ["", "data=2", "data=4"])
def test_carried_values_change_places(tmp_path, mesh, unroll):
    rng = np.random.default_rng(2)
    inputs = dict(zip("xyz", rng.standard_normal((3, 4, 6)).astype(np.float32)))
    check(swapping_loop(tmp_path / "m.onnx"), [inputs], mesh, "dp" if mesh else None, unroll=unroll)


def nested_loop(path):
    """A loop in a loop that reads values of both outer graphs, and a branch in the inner one."""
    inner = helper.make_graph(
        [
            node("Identity", "c2", "go2"),
            node("ReduceSum", "s_in", "total", keepdims=0),
            node("Greater", "total edge", "big"),
            helper.make_node(
                "If",
                ["big"],
                ["s_out"],
                name="branch",
                then_branch=helper.make_graph([node("Mul", "s_in half", "small")], "then", [], [info("small", F)]),
                else_branch=helper.make_graph([node("Add", "s_in outer", "more")], "else", [], [info("more", F)]),
            ),
        ],
        "inner",
        [info("j", I, []), info("c2", B, []), info("s_in", F)],
        [info("go2", B, []), info("s_out", F)],
    )
    body = helper.make_graph(
        [
            node("Identity", "c", "go"),
            node("MatMul", "t_in w0", "outer"),
            helper.make_node("Loop", ["three", "", "t_in"], ["t_out"], name="inner", body=inner),
        ],
        "outer",
        [info("i", I, []), info("c", B, []), info("t_in", F)],
        [info("go", B, []), info("t_out", F)],
    )
    constants = {"three": np.array(3), "four": np.array(4), "half": np.array(0.5, np.float32)}
    return write(
        path,
        [helper.make_node("Loop", ["four", "", "x"], ["y"], name="outer_loop", body=body)],
        [info("x", F, [4, D]), info("edge", F, [])],
        [info("y", F, [4, D])],
        weights((D, D)) | constants,
        opset=17,
    )


@pytest.mark.parametrize(("mesh", "strategy"), [("", None), ("data=2", "dp"), ("a=4", "random:5")])
def test_loops_nest(tmp_path, mesh, strategy):
    x = np.random.default_rng(3).standard_normal((4, D)).astype(np.float32)
    cases = [{"x": x, "edge": np.array(edge, np.float32)} for edge in (-1e9, 0, 2, 1e9)]
    check(nested_loop(tmp_path / "m.onnx"), cases, mesh, strategy)


@pytest.mark.parametrize(("mesh", "strategy"), [("", None), ("model=2", "tp"), ("data=2,model=2", "dp+tp")])
def test_a_branch_with_a_collective(tmp_path, mesh, strategy):
    deep = helper.make_graph(
        [node("MatMul", "x w0", "a"), node("Relu", "a", "r"), node("MatMul", "r w1", "deep")],
        "deep", [], [info("deep", F)],
    )  # fmt: skip
    flat = helper.make_graph([node("Neg", "x", "flat")], "flat", [], [info("flat", F)])
    path = write(
        tmp_path / "m.onnx",
        [helper.make_node("If", ["c"], ["y"], name="branch", then_branch=deep, else_branch=flat)],
        [info("x", F, [8, D]), info("c", B, [])],
        [info("y", F, [8, D])],
        weights((D, H), (H, D)),
    )
    x = np.random.default_rng(4).standard_normal((8, D)).astype(np.float32)
    check(path, [{"x": x, "c": np.array(c)} for c in (True, False, True)], mesh, strategy)


def test_a_split_state_stays_split(tmp_path):
    """A zero initial state takes the sharding of the values added to it: no collective in the loop."""
    body = helper.make_graph(
        [node("Add", "s x_t", "s_out"), node("Tanh", "s_out", "y_t")],
        "body",
        [info("s", F), info("x_t", F)],
        [info("s_out", F), info("y_t", F)],
    )
    path = write(
        tmp_path / "m.onnx",
        [helper.make_node("Scan", ["zeros", "x"], ["last", "y"], name="scan", body=body, num_scan_inputs=1,
                          scan_input_axes=[1], scan_output_axes=[1], scan_input_directions=[1])],
        [info("x", F, [8, 12, 4])],
        [info("last", F, [8, 4]), info("y", F, [8, 12, 4])],
        {"zeros": np.zeros((8, 4), np.float32)},
    )  # fmt: skip
    x = np.random.default_rng(5).standard_normal((8, 12, 4)).astype(np.float32)
    plan = check(path, [{"x": x}], "data=2", "dp")
    program = next((plan.path / "ir").glob("*-schedule.mlir")).read_text()
    assert "plan.while" in program and "plan.group" not in program


def counting_loop(path, trips, start, stacks):
    """Adds 1 until the sum is 5, at most `trips` times; `start` is the first condition, an input of the model if it is None."""
    body = helper.make_graph(
        [node("Add", "v one", "v_out"), node("Less", "v_out five", "go")] + [node("Neg", "v", "negative")] * stacks,
        "body",
        [info("i", I, []), info("c", B, []), info("v", F, [])],
        [info("go", B, []), info("v_out", F, [])] + [info("negative", F, [])] * stacks,
    )
    constants = {"trips": np.array(trips), "one": np.float32(1), "five": np.float32(5)}
    return write(
        path,
        [helper.make_node("Loop", ["trips", "start", "x"], ["y"] + ["z"] * stacks, name="counting", body=body)],
        [info("x", F, [])] + [info("start", B, [])] * (start is None),
        [info("y", F, [])] + [info("z", F, ["n"])] * stacks,
        {name: np.asarray(value) for name, value in constants.items()} | ({} if start is None else {"start": np.array(start)}),
    )


def test_a_loop_that_only_its_condition_ends(tmp_path):
    path = counting_loop(tmp_path / "m.onnx", 2**63 - 1, True, stacks=False)
    check(path, [{"x": np.array(x, np.float32)} for x in (0, 3, 9)], "")


@pytest.mark.parametrize("trips, start", [(7, False), (0, True)])
def test_a_loop_that_never_starts_stacks_no_rows(tmp_path, trips, start):
    path = counting_loop(tmp_path / "m.onnx", trips, start, stacks=True)
    check(path, [{"x": np.array(2, np.float32)}], "")


def test_a_scan_of_nothing(tmp_path):
    body = helper.make_graph([node("Neg", "a", "b")], "body", [info("a", F, [3])], [info("b", F, [3])])
    path = write(
        tmp_path / "m.onnx",
        [helper.make_node("Scan", ["x"], ["y"], name="scan", body=body, num_scan_inputs=1)],
        [info("x", F, [0, 3])],
        [info("y", F, ["n", 3])],
    )
    plan = gridloom.compile(path, tmp_path / "m.plan", mesh="")  # ONNX Runtime refuses to run it
    with gridloom.load(plan, threads=1) as session:  # the plan has no input: nothing reads it
        assert session.run({})["y"].shape == (0, 3)


def test_a_loop_that_may_not_start_says_so(tools, tmp_path):
    body = helper.make_graph(
        [node("Identity", "c", "go"), node("Neg", "v", "v_out"), node("Abs", "v", "size")],
        "body",
        [info("i", I, []), info("c", B, []), info("v", F, [])],
        [info("go", B, []), info("v_out", F, []), info("size", F, [])],
    )
    path = write(
        tmp_path / "m.onnx",
        [helper.make_node("Loop", ["trips", "start", "x"], ["y", "z"], name="maybe", body=body)],
        [info("x", F, []), info("start", B, [])],
        [info("y", F, []), info("z", F, ["n"])],
        {"trips": np.array(5)},
    )
    said = tools.compile(path, tmp_path / "m.plan").stderr
    assert "'maybe': may end before its 5 iterations; what it stacks is then followed by zeros" in said


def check_on_fake_gpus(tools, fake_gpus, path, cases, folder, options):
    """Compiles once and runs every case in its own process, on fake GPUs that report errors there."""
    plan = folder / "cuda.plan"
    tools.compile(path, plan, "--target", "cuda:sm_90", "--unroll", 0, *options)
    fake_gpus(4, 1)
    for number, inputs in enumerate(cases):
        result = tools.run(plan, inputs, folder / f"case{number}", "--in-process")
        (want,) = reference(path, inputs)
        np.testing.assert_allclose(result.outputs["y"], want, rtol=1e-4, atol=1e-5)
        assert "fake GPU" not in result.text, result.text


@pytest.mark.parametrize(
    "options",
    [(), ("--mesh", "model=2", "--strategy", "tp"), ("--mesh", "data=2,model=2", "--strategy", "dp+tp"), ("--mesh", "pipe=2")],
    ids=["none", "model", "grid", "pipe"],
)
def test_a_loop_with_a_collective_on_fake_gpus(mlp_loop, tools, fake_gpus, tmp_path, options):
    x, bias = (np.random.default_rng(1).standard_normal((2, 8, D)) * 0.1).astype(np.float32)
    cases = [
        {"x": x, "bias": bias, "limit": np.array(limit, np.float32), "trips": np.array(trips)}
        for limit, trips in [(1e9, 0), (1e9, 3), (0.9, 100)]
    ]
    check_on_fake_gpus(tools, fake_gpus, mlp_loop, cases, tmp_path, [*options, "--dim", "batch=8"])


@pytest.mark.parametrize("options", [(), ("--mesh", "a=2", "--strategy", "random:5")], ids=["none", "random"])
def test_loops_and_branches_nest_on_fake_gpus(tmp_path, tools, fake_gpus, options):
    x = np.random.default_rng(3).standard_normal((4, D)).astype(np.float32)
    cases = [{"x": x, "edge": np.array(edge, np.float32)} for edge in (-1e9, 2, 1e9)]
    check_on_fake_gpus(tools, fake_gpus, nested_loop(tmp_path / "m.onnx"), cases, tmp_path, options)


def carrying_loop(name: str, body_nodes: list, trips: str, start: str, result: str):
    """A loop that carries one value, in its body NAME_v, to NAME_out; NAME_i is the iteration."""
    body = helper.make_graph(
        [node("Identity", f"{name}_c", f"{name}_go"), *body_nodes], f"{name}_body",
        [info(f"{name}_i", I, []), info(f"{name}_c", B, []), info(f"{name}_v", F)],
        [info(f"{name}_go", B, []), info(f"{name}_out", F)],
    )  # fmt: skip
    return helper.make_node("Loop", [trips, "", start], [result], name=name, body=body)


def test_a_body_looks_up_by_its_iteration(tmp_path):
    loop = carrying_loop("loop", [node("Gather", "x loop_i", "row"), node("Add", "loop_v row", "loop_out")], "trips", "zero", "y")
    path = write(tmp_path / "m.onnx", [loop], [info("x", F, [5, 3]), info("zero", F, [3]), info("trips", I, [])], [info("y", F, [3])])
    x = np.random.default_rng(5).standard_normal((5, 3)).astype(np.float32)
    check(path, [{"x": x, "zero": np.zeros(3, np.float32), "trips": np.array(trips)} for trips in (0, 1, 5)], "")


def test_trip_counts_of_inner_loops_are_known_late(tmp_path):
    """A loop in a branch, and one in a loop, whose trip counts come from outside."""
    def step(name):
        return [node("Add", f"{name}_v one", f"{name}_out")]

    branches = {
        "then_branch": helper.make_graph([carrying_loop("first", step("first"), "trips", "x", "more")], "then", [], [info("more", F)]),
        "else_branch": helper.make_graph([node("Neg", "x", "less")], "else", [], [info("less", F)]),
    }
    inner = [carrying_loop("second", step("second"), "trips", "outer_v", "sum"), node("Identity", "sum", "outer_out")]
    path = write(
        tmp_path / "m.onnx",
        [
            helper.make_node("If", ["go"], ["b"], name="If", **branches),
            carrying_loop("outer", inner, "times", "x", "l"),
            node("Add", "b l", "y"),
        ],
        [info("x", F, [4]), info("go", B, []), info("trips", I, []), info("times", I, [])],
        [info("y", F, [4])],
        {"one": np.float32(1)},
    )
    x = np.arange(4, dtype=np.float32)
    cases = [{"x": x, "go": np.array(go), "trips": np.array(trips), "times": np.array(3)} for go in (True, False) for trips in (0, 2)]
    check(path, cases, "")


def test_a_branch_on_weights_alone(tmp_path):
    branches = {
        "then_branch": helper.make_graph([node("Relu", "w", "a")], "then", [], [info("a", F)]),
        "else_branch": helper.make_graph([node("Neg", "w", "b")], "else", [], [info("b", F)]),
    }
    path = write(
        tmp_path / "m.onnx",
        [
            node("ReduceMax", "w", "most", keepdims=0),
            node("Greater", "most zero", "go"),
            helper.make_node("If", ["go"], ["chosen"], name="If", **branches),
            node("Add", "x chosen", "y"),
        ],
        [info("x", F, [3])],
        [info("y", F, [3])],
        {"w": np.float32([1, -2, 3]), "zero": np.float32(0)},
    )
    check(path, [{"x": np.ones(3, np.float32)}], "")


@pytest.mark.parametrize(
    ("op", "attributes", "error"),
    [("Concat", {"axis": 0}, "what a loop carries must keep its shape"), ("Add", {}, "never ends")],
)
def test_refused(tmp_path, op, attributes, error):
    body = helper.make_graph(
        [node("Identity", "c", "go"), node(op, "a a", "a_out", **attributes)],
        "body",
        [info("i", I, []), info("c", B, []), info("a", F)],
        [info("go", B, []), info("a_out", F)],
    )
    path = write(
        tmp_path / "m.onnx",
        [helper.make_node("Loop", ["", "", "x"], ["y"], name="growing", body=body)],
        [info("x", F, [4])],
        [info("y", F, ["n"])],
    )
    with pytest.raises(gridloom.CompileError) as raised:
        gridloom.compile(path, tmp_path / "m.plan", mesh="")
    assert error in str(raised.value) and "growing" in str(raised.value)


NODES = sorted(name for name, test in suite.tests().items() if suite.classify(test) == "control_flow" and not
               any(i.type.WhichOneof("value") != "tensor_type" for i in test.model.graph.input))  # fmt: skip


def run_node_test(name: str, ranks: int, unroll: int, folder) -> None:
    test = suite.tests()[name]
    values = {i.name: suite.to_array(v) for i, v in zip(test.model.graph.input, test.data_sets[0][0])}
    fixed = backend.fixed_inputs(test.model)
    onnx.save(backend.specialise(test.model, values), folder / "m.onnx")
    mesh = suite.mesh_for(test, ranks, 3)
    plan = gridloom.compile(folder / "m.onnx", folder / "m.plan", mesh=mesh, strategy="random:3", unroll=unroll)
    with gridloom.load(plan, threads=1) as session:
        outputs = session.run({k: v for k, v in values.items() if k not in fixed})
    suite.check(test, [outputs[o.name] for o in test.model.graph.output], test.data_sets[0][1])


def test_there_are_enough():
    assert len(NODES) >= 20


@pytest.mark.parametrize("number", range(0, len(NODES), 3), ids=lambda number: NODES[number])
def test_node(number, tmp_path):
    """With loops kept: some tests on 1, 2 or 4 ranks, all of them with --full. The suite unrolls them."""
    run_node_test(NODES[number], (1, 2, 4)[number // 3 % 3], 0, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("unroll", [0, 8])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", NODES)
def test_every_node(name, ranks, unroll, tmp_path):
    run_node_test(name, ranks, unroll, tmp_path)
