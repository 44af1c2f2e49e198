"""gridloom checkpoint: inspecting what a training run saved, and exporting it as models that ONNX Runtime runs."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess

import numpy as np
import onnx
import pytest
from conftest import onnxruntime_session
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import convert_model_to_external_data

SPELLED = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64"}


def write_safetensors(states: dict[str, np.ndarray]) -> bytes:
    """Written from the format's specification, without the program under test."""
    header, data = {}, b""
    for name, array in states.items():
        end = len(data) + array.nbytes
        header[name] = {"dtype": SPELLED[array.dtype.name], "shape": list(array.shape), "data_offsets": [len(data), end]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def read_safetensors(path) -> dict[str, np.ndarray]:
    contents = path.read_bytes()
    (size,) = struct.unpack("<Q", contents[:8])
    arrays = {}
    for name, entry in json.loads(contents[8 : 8 + size]).items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        kind = {spelled: numpy for numpy, spelled in SPELLED.items()}[entry["dtype"]]
        arrays[name] = np.frombuffer(contents[begin:end], kind).reshape(entry["shape"])
    return arrays


def write_checkpoint(folder, states: dict[str, np.ndarray], **changes):
    folder.mkdir(parents=True)
    data = write_safetensors(states)
    (folder / "states.safetensors").write_bytes(data)
    file = {"name": "states.safetensors", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest = {"format": "gridloom-checkpoint", "version": 1, "step": 7, "cursor": 224, "samples": 100, "seed": 3, "files": [file]}
    (folder / "manifest.json").write_text(json.dumps(manifest | changes))
    return folder


WEIGHTS = {"layers.0/w": (16, 32), "b": (32,), "v": (32, 8)}


def make_model(path, edit=lambda model: None):
    """y = relu(x @ layers.0/w + b) @ v * scale + offset: `v` comes from a Constant node; `scale` and `offset` are not trained."""
    random = np.random.default_rng(0)
    arrays = {name: random.standard_normal(shape, dtype=np.float32) for name, shape in WEIGHTS.items()}
    initializers = [numpy_helper.from_array(arrays[name], name) for name in ("layers.0/w", "b")]
    initializers.append(numpy_helper.from_array(np.full(8, 0.5, np.float32), "scale"))
    initializers.append(numpy_helper.from_array(random.standard_normal(8, dtype=np.float32), "offset"))
    nodes = [
        helper.make_node("Constant", [], ["v"], value=numpy_helper.from_array(arrays["v"], "inner")),
        helper.make_node("MatMul", ["x", "layers.0/w"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["hb"]),
        helper.make_node("Relu", ["hb"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["rv"]),
        helper.make_node("Mul", ["rv", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "offset"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size]) for name, size in (("x", 16), ("y", 8))]
    model = helper.make_model(helper.make_graph(nodes, "mlp", values[:1], values[1:], initializers), ir_version=10)
    model.opset_import[0].version = 20
    edit(model)
    onnx.save(model, path)
    return path


def trained(seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    states = {name: random.standard_normal(shape, dtype=np.float32) for name, shape in WEIGHTS.items()}
    for name, shape in WEIGHTS.items():
        states[f"{name}/m"] = random.standard_normal(shape, dtype=np.float32)
    return states | {"train/step": np.array(7)}


def expected(states: dict[str, np.ndarray], x: np.ndarray, model) -> np.ndarray:
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(model).graph.initializer}
    hidden = np.maximum(x @ states["layers.0/w"] + states["b"], 0)
    return hidden @ states["v"] * arrays["scale"] + arrays["offset"]


ROWS = np.random.default_rng(5).standard_normal((4, 16), dtype=np.float32)


def refused(tools, *arguments, code: int = 1) -> str:
    result = tools.call("checkpoint", *arguments, check=False)
    assert result.returncode == code, result.stdout + result.stderr
    (line,) = result.stderr.splitlines()
    return line


# Inspect


def test_inspect_shows_states_and_progress(tools, tmp_path):
    states = trained()
    write_checkpoint(tmp_path / "run" / "step-0000000007", states)
    shown = json.loads(tools.call("checkpoint", "inspect", tmp_path / "run", "--format", "json").stdout)
    assert [shown[key] for key in ("step", "epoch", "cursor", "samples", "seed")] == [7, 2, 224, 100, 3]
    weights = [array for name, array in states.items() if name in WEIGHTS]
    assert shown["parameter_values"] == sum(array.size for array in weights)
    assert shown["parameter_bytes"] == shown["other_bytes"] - 8 == sum(array.nbytes for array in weights)
    rows = {row["state"]: row for row in shown["states"]}
    assert rows.keys() == states.keys()
    for name, array in states.items():
        role = ("run", "") if name == "train/step" else ("slot", "m") if name.endswith("/m") else ("parameter", "")
        assert (rows[name]["role"], rows[name]["slot"]) == role
        assert rows[name]["shape"] == list(array.shape) and rows[name]["bytes"] == array.nbytes
        assert rows[name]["type"] == {"float32": "f32", "int64": "i64"}[array.dtype.name]
        assert rows[name]["sum"] == pytest.approx(array.astype(np.float64).sum(), rel=1e-12)
    text = tools.call("checkpoint", "inspect", tmp_path / "run" / "step-0000000007").stdout
    assert "layers.0/w" in text and "[16, 32]" in text


def test_names_with_slashes_are_parameters(tools, tmp_path):
    one = np.ones(2, np.float32)
    states = {name: one for name in ("a", "a/m", "a/b", "a/b/m", "a/b/v", "/c/w", "train/step")}
    write_checkpoint(tmp_path / "c", states)
    shown = json.loads(tools.call("checkpoint", "inspect", tmp_path / "c", "--json").stdout)
    roles = {row["state"]: row["role"] for row in shown["states"]}
    assert [name for name in states if roles[name] == "parameter"] == ["a", "a/b", "/c/w"]
    assert roles["train/step"] == "run"


def test_roles_in_the_manifest_tell_more_than_names(tools, tmp_path):
    one = np.ones(2, np.float32)
    roles = {"w": "parameter", "w/b": "parameter", "w/m": "slot", "train/scale": "parameter", "train/step": "run"}
    write_checkpoint(tmp_path / "c", {name: one for name in roles}, roles=roles)
    shown = json.loads(tools.call("checkpoint", "inspect", tmp_path / "c", "--json").stdout)
    assert {row["state"]: row["role"] for row in shown["states"]} == roles
    assert [row["state"] for row in shown["states"] if row["slot"]] == ["w/m"]
    tools.call("checkpoint", "export", tmp_path / "c", "-o", tmp_path / "t.safetensors")
    assert read_safetensors(tmp_path / "t.safetensors").keys() == {"w", "w/b", "train/scale"}


# Export


def test_exported_models_compute_with_the_trained_weights(tools, tmp_path):
    model = make_model(tmp_path / "m.onnx")
    states = trained()
    write_checkpoint(tmp_path / "c", states)
    result = tools.call("checkpoint", "export", tmp_path / "c", "--model", model, "-o", tmp_path / "t.onnx")
    assert "with 3 trained weights" in result.stdout
    (y,) = onnxruntime_session(tmp_path / "t.onnx").run(None, {"x": ROWS})
    np.testing.assert_allclose(y, expected(states, ROWS, model), rtol=1e-5, atol=1e-5)
    # Nothing else differs: with the old values put back, it is the old file byte for byte.
    before, after = model.read_bytes(), (tmp_path / "t.onnx").read_bytes()
    for name in WEIGHTS:
        after = after.replace(states[name].tobytes(), initial_values(model)[name])
    assert after == before


def initial_values(model) -> dict[str, bytes]:
    loaded = onnx.load(model)
    values = {tensor.name: tensor.raw_data for tensor in loaded.graph.initializer}
    return values | {node.output[0]: node.attribute[0].t.raw_data for node in loaded.graph.node if node.op_type == "Constant"}


def as_initializers(model):
    """Turns the Constant node, which a plan may have folded, into an initializer."""
    constant = model.graph.node.pop(0)
    model.graph.initializer.append(constant.attribute[0].t)
    model.graph.initializer[-1].name = "v"


def as_float_data(model):
    """Stores raw_data as packed float_data instead."""
    for tensor in model.graph.initializer:
        values = np.frombuffer(tensor.raw_data, np.float32)
        tensor.ClearField("raw_data")
        tensor.float_data.extend(values)


def test_typed_data_becomes_raw(tools, tmp_path):
    model = make_model(tmp_path / "m.onnx", as_float_data)
    assert onnx.load(model).graph.initializer[0].float_data
    states = trained()
    write_checkpoint(tmp_path / "c", states)
    tools.call("checkpoint", "export", tmp_path / "c", "--model", model, "-o", tmp_path / "t.onnx")
    loaded = onnx.load(tmp_path / "t.onnx")
    onnx.checker.check_model(loaded, full_check=True)
    kinds = {tensor.name: (len(tensor.float_data), len(tensor.raw_data)) for tensor in loaded.graph.initializer}
    assert kinds["b"] == (0, 128) and kinds["scale"] == (8, 0)  # untrained weights are unchanged
    (y,) = onnxruntime_session(tmp_path / "t.onnx").run(None, {"x": ROWS})
    np.testing.assert_allclose(y, expected(states, ROWS, model), rtol=1e-5, atol=1e-5)


def test_narrow_weights_in_varints(tools, tmp_path):
    """f16 values in int32_data are varints, whose length depends on the value."""
    half = helper.make_tensor("w", TensorProto.FLOAT16, [4], [1.0, 2.0, 0.5, -1.0])
    assert half.int32_data
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "half", values[:1], values[1:], [half])
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "m.onnx")
    new = np.array([0, 3, -65504, 6e-8], np.float16)
    write_checkpoint(tmp_path / "c", {"w": new})
    tools.call("checkpoint", "export", tmp_path / "c", "--model", tmp_path / "m.onnx", "-o", tmp_path / "t.onnx")
    (y,) = onnxruntime_session(tmp_path / "t.onnx").run(None, {"x": np.ones(4, np.float16)})
    np.testing.assert_array_equal(y, new)


def with_subgraph(model):
    """Passes the output through an If with a constant in each branch; one constant's values are external."""
    def branch(name: str, value: float):
        constant = helper.make_node("Constant", [], [f"{name}_k"], value=numpy_helper.from_array(np.full(8, value, np.float32), "k"))
        add = helper.make_node("Add", ["before", f"{name}_k"], [f"{name}_y"])
        return helper.make_graph([constant, add], name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)])

    model.graph.node[-1].output[0] = "before"
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    model.graph.node.append(helper.make_node("If", ["yes"], ["y"], then_branch=branch("then", 0.25), else_branch=branch("else", 9)))


