"""ONNX multi-device annotations: which ones compile writes, reads back and refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from gridloom import zoo  # noqa: E402

BIN = Path(os.environ.get("GRIDLOOM_EVALUATE_ONNX", ROOT / "build" / "dev" / "bin" / "evaluate-onnx")).parent


def compile_model(model, plan, *options, check=True):
    command = [str(BIN / "gridloom-compile"), "compile", str(model), "-o", str(plan), *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if check and result.returncode:
        pytest.fail(f"{' '.join(command)}\nexited with {result.returncode}\n{result.stdout}{result.stderr}")
    return result


def report(plan):
    return json.loads((plan / "report.json").read_text())


def shardings(plan):
    return [(v["name"], v["op"], v["sharding"]) for v in report(plan)["values"]]


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """A model of two layers with 6 heads of 8, and inputs."""
    path = tmp_path_factory.mktemp("bert") / "bert.onnx"
    config = zoo.BertConfig(layers=2, hidden=48, heads=6, intermediate=96, vocabulary=64, positions=16, head="hidden")
    onnx.save(zoo.bert(config, zoo.Random(0)), path)
    rng = np.random.default_rng(0)
    inputs = {name: rng.integers(0, 2, (4, 8)) for name in ("input_ids", "attention_mask", "token_type_ids")}
    inputs["attention_mask"][:] = 1
    return path, inputs


BERT_DIMS = ("--dim", "batch=4", "--dim", "sequence=8")


@pytest.mark.parametrize("mesh", ["data=2,model=2", "model=4", "data=2,pipe=2", "pipe=2,model=2", "model=3"])
def test_round_trip(bert, tmp_path, mesh):
    path, inputs = bert
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    compile_model(path, tmp_path / "a.plan", *BERT_DIMS, "--mesh", mesh, "--emit-onnx", str(first))
    # The annotated model contains the mesh.
    compile_model(first, tmp_path / "b.plan", *BERT_DIMS, "--emit-onnx", str(second))
    assert report(tmp_path / "b.plan")["mesh"] == mesh
    values = shardings(tmp_path / "a.plan")
    assert values == shardings(tmp_path / "b.plan")
    axes = [axis for axis in mesh.split(",") if "pipe" not in axis]
    assert any('{"' + axes[0].split("=")[0] in sharding for _, _, sharding in values)

    a, b = onnx.load(first), onnx.load(second)
    assert a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True)
    onnx.checker.check_model(a, full_check=True)
    assert a.configuration[0].num_devices == np.prod([int(axis.split("=")[1]) for axis in mesh.split(",")])
    stages = {c.pipeline_stage for n in a.graph.node for c in n.device_configurations if c.HasField("pipeline_stage")}
    assert stages == ({0, 1} if "pipe" in mesh else set())

    expected = onnxruntime.InferenceSession(str(path)).run(None, inputs)
    for actual, wanted in zip(onnxruntime.InferenceSession(str(first)).run(None, inputs), expected):
        np.testing.assert_array_equal(actual, wanted)


def test_storage_comes_back(bert, tmp_path):
    """ONNX has no field for the storage layout of a weight; the model's metadata has a line for each."""
    path, _ = bert
    first = tmp_path / "first.onnx"
    stored = ("--shard", "*intermediate*weight=stored[{data},{}]")
    compile_model(path, tmp_path / "a.plan", *BERT_DIMS, "--mesh", "data=2", *stored, "--emit-onnx", str(first))
    (lines,) = [p.value for p in onnx.load(first).metadata_props if p.key == "gridloom.storage"]
    assert len(lines.splitlines()) == 2 and all(line.endswith("=stored[{data}, {}]") for line in lines.splitlines()), lines
    compile_model(first, tmp_path / "b.plan", *BERT_DIMS)

    def storage(plan):
        return [v.get("storage") for v in report(plan)["values"]]

    assert storage(tmp_path / "a.plan") == storage(tmp_path / "b.plan")
    compile_model(path, tmp_path / "c.plan", *BERT_DIMS, "--mesh", "data=2")
    assert storage(tmp_path / "a.plan") != storage(tmp_path / "c.plan")


