"""States updated in place: caches in every form that models use are updated row by row, in the type in which they are read, and with
their sharding: a step moves no whole cache except for attention's own reads."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from conftest import onnxruntime_session
from onnx import TensorProto, helper, numpy_helper
from test_gpu_graphs import run  # noqa: F401: a fixture

import gridloom
from gridloom import zoo

BATCH, HEADS, CAPACITY, SIZE = 2, 4, 64, 16
FORMS = ["where", "one row", "ScatterND", "TensorScatter", "TensorScatter circular"]
# The position of each call's write, and its number of rows; some reach the end of the cache.
STEPS = [(0, 3), (3, 1), (4, 1), (62, 3), (63, 1)]


def write(form: str) -> list[onnx.NodeProto]:
    """Nodes that write `new` [batch, heads, n, size] into `past` at position `at` [1], giving `present`."""
    make = helper.make_node
    if form.startswith("TensorScatter"):
        mode = "circular" if "circular" in form else "linear"
        return [
            make("Expand", ["at", "batch"], ["starts"]),
            make("TensorScatter", ["past", "new", "starts"], ["present"], axis=2, mode=mode),
        ]
    if form == "ScatterND":  # as torch.export writes index_put of x.transpose(1, 2)
        return [
            make("Shape", ["new"], ["count"], start=2, end=3),
            make("Squeeze", ["count", "zeros"], ["n"]),
            make("Range", ["zero", "n", "one"], ["steps"]),
            make("Add", ["steps", "at"], ["rows"]),
            make("Unsqueeze", ["rows", "ones"], ["tuples"]),
            make("Transpose", ["past"], ["flat"], perm=[2, 0, 1, 3]),
            make("Transpose", ["new"], ["updates"], perm=[2, 0, 1, 3]),
            make("ScatterND", ["flat", "tuples", "updates"], ["written"]),
            make("Transpose", ["written"], ["present"], perm=[1, 2, 0, 3]),
        ]
    slots = [make("Range", ["zero", "capacity", "one"], ["slots"])]
    if form == "one row":
        return [
            *slots,
            make("Equal", ["slots", "at"], ["here"]),
            make("Unsqueeze", ["here", "ones"], ["where"]),
            make("Where", ["where", "new", "past"], ["present"]),
        ]
    return [
        *slots,
        make("Shape", ["new"], ["count"], start=2, end=3),
        make("Add", ["at", "count"], ["end"]),
        make("GreaterOrEqual", ["slots", "at"], ["after"]),
        make("Less", ["slots", "end"], ["before"]),
        make("And", ["after", "before"], ["fresh"]),
        make("Sub", ["slots", "at"], ["source"]),
        make("Sub", ["count", "one"], ["last"]),
        make("Max", ["source", "zero"], ["positive"]),
        make("Min", ["positive", "last"], ["row"]),
        make("Gather", ["new", "row"], ["taken"], axis=2),
        make("Unsqueeze", ["fresh", "ones"], ["where"]),
        make("Where", ["where", "taken", "past"], ["present"]),
    ]


def attention(form: str, path):
    """y = softmax(q k^T) k, where k is the cache after `new` = x w is written."""
    make = helper.make_node
    nodes = [
        make("MatMul", ["x", "w"], ["new"]),
        *write(form),
        make("Transpose", ["present"], ["turned"], perm=[0, 1, 3, 2]),
        make("MatMul", ["q", "turned"], ["scores"]),
        make("Softmax", ["scores"], ["shares"], axis=-1),
        make("MatMul", ["shares", "present"], ["y"]),
    ]
    for i, node in enumerate(nodes):
        node.name = f"/{node.op_type}_{i}"
    literals = {"zero": 0, "one": 1, "capacity": CAPACITY, "zeros": [0], "ones": [1], "batch": [BATCH]}
    weight = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32) / 4
    cache = [BATCH, HEADS, CAPACITY, SIZE]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "attention",
        [
            value("x", TensorProto.FLOAT, [BATCH, HEADS, "n", SIZE]),
            value("q", TensorProto.FLOAT, [BATCH, HEADS, 1, SIZE]),
            value("at", TensorProto.INT64, [1]),
            value("past", TensorProto.FLOAT, cache),
        ],
        [value("y", TensorProto.FLOAT, [BATCH, HEADS, 1, SIZE]), value("present", TensorProto.FLOAT, cache)],
        [numpy_helper.from_array(weight, "w")]
        + [numpy_helper.from_array(np.array(number, np.int64), name) for name, number in literals.items()],
    )
    opset = 24 if form.startswith("TensorScatter") else 20
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path)
    return path, weight


def cases(form: str) -> list[dict]:
    random = np.random.default_rng(1)
    steps = [(at, 1) for at, _ in STEPS] if form == "one row" else STEPS
    return [
        {
            "x": random.standard_normal((BATCH, HEADS, n, SIZE)).astype(np.float32),
            "q": random.standard_normal((BATCH, HEADS, 1, SIZE)).astype(np.float32) / 4,
            "at": np.array([at]),
        }
        for at, n in steps
    ]


def reference(weight: np.ndarray, given: list[dict], circular: bool) -> list[np.ndarray]:
    cache, results = np.zeros((BATCH, HEADS, CAPACITY, SIZE)), []
    for case in given:
        at, new = int(case["at"][0]), case["x"] @ weight
        for row in range(new.shape[2]):
            if circular or at + row < CAPACITY:
                cache[:, :, (at + row) % CAPACITY] = new[:, :, row]
        scores = case["q"] @ cache.swapaxes(2, 3)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        results.append(shares / shares.sum(axis=-1, keepdims=True) @ cache)
    return results


def compiled(path, folder, form: str = "where", mesh: str = "", **options):
    return gridloom.compile(
        path, folder, dims={"n": [1] if form == "one row" else [3, 1]}, mesh=mesh, state={"past": "present"}, **options
    )


def test_a_state_that_is_no_input_lists_the_inputs(tools, tmp_path):
    model, _ = attention("where", tmp_path / "m.onnx")
    arguments = ["compile", model, "-o", tmp_path / "m.plan", "--dim", "n=1", "--state", "pst=present"]
    error = tools.call(*arguments, check=False).stderr
    assert "--state pst=present: the model has no input 'pst'; its inputs are x, q, at, past" in error


def test_a_state_is_no_input(tmp_path):
    model, _ = attention("where", tmp_path / "m.onnx")
    with gridloom.load(compiled(model, tmp_path / "m.plan")) as session:
        given = {**cases("where")[0], "past": np.zeros((BATCH, HEADS, CAPACITY, SIZE), np.float32)}
        with pytest.raises(gridloom.Error, match="'past' is a state, which the session keeps from call to call"):
            session.run(given)


def inspect(tools, plan, view: str, table: str) -> list[dict]:
    document = json.loads(tools.call("inspect", plan, view, "--format", "json").stdout)
    return document[table]


def names(cell: str) -> set[str]:
    return set(cell.replace(",", " ").split())


def check_steps(tools, plan, states: set[str], cache_bytes: int) -> None:
    """No step copies a state; a step that writes one also reads it; kernels read each state once."""
    steps = inspect(tools, plan, "schedule", "schedule")
    kernels = {kernel["symbol"]: kernel for kernel in inspect(tools, plan, "kernels", "kernels")}
    written = set()

    def touched(step: dict) -> set[str]:
        return (names(step["reads"]) | names(step["writes"])) & states

    for step in steps:
        reads, writes = names(step["reads"]) & states, names(step["writes"]) & states
        if writes:
            assert writes <= reads and kernels[step["step"]]["skeleton"] == "lanes", step
            written |= writes
        else:
            assert step["step"] != "copy" or not reads, step
    assert written == states
    moved = [kernels[step["step"]]["bytes"] for step in steps if touched(step) and step["step"] in kernels]
    assert sum(moved) < (len(states) + 0.5) * cache_bytes


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90"])
@pytest.mark.parametrize("precision", ["f32", "bf16", "f16"])
def test_a_step_moves_no_whole_cache(tools, tmp_path, target, precision):
    """The zoo's GPT-2, one token: only attention reads the 4 caches."""
    config = zoo.Gpt2Config(layers=2, hidden=64, heads=4, vocabulary=97, positions=1024, cache="static")
    path = zoo.save(zoo.gpt2(config, zoo.Random(3, scale=0.2)), tmp_path / "gpt2.onnx")
    plan = tmp_path / "gpt2.plan"
    dims = "--dim", "batch=1", "--dim", "sequence=1"
    tools.compile(path, plan, *dims, "--state", "past_*=present_*", "--target", target, "--precision", precision)
    cache = config.positions * config.hidden * (4 if precision == "f32" else 2)
    states = {f"past_{kind}_{layer}" for kind in ("key", "value") for layer in range(2)}
    check_steps(tools, plan, states, cache)
    (memory,) = inspect(tools, plan, "memory", "memory_of_a_rank")
    assert memory["states"] == 4 * cache and memory["arena"] < cache


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_cache_is_updated_in_place(tools, tmp_path, form):
    path, weight = attention(form, tmp_path / "model.onnx")
    plan = compiled(path, tmp_path / "model.plan", form, precision="bf16")
    steps = [step for step in inspect(tools, plan.path, "schedule", "schedule") if "past" in names(step["writes"])]
    assert steps and all("past" in names(step["reads"]) for step in steps)
    (memory, *_) = inspect(tools, plan.path, "memory", "memory_of_a_rank")
    cache = 2 * BATCH * HEADS * CAPACITY * SIZE
    assert memory["states"] == cache and memory["arena"] < cache
    with gridloom.load(plan) as session:
        given = cases(form)
        # A result is a mean of rows: the error is that of rounding the rows and the softmax's shares.
        largest = max(np.abs(case["x"] @ weight).max() for case in given)
        for case, expected in zip(given, reference(weight, given, "circular" in form), strict=True):
            assert 1e-6 < np.abs(session.run(case)["y"] - expected).max() < 4 * 2**-9 * largest


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mesh", ["", "model=2", "data=2,model=2"])
def test_split_caches(tmp_path, form, mesh):
    """Split over requests and heads: each device updates its own part, without communication."""
    path, weight = attention(form, tmp_path / "model.onnx")
    sharding = "[{%s},{%s},{},{}]" % tuple(axis if axis in mesh else "" for axis in ("data", "model"))
    shard = {"past": sharding, "x": sharding, "q": sharding}
    plan = compiled(path, tmp_path / "model.plan", form, mesh, **({"shard": shard} if mesh else {}))
    assert not plan.report["collectives"]
    with gridloom.load(plan) as session:
        given = cases(form)
        for case, expected in zip(given, reference(weight, given, "circular" in form), strict=True):
            np.testing.assert_allclose(session.run(case)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_forms_on_fake_gpus(run, tmp_path, form):  # noqa: F811
    path, weight = attention(form, tmp_path / "model.onnx")
    shard = {name: "[{},{model},{},{}]" for name in ("past", "x", "q")}
    plan = compiled(path, tmp_path / "model.plan", form, "model=2", shard=shard, target="cuda:sm_90")
    given = cases(form)
    wanted = reference(weight, given, "circular" in form)
    for output, expected in zip(run(plan.path, given, 2, 1, True), wanted, strict=True):
        np.testing.assert_allclose(output["y"], expected, rtol=1e-4, atol=1e-5)


GPT2 = zoo.Gpt2Config(layers=2, hidden=32, heads=4, vocabulary=53, positions=32, cache="static")
# Two query heads share a key head.
LLAMA = zoo.LlamaConfig(
    layers=2, hidden=32, heads=4, kv_heads=2, intermediate=64, vocabulary=53, positions=32, cache="static"
)


@pytest.mark.parametrize(
    ("config", "mesh", "strategy"),
    [
        (GPT2, "", None),
        (GPT2, "data=2", "dp"),
        (GPT2, "pipe=2", None),
        (GPT2, "data=2,model=2", "dp+tp"),
        (LLAMA, "", None),
        (LLAMA, "model=2", "tp"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, (zoo.Gpt2Config, zoo.LlamaConfig)) else str(value),
)
def test_decoding_in_16_bits_on_fake_gpus(run, tools, tmp_path, config, mesh, strategy):  # noqa: F811
    """A prompt, then single tokens, as CUDA graphs: equal to ONNX Runtime within the error of 16 bits."""
    make = zoo.gpt2 if config is GPT2 else zoo.llama
    path = zoo.save(make(config, zoo.Random(3, scale=0.2)), tmp_path / "model.onnx")
    plan = gridloom.compile(
        path,
        tmp_path / "model.plan",
        dims={"batch": 2, "sequence": [4, 1]},
        mesh=mesh,
        state={"past_*": "present_*"},
        target="cuda:sm_90",
        precision="bf16",
        **({"strategy": strategy} if strategy else {}),
    )
    decoding = [s for s in inspect(tools, plan.path, "schedule", "schedule") if "sequence=1" in s["dims"].split(",")]
    reads = any(s["step"].startswith("attention") and "past_key_0" in names(s["reads"]) for s in decoding)
    # A device with one key head repeats it.
    assert reads == (config is GPT2 or not mesh)
    tokens = np.random.default_rng(1).integers(0, config.vocabulary, (2, 8))
    chunks = [(0, 4), (4, 5), (5, 6), (6, 7)]
    given = [{"input_ids": tokens[:, a:b], "position": np.array([a])} for a, b in chunks]
    outputs = run(plan.path, given, plan.ranks, 1, True)
    session = onnxruntime_session(path)
    results = [output.name for output in session.get_outputs()]
    heads = config.heads if config is GPT2 else config.kv_heads
    shape = (2, heads, config.positions, config.hidden // config.heads)
    cache = {i.name: np.zeros(shape, np.float32) for i in session.get_inputs() if i.name.startswith("past_")}
    for case, output in zip(given, outputs, strict=True):
        expected = dict(zip(results, session.run(None, {**case, **cache}), strict=True))
        cache = {name: expected[name.replace("past_", "present_")] for name in cache}
        off = np.abs(output["logits"] - expected["logits"]).max() / np.abs(expected["logits"]).max()
        assert 1e-6 < off < 1.5e-2


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90"])
def test_rows_of_the_state_itself(run, tmp_path, target):  # noqa: F811
    """The update reads the memory that it writes, so it needs a second buffer."""
    nodes = [
        helper.make_node("Add", ["past", "x"], ["sum"], name="/Add"),
        helper.make_node("ScatterElements", ["sum", "rows", "sum"], ["present"], name="/ScatterElements", axis=0),
        helper.make_node("Identity", ["present"], ["y"], name="/Identity"),
    ]
    value = helper.make_tensor_value_info
    inputs = [value("past", TensorProto.FLOAT, [4, 3]), value("x", TensorProto.FLOAT, [4, 3])]
    outputs = [value("y", TensorProto.FLOAT, [4, 3]), value("present", TensorProto.FLOAT, [4, 3])]
    graph = helper.make_graph(nodes, "itself", [*inputs, value("rows", TensorProto.INT64, [4, 3])], outputs)
    path = tmp_path / "itself.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    plan = gridloom.compile(path, tmp_path / "itself.plan", mesh="", state={"past": "present"}, target=target)
    rows = np.array([[3, 2, 1], [0, 1, 2], [1, 0, 3], [2, 3, 0]])
    given = [{"x": np.random.default_rng(i).standard_normal((4, 3)).astype(np.float32), "rows": rows} for i in range(3)]
    past = np.zeros((4, 3), np.float32)
    for case, result in zip(given, run(plan.path, given, 1, 1, True), strict=True):
        total = past + case["x"]
        past = total.copy()
        np.put_along_axis(past, rows, total, 0)
        np.testing.assert_array_equal(result["y"], past)