@pytest.mark.parametrize("edit", [lambda model: None, with_subgraph], ids=["plain", "subgraph"])
def test_external_data_gets_a_file_of_its_own(tools, tmp_path, edit):
    (tmp_path / "source").mkdir()
    model = tmp_path / "source" / "m.onnx"
    make_model(model, edit)
    loaded = onnx.load(model)
    convert_model_to_external_data(loaded, location="weights.bin", size_threshold=0, convert_attribute=True)
    onnx.save(loaded, model)
    source = {path.name: path.read_bytes() for path in model.parent.iterdir()}
    assert len(source) == 2
    states = trained()
    write_checkpoint(tmp_path / "c", states)
    want = expected(states, ROWS, model) + (0.25 if edit is with_subgraph else 0)
    for output in (tmp_path / "t.onnx", model.parent / "t.onnx"):
        result = tools.call("checkpoint", "export", tmp_path / "c", "--model", model, "-o", output)
        assert f"{output}.data: " in result.stdout
        # ONNX Runtime's optimizer looks for subgraphs' external data in the wrong folder.
        (y,) = onnxruntime_session(output, optimised=False).run(None, {"x": ROWS})
        np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
        assert {tensor.name for tensor in onnx.load(output).graph.initializer} == {tensor.name for tensor in loaded.graph.initializer}
    assert all((model.parent / name).read_bytes() == contents for name, contents in source.items())