def test_mesh_is_inferred_from_devices(bert, tmp_path):
    path, _ = bert
    annotated = tmp_path / "annotated.onnx"
    compile_model(path, tmp_path / "a.plan", *BERT_DIMS, "--mesh", "data=2,model=3", "--emit-onnx", str(annotated))
    model = onnx.load(annotated)
    del model.metadata_props[:]
    onnx.save(model, annotated)
    compile_model(annotated, tmp_path / "b.plan", *BERT_DIMS)
    assert report(tmp_path / "b.plan")["mesh"] == "axis0=2,axis1=3"
    renamed = [s.replace("axis0", "data").replace("axis1", "model") for _, _, s in shardings(tmp_path / "b.plan")]
    assert renamed == [s for _, _, s in shardings(tmp_path / "a.plan")]


#
# Annotations as another tool would write them
#


def mlp(rows=8, bias=False):
    """x [rows, 16] @ w1 [16, 32], Relu, @ w2 [32, 16]; nodes first, act, second."""
    rng = np.random.default_rng(3)
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in (("w1", (16, 32)), ("w2", (32, 16)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="act"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 16])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=11)
    return model


def configure(model, devices=2, name="here"):
    model.configuration.add(name=name, num_devices=devices)
    return model


def annotate(model, node, tensor, cuts=(), devices=(), groups=None, stage=None, configuration="here"):
    """cuts: (axis, [(size or None, shards), ...])."""
    annotation = model.graph.node[node].device_configurations.add(configuration_id=configuration)
    if stage is not None:
        annotation.pipeline_stage = stage
    if tensor is None:
        return model
    spec = annotation.sharding_spec.add(tensor_name=tensor, device=list(devices))
    for key, members in (groups or {}).items():
        spec.index_to_device_group_map.add(key=key, value=members)
    for axis, factors in cuts:
        dim = spec.sharded_dim.add(axis=axis)
        for size, shards in factors:
            part = dim.simple_sharding.add(num_shards=shards)
            if size is not None:
                part.dim_value = size
    return model


def compile_text(model, tmp_path, *options):
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    return compile_model(path, tmp_path / "model.plan", *options, check=False)


def test_one_weight_by_column(tmp_path):
    model = annotate(configure(mlp()), 0, "w1", [(-1, [(32, 2)])], [0, 1])
    result = compile_text(model, tmp_path)
    assert result.returncode == 0, result.stderr
    values = {v["name"]: v for v in report(tmp_path / "model.plan")["values"]}
    assert values["w1"]["sharding"] == '#dist.sharding<@mesh, [{}, {"axis0"}]>'
    assert values["w1"]["origin"] == "axis0: annotation of node 'first'"
    assert values["w2"]["sharding"] == '#dist.sharding<@mesh, [{"axis0"}, {}]>'
    collectives = report(tmp_path / "model.plan")["collectives"]
    # The partial sums over w2's rows need a collective; no annotation says how the output is split.
    assert [c["kind"] for c in collectives] in (["all_reduce"], ["reduce_scatter"])
    check = subprocess.run(
        [str(BIN / "gridloom-compile"), "check", str(tmp_path / "model.plan"), "--exact"], capture_output=True, text=True
    )
    assert check.returncode == 0 and "PASS" in check.stdout, check.stdout + check.stderr


def test_devices_in_another_order(tmp_path):
    # Devices 0 and 2 have shard 0: the mesh's minor axis splits.
    model = annotate(configure(mlp(), 4), 0, "w1", [(1, [(32, 2)])], [-1, -2], {-1: [0, 2], -2: [1, 3]})
    assert compile_text(model, tmp_path).returncode == 0
    assert report(tmp_path / "model.plan")["mesh"] == "axis0=2,axis1=2"
    values = {v["name"]: v["sharding"] for v in report(tmp_path / "model.plan")["values"]}
    assert values["w1"] == '#dist.sharding<@mesh, [{}, {"axis1"}]>'


def test_blocks_stay_together(tmp_path):
    # 32 columns are 4 blocks of 8, over 3 devices.
    model = annotate(configure(mlp(), 3), 0, "w1", [(1, [(4, 3), (8, 1)])], [0, 1, 2])
    assert compile_text(model, tmp_path).returncode == 0
    values = {v["name"]: v["sharding"] for v in report(tmp_path / "model.plan")["values"]}
    assert values["w1"] == '#dist.sharding<@mesh, [{}, {"axis0"} * 8]>'