def test_values_that_tensors_share_stay_shared(tools, tmp_path):
    """Nine tensors, two of them in subgraphs, share one kilobyte, also in the export."""
    shared = np.arange(256, dtype=np.float32)

    def external(name: str, bytes: int | None = shared.nbytes, offset: int = 0):
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shared.shape, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "w.bin"), ("offset", offset), ("length", bytes)):
            if value is not None:
                tensor.external_data.add(key=key, value=str(value))
        return tensor

    def write(inner):
        branches = {}
        for name in ("then", "else"):
            constant = helper.make_node("Constant", [], [f"{name}_y"], value=inner)
            branches[f"{name}_branch"] = helper.make_graph([constant], name, [], [helper.make_tensor_value_info(f"{name}_y", 1, None)])
        nodes = [helper.make_node("If", ["which"], ["inner"], **branches), helper.make_node("Sum", [*"abcdefg", "w", "inner"], ["y"])]
        inputs = [helper.make_tensor_value_info("which", TensorProto.BOOL, [])]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [256])]
        initializers = [external(name) for name in "abcdefg"] + [external("w", offset=shared.nbytes)]
        graph = helper.make_graph(nodes, "shared", inputs, outputs, initializers)
        proto = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])
        (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())

    (tmp_path / "w.bin").write_bytes(np.concatenate([shared, np.zeros(256, np.float32)]).tobytes())
    write_checkpoint(tmp_path / "c", {"w": shared + 0.5})
    arguments = ("export", tmp_path / "c", "--model", tmp_path / "m.onnx", "-o", tmp_path / "t.onnx")
    write(external("inner"))
    tools.call("checkpoint", *arguments)
    assert (tmp_path / "t.onnx.data").stat().st_size == 2 * shared.nbytes
    (y,) = onnxruntime_session(tmp_path / "t.onnx", optimised=False).run(None, {"which": np.array(True)})
    np.testing.assert_array_equal(y, 9 * shared + 0.5)
    write(external("inner", None))
    assert "external data of 'inner' has no length; save the model with the lengths" in refused(tools, *arguments, "--force")
    write(external("inner", offset=shared.nbytes + 4))
    assert "'inner' takes 1024 bytes at 1028 of " in refused(tools, *arguments, "--force")