def test_replicated_on_purpose(tmp_path):
    model = annotate(configure(mlp()), 0, "x", [], [-1], {-1: [0, 1]})
    assert compile_text(model, tmp_path).returncode == 0
    values = {v["name"]: v for v in report(tmp_path / "model.plan")["values"]}
    assert values["x"]["origin"] == "replicated: asked for by annotation of node 'first'"


def test_stages(tmp_path):
    model = configure(mlp())
    for node, stage in enumerate((0, 1, 1)):
        annotate(model, node, None, stage=stage)
    assert compile_text(model, tmp_path).returncode == 0
    assert report(tmp_path / "model.plan")["mesh"] == "pipe=2"
    sends = [c for c in report(tmp_path / "model.plan")["collectives"] if c["kind"] == "send"]
    assert [c["origin"] for c in sends] == ["first"]


def test_annotation_that_is_not_used_is_told(tmp_path):
    model = annotate(configure(mlp()), 1, "r", [(0, [(8, 2)])], [0, 1])
    model.graph.node.append(helper.make_node("Identity", ["y"], ["z"], name="same"))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [8, 16]))
    annotate(model, 3, "z", [(0, [(8, 2)])], [0, 1])
    result = compile_text(model, tmp_path, "--remarks")
    assert result.returncode == 0, result.stderr
    assert "node 'same': the annotation of 'z' is not used: the compiled program has no such value" in result.stderr


REFUSED = {
    "tensor": (
        lambda: annotate(configure(mlp()), 0, "r", [(0, [(8, 2)])], [0, 1]),
        "node 'first': the annotation names 'r', which the node neither reads nor makes",
    ),
    "configuration": (
        lambda: annotate(configure(mlp()), 0, "x", [(0, [(8, 2)])], [0, 1], configuration="there"),
        "node 'first': is annotated for the configuration 'there'; the model's are: here",
    ),
    "device": (
        lambda: annotate(configure(mlp()), 0, "x", [(0, [(8, 2)])], [0, 2]),
        "node 'first': the annotation of 'x' names device 2; the configuration has 0 to 1",
    ),
    "devices per shard": (
        lambda: annotate(configure(mlp()), 0, "x", [(0, [(8, 2)])], [0]),
        "node 'first': the annotation of 'x' lists 1 devices or groups for 2 shards",
    ),
    "axis": (
        lambda: annotate(configure(mlp()), 0, "x", [(2, [(8, 2)])], [0, 1]),
        "node 'first': the annotation of 'x' cuts axis 2; the tensor is 'tensor<8x16xf32>'",
    ),
    "axis twice": (
        lambda: annotate(configure(mlp(), 4), 0, "x", [(0, [(8, 2)]), (0, [(8, 2)])], [0, 1, 2, 3]),
        "node 'first': the annotation of 'x' cuts axis 0 twice",
    ),
    "axis twice, once from the end": (
        lambda: annotate(configure(mlp(), 4), 0, "x", [(0, [(8, 2)]), (-2, [(8, 2)])], [0, 1, 2, 3]),
        "node 'first': the annotation of 'x' cuts axis 0 twice",
    ),
    "size": (
        lambda: annotate(configure(mlp()), 0, "x", [(0, [(6, 2)])], [0, 1]),
        "node 'first': the annotation of 'x' gives axis 0 6 elements; it has 8",
    ),
    "too many shards": (
        lambda: annotate(configure(mlp(rows=2), 4), 0, "x", [(0, [(2, 4)])], [0, 1, 2, 3]),
        "node 'first': the annotation of 'x' cuts axis 0 of 2 elements into 4 shards of 1 or more",
    ),
    "more shards than devices": (
        lambda: annotate(configure(mlp()), 0, "x", [(0, [(8, 4)])], [0, 1, 2, 3]),
        "node 'first': the annotation of 'x' cuts axis 0 into 4 shards; the configuration has 2 devices",
    ),
    "zero shards": (
        lambda: annotate(configure(mlp()), 0, "x", [(0, [(8, 0)])], []),
        "node 'first': the annotation of 'x' cuts axis 0 into 0 shards; the configuration has 2 devices",
    ),
    "more shards than 64 bits count": (
        lambda: annotate(configure(mlp()), 0, "x", [(0, [(2, 2)] * 65)], [0, 1]),
        "node 'first': the annotation of 'x' has 4 shards; the configuration has 2 devices",
    ),
    "more elements than 64 bits count": (
        lambda: annotate(configure(mlp()), 0, "x", [(0, [(2**40, 1)] * 2)], [0]),
        "node 'first': the annotation of 'x' gives axis 0 more elements than 64 bits count",
    ),
    "inner cut": (
        lambda: annotate(configure(mlp(), 4), 0, "x", [(1, [(4, 2), (4, 2)])], [0, 1, 2, 3]),
        "node 'first': the annotation of 'x' cuts axis 1 inside of what an outer factor leaves together",
    ),
    "some devices only": (
        lambda: annotate(configure(mlp(), 4), 0, "x", [(0, [(8, 2)])], [0, 1]),
        "no mesh of the 4 devices of the model's configuration can express all of its annotations",
    ),
    "no devices": (lambda: annotate(configure(mlp(), 0), 0, "x"), "the device configuration 'here' has 0 devices"),
    "stage back": (
        lambda: annotate(annotate(configure(mlp()), 0, None, stage=1), 1, None, stage=0),
        "node 'act': 'act' is given stage 0 of 2, but reads a value of stage 1",
    ),
    "stage": (
        lambda: annotate(configure(mlp()), 0, None, stage=2),
        "node 'first': is annotated with pipeline stage 2; the configuration has 2 devices",
    ),
    "empty stage": (
        lambda: annotate(annotate(configure(mlp()), 0, None, stage=1), 2, None, stage=1),
        "stage 0 of 2 is given to no operation",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path, name):
    make, message = REFUSED[name]
    result = compile_text(make(), tmp_path)
    assert result.returncode == 1
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and message in lines[0], result.stderr
    assert not (tmp_path / "model.plan").exists()


def test_mesh_that_does_not_fit(tmp_path):
    model = annotate(configure(mlp(), 4), 0, "w1", [(1, [(32, 2)])], [-1, -2], {-1: [0, 2], -2: [1, 3]})
    result = compile_text(model, tmp_path, "--mesh", "model=4")
    assert result.returncode == 1
    assert "node 'first': the annotation of 'w1' puts its shards where the mesh model=4 cannot" in result.stderr
    result = compile_text(model, tmp_path, "--mesh", "model=2")
    assert "the mesh model=2 has 2 devices; the model's device configuration has 4" in result.stderr


def test_command_line_and_annotation_of_one_value(tmp_path):
    model = annotate(configure(mlp(), 4), 0, "w1", [(1, [(32, 2)])], [-1, -2], {-1: [0, 2], -2: [1, 3]})
    result = compile_text(model, tmp_path, "--mesh", "data=2,model=2", "--shard", "w1=[{},{model}]")
    assert result.returncode == 0, result.stderr
    result = compile_text(model, tmp_path, "--mesh", "data=2,model=2", "--shard", "w1=[{model},{}]")
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "error: --shard 'w1=[{model},{}]' contradicts the annotation of node 'first', which is "
        '#dist.sharding<@mesh, [{}, {"model"}]>; keep one of them'
    ]