def test_no_file_of_the_model_is_replaced(tools, tmp_path):
    """Also with --force, by another name, or if all weights are trained: after the first export the file may be the only model left."""
    model = make_model(tmp_path / "m.onnx", as_initializers)
    proto = onnx.load(model)
    convert_model_to_external_data(proto, location="t.onnx.data", size_threshold=0)
    onnx.save(proto, model)
    (tmp_path / "link").symlink_to("m.onnx")
    (tmp_path / "hard").hardlink_to(tmp_path / "t.onnx.data")
    (tmp_path / "hard").rename(tmp_path / "hard.onnx")
    write_checkpoint(tmp_path / "c", trained())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "linked.onnx").symlink_to("m.onnx")
    for name, what in (("m.onnx", "m.onnx"), ("linked.onnx", "m.onnx"), ("t.onnx", "t.onnx.data"), ("hard.onnx", "t.onnx.data")):
        for force in ((), ("--force",)):
            words = refused(tools, "export", tmp_path / "c", "--model", model, "-o", tmp_path / name, *force)
            written = tmp_path / (f"{name}.data" if name == "t.onnx" else name)
            same = "" if written.name == what else f", the same file as {tmp_path / what},"
            assert f"{written}{same} is a file of the model itself, which is never replaced; choose another name" in words
    assert all(path.read_bytes() == contents for path, contents in before.items())
    assert {path.name for path in tmp_path.iterdir()} == {"c", "m.onnx", "t.onnx.data", "link", "hard.onnx", "linked.onnx"}


@pytest.mark.parametrize("name", ["states.safetensors", "manifest.safetensors", "link.safetensors", "new.onnx"])
def test_a_checkpoint_is_not_written_into(tools, tmp_path, name):
    """Neither into its own folder, nor into another checkpoint of the run, nor through a link."""
    model = make_model(tmp_path / "m.onnx")
    for step in (1, 2):
        write_checkpoint(tmp_path / "run" / f"step-{step:010d}", trained(step))
    (tmp_path / "link.safetensors").symlink_to(tmp_path / "run" / "step-0000000001" / "states.safetensors")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for step in (1, 2):
        folder = tmp_path / "run" / f"step-{step:010d}"
        output = tmp_path / name if name.startswith("link") else folder / ".." / folder.name / name
        for force in ((), ("--force",)):
            words = refused(tools, "export", tmp_path / "run", "--model", model, "-o", output, *force)
            assert "which stays as it is; choose another name" in words and "is inside of the checkpoint" in words
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    tools.call("checkpoint", "export", tmp_path / "run", "-o", tmp_path / "run" / "beside.safetensors")


def test_exported_safetensors_are_the_parameters(tools, tmp_path):
    states = trained()
    write_checkpoint(tmp_path / "c", states)
    tools.call("checkpoint", "export", tmp_path / "c", "-o", tmp_path / "t.safetensors")
    read = read_safetensors(tmp_path / "t.safetensors")
    assert read.keys() == WEIGHTS.keys()
    for name, array in read.items():
        np.testing.assert_array_equal(array, states[name])