def test_annotated_split_over_the_stages(tmp_path):
    # Devices 0 and 1 have one shard of x each and run different pipeline stages.
    model = annotate(configure(mlp()), 0, "x", [(0, [(8, 2)])], [0, 1])
    result = compile_text(model, tmp_path, "--mesh", "pipe=2")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "the annotation of 'x' cuts over axis 'pipe', along which devices run different pipeline stages" in line
    assert compile_text(model, tmp_path, "--mesh", "data=2").returncode == 0


def test_stages_out_of_order(tmp_path):
    # The first node is in the later stage. Both Reshapes need all of x, which is split over data.
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["a"], name="late"),
        helper.make_node("Reshape", ["x", "other"], ["b"], name="early"),
        helper.make_node("Exp", ["b"], ["c"], name="exp"),
        helper.make_node("ReduceMax", ["c"], ["d"], name="max"),
        helper.make_node("Sub", ["a", "d"], ["y"], name="sub"),
    ]
    graph = helper.make_graph(
        nodes,
        "stages",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [6, 6])],
        [numpy_helper.from_array(np.array(s), name) for name, s in (("shape", [6, 6]), ("other", [3, 12]))],
    )
    model = configure(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=11), 4)
    annotate(model, 1, "x", [(0, [(4, 2)])], [-1, -2], {-1: [0, 1], -2: [2, 3]})
    for node, stage in enumerate((1, 0, 0, 0, 1)):
        annotate(model, node, None, stage=stage)
    result = compile_text(model, tmp_path, "--mesh", "data=2,pipe=2")
    assert result.returncode == 0, result.stderr
    sends = [c for c in report(tmp_path / "model.plan")["collectives"] if c["kind"] == "send"]
    assert [c["origin"] for c in sends] == ["max"]
    check = subprocess.run(
        [str(BIN / "gridloom-compile"), "check", str(tmp_path / "model.plan"), "--exact"], capture_output=True, text=True
    )
    assert check.returncode == 0 and "PASS" in check.stdout, check.stdout + check.stderr


#
# Where the annotated model is written
#


def test_external_data_stays(tmp_path):
    model, folder = mlp(), tmp_path / "model"
    folder.mkdir()
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    options = ("--mesh", "model=2")
    compile_model(folder / "m.onnx", tmp_path / "a.plan", *options, "--emit-onnx", str(folder / "annotated.onnx"))
    assert sorted(p.name for p in folder.iterdir()) == ["annotated.onnx", "m.data", "m.onnx"]
    x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    expected = onnxruntime.InferenceSession(str(folder / "m.onnx")).run(None, {"x": x})[0]
    actual = onnxruntime.InferenceSession(str(folder / "annotated.onnx")).run(None, {"x": x})[0]
    np.testing.assert_array_equal(actual, expected)
    elsewhere = compile_model(
        folder / "m.onnx", tmp_path / "b.plan", *options, "--emit-onnx", str(tmp_path / "annotated.onnx"), check=False
    )
    assert elsewhere.returncode == 1 and "the model's weights stay in files beside it" in elsewhere.stderr
    assert not (tmp_path / "annotated.onnx").exists() and not (tmp_path / "b.plan").exists()
    over = compile_model(
        folder / "m.onnx", tmp_path / "b.plan", *options, "--emit-onnx", str(folder / "m.onnx"), check=False
    )
    assert over.returncode == 1 and "would write over the model" in over.stderr
    weights = (folder / "m.data").read_bytes()
    over = compile_model(
        folder / "m.onnx", tmp_path / "b.plan", *options, "--emit-onnx", str(folder / "m.data"), check=False
    )
    assert over.returncode == 1 and "m.data', which holds weights of '" in over.stderr
    assert (folder / "m.data").read_bytes() == weights
    (folder / "inputs.npz").write_text("mine")
    over = compile_model(folder / "m.onnx", tmp_path / "b.plan", *options, "--emit-onnx", str(folder / "inputs.npz"), check=False)
    assert over.returncode == 1 and "inputs.npz' exists and is no .onnx file; choose another file" in over.stderr
    assert (folder / "inputs.npz").read_text() == "mine"


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number, payload_length):
    return varint(number << 3 | 2) + varint(payload_length)


@pytest.mark.full
def test_large_weights_are_referred_to(tmp_path):
    """A sparse model file of more than 1 GiB: compile reads little of it, and the emitted file refers to it."""
    rows, columns = 1 << 14, (1 << 14) + 16
    length = 4 * rows * columns
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[rows, columns]).SerializeToString()
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, columns])],
    ).SerializeToString()
    head = helper.make_model(helper.make_graph([], "g", [], []), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    head.ClearField("graph")
    raw = field(9, length)  # TensorProto.raw_data
    initializer = field(5, len(tensor) + len(raw) + length)  # GraphProto.initializer
    path = tmp_path / "large.onnx"
    with open(path, "wb") as file:
        file.write(head.SerializeToString())
        file.write(field(7, len(graph) + len(initializer) + len(tensor) + len(raw) + length))  # ModelProto.graph
        file.write(graph + initializer + tensor + raw)
        file.truncate(file.tell() + length)
    annotated = tmp_path / "annotated.onnx"
    options = ("--mesh", "model=2", "--shard", "w=[{},{model}]", "--stop-after", "shard", "--emit-onnx", str(annotated))
    compile_model(path, tmp_path / "a.plan", *options)
    assert annotated.stat().st_size < 10_000
    model = onnx.load(annotated, load_external_data=False)
    weight = model.graph.initializer[0]
    entries = {e.key: e.value for e in weight.external_data}
    assert entries == {"location": "large.onnx", "offset": str(path.stat().st_size - length), "length": str(length)}
    onnx.checker.check_model(str(annotated))