def test_run_takes_what_was_exported(tools, tmp_path):
    """With --plan the export has untrained weights, too; if all are trained, the checkpoint itself will do."""
    model = make_model(tmp_path / "m.onnx", as_initializers)
    tools.compile(model, tmp_path / "m.plan", "--dim", "batch=4", "--mesh", "model=2")
    states = trained()
    write_checkpoint(tmp_path / "c", states)
    tools.call("checkpoint", "export", tmp_path / "c", "--plan", tmp_path / "m.plan", "-o", tmp_path / "t.safetensors")
    tools.call("checkpoint", "export", tmp_path / "c", "--plan", tmp_path / "m.plan", "-o", tmp_path / "t.onnx")
    line = refused(tools, "export", tmp_path / "c", "--plan", tmp_path / "m.plan", "-o", tmp_path / "m.plan" / "t.onnx")
    assert f"--output {tmp_path / 'm.plan' / 't.onnx'} is inside the plan {tmp_path / 'm.plan'}; name a place outside of it" in line
    exported = read_safetensors(tmp_path / "t.safetensors")
    assert exported.keys() == {*WEIGHTS, "offset", "scale"}
    whole = states | {name: exported[name] for name in ("offset", "scale")}
    write_checkpoint(tmp_path / "whole", whole)
    for weights in ("t.safetensors", "t.onnx", "whole"):
        run = tools.run(tmp_path / "m.plan", {"x": ROWS}, tmp_path / f"{weights}.run", "--weights", tmp_path / weights)
        np.testing.assert_allclose(run.outputs["y"], expected(states, ROWS, model), rtol=1e-4, atol=1e-4)
    result = tools.call("run", tmp_path / "m.plan", "--input", "x=ones", "--weights", tmp_path, check=False)
    assert result.returncode == 1 and "is not a checkpoint: it has neither manifest.json nor a folder step-NUMBER" in result.stderr


# Refusals


def test_nothing_is_replaced_unasked(tools, tmp_path):
    model = make_model(tmp_path / "m.onnx")
    write_checkpoint(tmp_path / "c", trained())
    (tmp_path / "w.safetensors").write_text("mine")
    (tmp_path / "t.onnx").write_text("mine")
    for name in ("t.onnx", "w.safetensors"):
        before = (tmp_path / name).read_bytes()
        arguments = ("export", tmp_path / "c", "--model", model, "-o", tmp_path / name)
        assert f"{name} exists; choose another name, or --force to replace it" in refused(tools, *arguments)
        assert (tmp_path / name).read_bytes() == before
        tools.call("checkpoint", *arguments, "--force")
        assert (tmp_path / name).read_bytes() != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "m.onnx", "t.onnx", "w.safetensors"]


@pytest.mark.parametrize(
    "change,words",
    [
        (lambda s: s.update(v=s["v"].T.copy()), r"weight 'v' is f32[8, 32] in the checkpoint and f32[32, 8] in "),
        (lambda s: s.update(b=s["b"].astype(np.float64)), r"weight 'b' is f64[32] in the checkpoint and f32[32] in "),
        (lambda s: s.update(more=s["b"]), r"m.onnx has no weight 'more', which is f32[32] in the checkpoint; "),
    ],
    ids=["shape", "type", "name"],
)
@pytest.mark.parametrize("output", ["t.onnx", "t.safetensors"])
def test_a_checkpoint_of_another_model(tools, tmp_path, change, words, output):
    model = make_model(tmp_path / "m.onnx")
    states = trained()
    change(states)
    write_checkpoint(tmp_path / "c", states)
    line = refused(tools, "export", tmp_path / "c", "--model", model, "-o", tmp_path / output)
    assert words in line and line.endswith("; the checkpoint is of another model")
    assert not (tmp_path / output).exists()


def test_a_plan_of_another_version_of_the_model(tools, tmp_path):
    model = make_model(tmp_path / "m.onnx")
    tools.compile(model, tmp_path / "m.plan", "--dim", "batch=4")
    write_checkpoint(tmp_path / "c", trained())
    make_model(model, lambda proto: setattr(proto, "producer_name", "another"))
    line = refused(tools, "export", tmp_path / "c", "--plan", tmp_path / "m.plan", "-o", tmp_path / "t.onnx")
    assert "m.onnx has SHA-256" in line and line.endswith("; give the model with --model")


def test_wrong_use(tools, tmp_path):
    write_checkpoint(tmp_path / "c", {"train/step": np.array(1)})
    where = tmp_path / "c"
    assert "-o t.pt is neither .onnx nor .safetensors" in refused(tools, "export", where, "-o", "t.pt", code=2)
    assert "an .onnx needs the model that was trained" in refused(tools, "export", where, "-o", "t.onnx", code=2)
    assert "see gridloom checkpoint" in refused(tools, "export", where, code=2)
    assert "see gridloom checkpoint" in refused(tools, "list", where, code=2)
    assert "has no parameters to export" in refused(tools, "export", where, "-o", tmp_path / "t.safetensors")
    assert "cannot be read: No such file" in refused(tools, "inspect", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "neither manifest.json nor a folder step-NUMBER" in refused(tools, "inspect", tmp_path / "empty")


@pytest.mark.parametrize("verb", ["inspect", "export"])
def test_damaged_checkpoints(tools, tmp_path, verb):
    arguments = (verb, tmp_path / "c") if verb == "inspect" else (verb, tmp_path / "c", "-o", tmp_path / "t.safetensors")
    write_checkpoint(tmp_path / "c", trained())
    data = (tmp_path / "c" / "states.safetensors").read_bytes()
    flipped = bytearray(data)
    flipped[-3] ^= 4
    for contents, words in ((data[:-1], "it was saved with"), (bytes(flipped), "is damaged: it has another SHA-256"), (b"", "has 0 bytes")):
        (tmp_path / "c" / "states.safetensors").write_bytes(contents)
        assert words in refused(tools, *arguments)
    (tmp_path / "outside").write_bytes(data)
    (tmp_path / "c" / "states.safetensors").unlink()
    (tmp_path / "c" / "states.safetensors").symlink_to(tmp_path / "outside")
    assert "is incomplete" in refused(tools, *arguments)
    manifest = json.loads((tmp_path / "c" / "manifest.json").read_text())
    manifest["files"][0]["name"] = "../outside"
    (tmp_path / "c" / "manifest.json").write_text(json.dumps(manifest))
    assert "names a file outside of its folder" in refused(tools, *arguments)
    assert not (tmp_path / "t.safetensors").exists()


def test_names_with_control_characters(tools, tmp_path):
    write_checkpoint(tmp_path / "c", {"w\x1b[2J\n": np.ones(2, np.float32)})
    text = tools.call("checkpoint", "inspect", tmp_path / "c").stdout
    assert "w\\x1b[2J\\x0a" in text and "\x1b" not in text


def test_mutated_models(tools, tmp_path):
    """A model with flipped, removed or inserted bytes is exported or refused in one line."""
    model = make_model(tmp_path / "m.onnx", with_subgraph)
    write_checkpoint(tmp_path / "c", trained())
    whole, random, codes = model.read_bytes(), np.random.default_rng(3), []
    for _ in range(40):
        mutant, at = bytearray(whole), int(random.integers(len(whole)))
        kind = random.integers(3)
        if kind == 0:
            mutant[at] ^= 1 << int(random.integers(8))
        elif kind == 1:
            del mutant[at : at + int(random.integers(1, 9))]
        else:
            mutant[at:at] = random.bytes(3)
        model.write_bytes(mutant)
        command = [tools.path("gridloom"), "checkpoint", "export", tmp_path / "c", "--model", model, "-o", tmp_path / "t.onnx", "--force"]
        result = subprocess.run(command, capture_output=True, timeout=60)
        codes.append(result.returncode)
        assert result.returncode == 0 or (result.returncode == 1 and result.stderr.count(b"\n") == 1), (mutant, result)
    assert set(codes) == {0, 1}


def test_hostile_models(tools, tmp_path):
    """Every truncated model, and paths that lead out of its folder, are refused in one line; nothing is written."""
    (tmp_path / "in").mkdir()
    model = make_model(tmp_path / "in" / "m.onnx")
    write_checkpoint(tmp_path / "c", trained())
    whole = model.read_bytes()
    arguments = ("export", tmp_path / "c", "--model", model, "-o", tmp_path / "t.onnx")
    for size in (0, 1, 10, len(whole) // 2, len(whole) - 1):
        model.write_bytes(whole[:size])
        refused(tools, *arguments)
    (tmp_path / "secret").write_bytes(b"s" * 4096)
    (tmp_path / "in" / "link").symlink_to(tmp_path / "secret")
    for location, words in (
        ("../secret", "leads out of the model's folder"),
        (str(tmp_path / "secret"), "not a path inside the model's folder"),
        ("link", "external data of 'scale'"),
        ("nothing", "cannot be found beside"),
    ):
        proto = onnx.ModelProto.FromString(whole)
        (scale,) = (tensor for tensor in proto.graph.initializer if tensor.name == "scale")
        scale.ClearField("raw_data")
        scale.data_location = TensorProto.EXTERNAL
        scale.external_data.add(key="location", value=location)
        model.write_bytes(proto.SerializeToString())
        assert words in refused(tools, *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "in", "secret"]
