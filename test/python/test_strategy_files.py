"""Strategy files: the shard phase's decisions, written, read again, changed by hand and refused."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import onnx
import pytest
from conftest import onnxruntime_session

from gridloom import zoo

MESHES = ["", "data=2", "model=2", "data=2,model=2", "pipe=2", "pipe=2,model=2"]
RANDOM_MESHES = ["x=2", "x=3", "x=2,y=2", "pipe=2,x=2"]
SIZES = {"batch": 4, "sequence": 6, "past": 3}


def can_split(name: str, mesh: str) -> bool:
    """No weight of an LSTM can be split without gathering it again."""
    return not (name.startswith("lstm") and "model" in mesh)


def draw_pairs(names, meshes):
    """All pairs with --full; else every second one, different ones for each name."""
    pairs = []
    for i, name in enumerate(names):
        for j, mesh in enumerate(mesh for mesh in meshes if can_split(name, mesh)):
            marks = [] if (i + i // 2 + j) % 2 == 0 else pytest.mark.full
            pairs.append(pytest.param(name, mesh, id=f"{name}-{mesh}", marks=marks))
    return pairs


def bind(path, **sizes) -> list[str]:
    """--dim for the model's open dimensions."""
    used = {d.dim_param for i in onnx.load(path).graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
    return [part for d in sorted(used) for part in ("--dim", f"{d}={({**SIZES, **sizes})[d]}")]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("zoo"), {}

    def make(name):
        if name not in made:
            model, options = zoo.SMALL[name]
            made[name] = zoo.MODELS[model].write(folder / f"{name}.onnx", **options)
        return made[name]

    return make


def read(plan) -> dict[str, bytes]:
    """The plan's files, except those that say where its splits come from."""
    files = {str(p.relative_to(plan)): p.read_bytes() for p in plan.rglob("*") if p.is_file()}
    return {name: data for name, data in files.items() if name != "report.json" and not name.startswith("ir/")}


def test_a_searched_plan_has_two_copies_of_a_tied_table(tools, tmp_path):
    """The file names both, and reading it makes the same plan."""
    config = zoo.Gpt2Config(layers=1, hidden=64, heads=4, vocabulary=4096, positions=16)
    path = zoo.save(zoo.gpt2(config, zoo.Random(0)), tmp_path / "m.onnx")
    options = ["--dim", "batch=1", "--dim", "sequence=4", "--mesh", "x=2,y=2"]
    tools.compile(path, tmp_path / "a.plan", *options, "--strategy", "search")
    lines = (tmp_path / "a.plan" / "plan.strategy").read_text()
    assert re.search(r"^  wte\.weight: \[\{\}, \{\}\]$", lines, re.M) and re.search(r"^  wte\.weight#2: \[\{x, y\}, ", lines, re.M), lines
    tools.compile(path, tmp_path / "b.plan", *options[:4], "--strategy", tmp_path / "a.plan" / "plan.strategy")
    assert read(tmp_path / "a.plan") == read(tmp_path / "b.plan")


def assert_comes_back(tools, path, folder, *options, split=()) -> dict[str, bytes]:
    """Compiles, and compiles again with the first plan's strategy file: the plans must be equal."""
    tools.compile(path, folder / "a.plan", "-q", *options, *split)
    again = tools.compile(path, folder / "b.plan", "-q", *options, "--strategy", folder / "a.plan" / "plan.strategy")
    assert again.stderr == ""
    first, second = read(folder / "a.plan"), read(folder / "b.plan")
    assert first.keys() == second.keys()
    assert first["plan.strategy"].decode() == second["plan.strategy"].decode()
    assert [name for name in first if first[name] != second[name]] == []
    return first


@pytest.mark.parametrize("name,mesh", draw_pairs(zoo.SMALL, MESHES))
def test_plans_come_back(tools, tmp_path, models, name, mesh):
    path = models(name)
    assert_comes_back(tools, path, tmp_path, *bind(path), split=["--mesh", mesh] if mesh else [])


@pytest.mark.parametrize("name,mesh", draw_pairs(zoo.SMALL, RANDOM_MESHES))
def test_random_splits_come_back(tools, tmp_path, models, name, mesh):
    path = models(name)
    split = ["--mesh", mesh, "--strategy", f"random:{RANDOM_MESHES.index(mesh)}"]
    assert_comes_back(tools, path, tmp_path, *bind(path), split=split)


@pytest.mark.parametrize("mesh", ["data=2", "model=2", "pipe=2", "data=2,model=2,pipe=2"])
@pytest.mark.parametrize("name", ["gpt2-static", "llama-static"])
def test_states_and_specialisations_come_back(tools, tmp_path, models, name, mesh):
    sizes = ["--dim", "batch=4", "--dim", "sequence=6,1", "--state", "past_*=present_*"]
    assert_comes_back(tools, models(name), tmp_path, *sizes, split=["--mesh", mesh])


def test_what_differs_in_a_specialisation_comes_back(tools, tmp_path, models):
    """A single sequence cannot be split over two devices."""
    sizes = ["--dim", "batch=1,4", "--dim", "sequence=6,1"]
    files = assert_comes_back(tools, models("gpt2"), tmp_path, *sizes, split=["--mesh", "data=2"])
    text = files["plan.strategy"].decode()
    assert "input_ids: [{data}, {}]" in text[: text.index("specialisations:")]
    assert re.search(r"  main batch=1,sequence=6:\n    inputs:\n      input_ids: \[\{\}, \{\}\]", text.replace("'", "")), text
    assert "batch=4" not in text


@pytest.mark.parametrize(
    "options",
    [
        ["--mesh", "model=2", "--strategy", "tp+sp"],
        ["--mesh", "model=2", "--chunk-matmul", "2"],
        ["--mesh", "model=3"],
        ["--mesh", "a=2,b=2", "--shard", "/layers.0/mlp/down_proj/MatMul=[{a},{},{b}]"],
        ["--mesh", "data=1,model=2"],
    ],
    ids=" ".join,
)
def test_options_of_the_split_come_back(tools, tmp_path, models, options):
    files = assert_comes_back(tools, models("llama"), tmp_path, *bind(models("llama")), split=options)
    text = files["plan.strategy"].decode()
    assert ("chunk-matmul: 2" in text) == ("--chunk-matmul" in options)


@pytest.mark.parametrize("options", [["--precision", "bf16"], ["--cluster", "p3.16xlarge"]], ids=" ".join)
def test_comes_back_with_the_same_further_options(tools, tmp_path, models, options):
    assert_comes_back(tools, models("gpt2"), tmp_path, *bind(models("gpt2")), *options, split=["--mesh", "data=2,model=2"])


# Free links: every split pays, so that a search splits all it can.
KIND = {"name": "slow", "memory_bytes_per_second": 1e8, "launch_seconds": 0, "collective_launch_seconds": 0}
FREE = {
    "device_kinds": [KIND | {"flops_per_second": {"contraction": {"f32": 1e8}, "other": {"f32": 1e8}}}],
    "devices": [{"name": "d", "kind": "slow", "count": 8}],
    "switches": ["s"],
    "links": [{"ends": ["d", "s"], "latency_seconds": 0, "bytes_per_second": 1e12}],
}


@pytest.mark.parametrize("name,mesh", draw_pairs(zoo.SMALL, ["x=2", "x=3", "x=2,y=2"]))
def test_what_is_searched_comes_back(tools, tmp_path, models, name, mesh):
    """Also splits of nodes that no shardings imply."""
    path = models(name)
    (tmp_path / "free.json").write_text(json.dumps(FREE))
    assert_comes_back(tools, path, tmp_path, *bind(path), "--cluster", tmp_path / "free.json", split=["--mesh", mesh, "--strategy", "search"])


def count_reductions(plan) -> int:
    (dump,) = (plan / "ir").glob("*-partition.mlir")
    return dump.read_text().count("= dist.all_reduce ")


def test_partial_sums_come_back(tools, tmp_path):
    """Two products are added before they are reduced; without `unreduced` each is reduced alone; at a non-linear reader it is refused."""
    value = onnx.helper.make_tensor_value_info
    nodes = [onnx.helper.make_node(op, inputs, [name], name=name) for op, inputs, name in [("MatMul", "xa", "p"), ("MatMul", "xb", "q"), ("Add", "pq", "s"), ("Tanh", "s", "y")]]
    draw = np.random.default_rng(0)
    weights = [onnx.numpy_helper.from_array(draw.standard_normal((8, 4), dtype=np.float32), name) for name in "ab"]
    graph = onnx.helper.make_graph(nodes, "sums", [value("x", 1, [4, 8])], [value("y", 1, [4, 4])], weights)
    path = tmp_path / "sums.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    pins = [part for pin in ("x=[{},{model}]", "a=[{model},{}]", "b=[{model},{}]") for part in ("--shard", pin)]
    text = assert_comes_back(tools, path, tmp_path, split=["--mesh", "model=2", *pins])["plan.strategy"].decode()
    for name in "pq":
        assert f"  {name}: [{{}}, {{}}, {{unreduced: {{model}}}}]\n" in text, text
    assert "splits:" not in text and count_reductions(tmp_path / "a.plan") == 1
    said = [part for name in "pq" for part in ("--shard", f"{name}=[{{}},{{}},{{unreduced:{{model}}}}]")]
    tools.compile(path, tmp_path / "said.plan", "--mesh", "model=2", *pins, *said)
    assert (tmp_path / "said.plan" / "plan.strategy").read_text() == text

    (tmp_path / "whole.strategy").write_text(text.replace(", {unreduced: {model}}", ""))
    tools.compile(path, tmp_path / "whole.plan", "--strategy", tmp_path / "whole.strategy")
    assert count_reductions(tmp_path / "whole.plan") == 2
    inputs = {"x": draw.standard_normal((4, 8), dtype=np.float32)}
    (one,), (two,) = (tools.run(tmp_path / plan, inputs, tmp_path / f"{plan}.values").outputs.values() for plan in ("a.plan", "whole.plan"))
    assert np.allclose(one, two, atol=1e-5)

    (tmp_path / "bad.strategy").write_text(text.replace("  s: [{}, {}]\n", "  s: [{}, {}, {unreduced: {model}}]\n"))
    error = refuse(tools, path, "--strategy", tmp_path / "bad.strategy", "-o", tmp_path / "bad.plan")
    assert "needs all of 's', which is declared unreduced over 'model'; only linear operations can take it so: declare it whole" in error, error


def test_splits_of_nodes_come_back(tools, tmp_path, models):
    """A product's splits differ from its neighbours': the file has its factors, and no other splits."""
    path = models("llama")
    text = save(tools, path, tmp_path, *bind(path), "--mesh", "data=2,model=2")
    assert "splits:" not in text
    (node,) = [n.name for n in onnx.load(path).graph.node if n.name.startswith("/layers.0/mlp/down_proj/")]
    line = f"  {node}: {{d0: {{data}}, d2: {{model}}}}\n"
    (tmp_path / "changed.strategy").write_text(f"{text}splits:\n{line}")
    split = ["--strategy", tmp_path / "changed.strategy"]
    files = assert_comes_back(tools, path, tmp_path, *bind(path), split=split)
    written = files["plan.strategy"].decode()
    assert written[written.index("splits:") : written.index("outputs:")] == f"splits:\n{line}", written
    dump = (tmp_path / "ir" / "03-shard.mlir").read_text()
    tools.call("compile", path, *bind(path), *split, "--stop-after", "shard", "--dump-ir", tmp_path / "changed", "-q")
    found = [len(re.findall(r'dot_general .*?dist\.splits = #dist\.splits<\[\{"data"\}, \{\}, \{"model"\}, \{\}\]>', d)) for d in (dump, (tmp_path / "changed" / "03-shard.mlir").read_text())]
    assert found[1] == found[0] + 1, found


def test_storage_comes_back(tools, tmp_path, models):
    """Weights stored in parts and used whole: the file has their storage, and no other."""
    path = models("llama")
    stored = "*mlp*weight=stored[{data},{}]"
    files = assert_comes_back(tools, path, tmp_path, *bind(path), split=["--mesh", "data=2", "--shard", stored])
    text = files["plan.strategy"].decode()
    (section,) = re.findall(r"^storage:\n((?:  .*\n)+)", text, re.MULTILINE)
    assert "mlp" in section and "self_attn" not in section
    plain = assert_comes_back(tools, path, tmp_path, *bind(path), "--force", split=["--mesh", "data=2"])
    assert "storage:" not in plain["plan.strategy"].decode()


def save(tools, path, folder, *options) -> str:
    tools.call("compile", path, *options, "--stop-after", "shard", "--dump-ir", folder / "ir", "--save-strategy", folder / "m.strategy", "-q")
    return (folder / "m.strategy").read_text()


def test_layers_are_folded(tools, tmp_path):
    config = zoo.LlamaConfig(layers=12, hidden=32, heads=4, kv_heads=4, intermediate=64, vocabulary=50, positions=16)
    path = zoo.save(zoo.llama(config, zoo.Random(0)), tmp_path / "m.onnx")
    text = save(tools, path, tmp_path, *bind(path), "--mesh", "data=2,model=2")
    assert re.search(r"^  layers\.\*\.mlp\.up_proj\.weight: \[\{\}, \{model\}\]$", text, re.M), text
    # Constants that all layers share belong to the first layer.
    assert all(":*" in line for line in text.splitlines() if re.search(r"layers\.\d", line)), text
    assert len(text.splitlines()) < 90


def test_stages_are_folded(tools, tmp_path, models):
    text = save(tools, models("llama"), tmp_path, *bind(models("llama")), "--mesh", "pipe=2")
    stages = text[text.index("stages:") : text.index("inputs:")].splitlines()[1:]
    assert "  /layers.1/*: 1" in stages and len(stages) < 30, stages


def find_value(plan, name) -> str:
    values = {v["name"]: v["sharding"] for v in json.loads((plan / "report.json").read_text())["values"]}
    return values[name]


def test_a_file_changed_by_hand_is_obeyed(tools, tmp_path, models):
    path = models("gpt2")
    text = save(tools, path, tmp_path, *bind(path), "--mesh", "data=2,model=2")
    (line,) = re.findall(r"^  .*mlp.*c_fc.*weight.*: \[\{\}, \{model\}\]$", text, re.M)
    name = line.split(": ")[0].strip().strip("'").replace("*", "0")
    changed = text.replace(line, f"{line}\n  {name}: [{{data}}, {{}}] # this layer alone")
    (tmp_path / "changed.strategy").write_text(changed)
    tools.compile(path, tmp_path / "m.plan", *bind(path), "--strategy", tmp_path / "changed.strategy")
    assert find_value(tmp_path / "m.plan", name) == '#dist.sharding<@mesh, [{"data"}, {}]>'
    assert find_value(tmp_path / "m.plan", name.replace("0", "1")) == '#dist.sharding<@mesh, [{}, {"model"}]>'
    written = (tmp_path / "m.plan" / "plan.strategy").read_text()
    assert re.search(rf"^  {re.escape(name)}: \[{{data}}, {{}}\]$", written, re.M)


def test_what_a_file_leaves_open_is_completed(tools, tmp_path, models):
    """Two lines are enough for a layer's tensor parallelism; the outputs are unchanged."""
    path = models("gpt2")
    weight = next(t.name for t in onnx.load(path).graph.initializer if "c_fc" in t.name and "weight" in t.name)
    pattern = weight.replace("0", "*")
    (tmp_path / "m.strategy").write_text(f"strategy: 1\nmesh: model=2\nweights:\n  {pattern}: [{{}}, {{model}}]\n")
    tools.compile(path, tmp_path / "m.plan", *bind(path), "--strategy", tmp_path / "m.strategy")
    assert find_value(tmp_path / "m.plan", weight.replace("c_fc", "c_proj").replace("attn", "mlp")) == '#dist.sharding<@mesh, [{"model"}, {}]>'
    inputs = zoo.random_inputs(onnx.load(path).graph, SIZES, 50)
    expected = onnxruntime_session(path).run(None, inputs)[0]
    outputs = tools.run(tmp_path / "m.plan", inputs, tmp_path).outputs
    (output,) = outputs.values()
    assert abs(output - expected).max() < 2e-5 * abs(expected).max()


@pytest.mark.parametrize("name", zoo.SMALL)
def test_a_file_is_for_other_sizes_too(tools, tmp_path, models, name):
    path = models(name)
    if not bind(path):
        pytest.skip("the model's sizes are fixed")
    mesh = "data=2" if name.startswith("lstm") else "data=2,model=2"
    tools.compile(path, tmp_path / "a.plan", *bind(path), "--mesh", mesh, "-q")
    strategy = tmp_path / "a.plan" / "plan.strategy"
    tools.compile(path, tmp_path / "b.plan", *bind(path, batch=8, sequence=12), "--strategy", strategy, "-q")
    tools.compile(path, tmp_path / "c.plan", *bind(path, batch=8, sequence=12), "--mesh", mesh, "-q")
    if name.startswith("lstm"):
        return  # an unrolled loop: the operations differ
    # The planner's own choice at the other size.
    assert (tmp_path / "b.plan" / "plan.strategy").read_text() == (tmp_path / "c.plan" / "plan.strategy").read_text()


def test_factors_of_a_reshape_are_those_of_its_size(tools, tmp_path):
    """At batch 1 that factor does not exist; a factor that no size has is an error at any size."""
    path = zoo.save(reshape_rows(), tmp_path / "m.onnx")
    file = tmp_path / "m.strategy"
    file.write_text("strategy: 1\nmesh: a=2\nsplits:\n  /r: {d0.0: {a}}\n")
    results = {n: tools.compile(path, tmp_path / "m.plan", "--dim", f"batch={n}", "--strategy", file, "-q").stderr for n in (8, 1)}
    assert results[8] == "" and results[1].count("\n") == 1, results
    assert "line 4: the work of '/r' has no 'd0.0' at this size; it has in0.d0, d0, d1, and is split as its operands and result are" in results[1]
    assert "PASS" in tools.call("check", tmp_path / "m.plan").stdout
    for wrong in ("d2", "d0.5", "in1.d0", "e0"):
        file.write_text(file.read_text().replace("d0.0", wrong))
        assert f"has no '{wrong}'; it has d0.0, d0.1, d1" in refuse(tools, path, "--dim", "batch=8", "--strategy", file)
        file.write_text(file.read_text().replace(wrong + ":", "d0.0:"))


def reshape_rows() -> onnx.ModelProto:
    """Merges the batch's rows into one matrix."""
    make, types = onnx.helper, onnx.TensorProto
    constants = {"w": np.ones((64, 64), np.float32), "s": np.array([-1, 64], np.int64)}
    nodes = [
        make.make_node("Exp", ["x"], ["e"], name="/e"),
        make.make_node("Reshape", ["e", "s"], ["r"], name="/r"),
        make.make_node("MatMul", ["r", "w"], ["y"], name="/y"),
    ]
    inputs = [make.make_tensor_value_info("x", types.FLOAT, ["batch", 16, 64])]
    outputs = [make.make_tensor_value_info("y", types.FLOAT, None)]
    weights = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    return make.make_model(make.make_graph(nodes, "rows", inputs, outputs, weights), opset_imports=[make.make_opsetid("", 17)])


def refuse(tools, path, *options) -> str:
    result = tools.call("compile", path, *options, check=False)
    assert result.returncode == 1 and not result.stdout, result
    lines = [line for line in result.stderr.splitlines() if not line.startswith("warning: ")]
    assert lines[0].startswith("error: ") and all(line.startswith("note: ") for line in lines[1:]), result.stderr
    return result.stderr


CHANGES = {
    "typo in a weight": (r"(?m)^  embed_tokens\.weight:", "  embed_token.weight:", r"line \d+: unknown weight 'embed_token\.weight'; did you mean 'embed_tokens\.weight'\?"),
    "typo in an input": (r"  input_ids:", "  input_idz:", r"unknown input 'input_idz'; did you mean 'input_ids'\?"),
    "a dimension more": (r"(?m)^  input_ids: .*$", "  input_ids: [{}, {}, {}]", r"'input_ids' has 2 dimensions in the program, 3 here"),
    "another axis": (r"(?m)^  input_ids: .*$", "  input_ids: [{dta}, {}]", r"'dta', which is not in the mesh \(axes: data, model, pipe\); did you mean 'data'\?"),
    "the stages' axis": (r"(?m)^  input_ids: .*$", "  input_ids: [{pipe}, {}]", r"different pipeline stages"),
    "a stage too many": (r"(?m)^  /layers\.1/\*: 1$", "  /layers.1/*: 2", r"is given stage 2; the mesh has 2 stages, from 0"),
    "stages backwards": (r"(?m)^  /layers\.1/\*: 1$", "  /layers.1/*: 0\n  '/layers.0/*': 1", r"reads a value of stage|twice"),
    "a granule too large": (r"(?m)^  input_ids: .*$", "  input_ids: [{data, model: 4611686018427387904}, {}]", r"cannot read the split"),
    "a granule above the size": (r"(?m)^  embed_tokens\.weight: .*$", "  embed_tokens.weight: [{}, {model: 2147483648}]", r"'embed_tokens\.weight' is cut on multiples of 2147483648 elements along a dimension of 32; write at most 32"),
    "a factor's granule above its size": (r"(?m)^outputs:$", "splits:\n  /lm_head/MatMul: {d2: {model: 65}}\noutputs:", r"'/lm_head/MatMul' cuts factor 'd2', of 50 elements, on multiples of 65"),
    "two patterns": (r"(?m)^weights:$", "weights:\n  layers.0.input_layernorm.weigh*: [{data}]", r"says \[.*\] of '.*', and '.*' \(line \d+\) says"),
    "a factor that is not there": (r"(?m)^outputs:$", "splits:\n  /lm_head/MatMul: {d7: {model}}\noutputs:", r"the work of '/lm_head/MatMul' has no 'd7'; it has d0, d1, d2, in0\.d2"),
    "a node that is not there": (r"(?m)^outputs:$", "splits:\n  /lm_hed/MatMul: {}\noutputs:", r"unknown node '/lm_hed/MatMul'; did you mean '/lm_head/MatMul'\?"),
    "an unreduced weight": (r"(?m)^  embed_tokens\.weight: .*$", "  embed_tokens.weight: [{}, {}, {unreduced: {model}}]", r"is declared unreduced; only nodes leave partial sums"),
    "sums of no product": (r"(?m)^  /norm/Mul_1: \[.*$", "  /norm/Mul_1: [{}, {}, {}, {unreduced: {model}}]", r"makes no partial sums over 'model', but is declared unreduced over it"),
    "a section of tomorrow": (r"(?m)^weights:$", "prefetch:\nweights:", r"section 'prefetch' is not of version 1"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_does_not_fit_is_refused(tools, tmp_path, models, change):
    path, (old, new, message) = models("llama"), CHANGES[change]
    text = save(tools, path, tmp_path, *bind(path), "--mesh", "data=2,model=2,pipe=2")
    changed, count = re.subn(old, lambda _: new, text, count=1)
    assert count == 1, text
    (tmp_path / "changed.strategy").write_text(changed)
    assert re.search(message, refuse(tools, path, *bind(path), "--strategy", tmp_path / "changed.strategy", "-o", tmp_path / "m.plan"))
    assert not (tmp_path / "m.plan").exists()


def test_micro_batches(tools, tmp_path, models):
    path = models("resnet")
    text = assert_comes_back(tools, path, tmp_path, *bind(path), split=["--mesh", "pipe=2,data=2", "--microbatches", "2"])["plan.strategy"].decode()
    assert "microbatches: 2" in text and "{data, micro}" in text
    (tmp_path / "m.strategy").write_text(text.replace("microbatches: 2", "microbatches: 3"))
    error = refuse(tools, path, *bind(path), "--strategy", tmp_path / "m.strategy")
    assert re.search(r"line \d+: '\w+' has 4 rows, which cannot be cut evenly in 6 for 3 micro-batches", error), error


def test_another_models_file_is_refused_with_a_list(tools, tmp_path, models):
    save(tools, models("resnet"), tmp_path, *bind(models("resnet")), "--mesh", "data=2")
    error = refuse(tools, models("llama"), *bind(models("llama")), "--strategy", tmp_path / "m.strategy")
    assert "was written for another graph" in error
    assert error.count("unknown ") == 20 and re.search(r"note: and \d+ more", error), error


def test_contradictions_name_both(tools, tmp_path, models):
    path = models("llama")
    strategy = tmp_path / "m.strategy"
    save(tools, path, tmp_path, *bind(path), "--mesh", "data=2,model=2")
    given = [path, *bind(path), "--strategy", strategy]
    assert f"--mesh data=4 contradicts the strategy '{strategy}', whose mesh is data=2,model=2" in refuse(tools, *given, "--mesh", "data=4")
    assert "--microbatches 8 contradicts the strategy" in refuse(tools, *given, "--microbatches", "8")
    assert "--chunk-matmul 4 contradicts the strategy" in refuse(tools, *given, "--chunk-matmul", "4")
    error = refuse(tools, *given, "--shard", "lm_head.weight=[{data},{}]")
    assert re.search(r"line \d+: 'lm_head\.weight' is \[\{\}, .*\], but \[\{data\}, \{\}\] by --shard; keep one of them", error), error
    # Options that agree with the file are allowed.
    tools.compile(path, tmp_path / "m.plan", *given[1:], "--mesh", "data=2,model=2", "--shard", "input_ids=[{data},{}]")
    assert "does not end in .strategy" in refuse(tools, path, *bind(path), "--save-strategy", tmp_path / "m.txt")
    assert "cannot read the strategy" in refuse(tools, path, *bind(path), "--strategy", "nowhere.strategy")


def test_a_state_has_one_split(tools, tmp_path, models):
    path = models("gpt2-static")
    options = ["--dim", "batch=4", "--dim", "sequence=6", "--state", "past_*=present_*"]
    pins = ["--shard", "past_key_0=[{},{model},{},{}]", "--shard", "present_key_0=[{model},{},{},{}]"]
    error = refuse(tools, path, *options, "--mesh", "model=2", *pins)
    assert "'present_key_0=[{model},{},{},{}]' contradicts --shard 'past_key_0=[{},{model},{},{}]'" in error
    assert "input 'past_key_0' and output 'present_key_0' are one state" in error
    text = save(tools, path, tmp_path, *options, "--mesh", "model=2")
    outputs = text.index("outputs:")
    changed = text[:outputs] + re.sub(r"present_key_\S+: \[.*\]", "present_key_*: [{model}, {}, {}, {}]", text[outputs:])
    (tmp_path / "changed.strategy").write_text(changed)
    error = refuse(tools, path, *options, "--strategy", tmp_path / "changed.strategy")
    assert re.search(r"has one split, but input 'past_key_0' is \[.*\] and output 'present_key_0' is \[\{model\}", error), error


def test_what_is_said_of_a_states_output_holds_for_its_input(tools, tmp_path, models):
    path = models("gpt2-static")
    options = ["--dim", "batch=4", "--dim", "sequence=6", "--state", "past_*=present_*"]
    (tmp_path / "short.strategy").write_text("strategy: 1\nmesh: model=2\noutputs:\n  present_key_0: [{model}, {}, {}, {}]\n")
    tools.compile(path, tmp_path / "m.plan", *options, "--strategy", tmp_path / "short.strategy")
    text = (tmp_path / "m.plan" / "plan.strategy").read_text()
    assert re.search(r"(?m)^  past_key_(0|\*): \[\{model\}, ", text), text


def test_damaged_files_are_refused(tools, tmp_path, models):
    """Truncated, binary, deeply nested, huge, and edited files: one error, or a plan, and no crash."""
    path = models("llama")
    text = save(tools, path, tmp_path, *bind(path), "--mesh", "data=2,model=2").encode()
    draw = random.Random(1)
    cases = [b"", b"\0" * 100, bytes(draw.randbytes(2000)), b"[" * 300_000, b"strategy: 1\nnodes: " + b"[" * 300_000, b"- " * 100_000]
    cases += [b"strategy: 1\nmesh: data=2\nnodes:\n  a: 1\n", b"{}", b"strategy: [1]\n", b"strategy: 99999999999999999999\n"]
    cases += [b"strategy: 1\nmesh: data=2\nnodes:\n" + b"".join(b"  n%d: [{}]\n" % i for i in range(200_000))]
    cases += [text[: draw.randrange(len(text))] for _ in range(10)]
    for _ in range(30):
        damaged = bytearray(text)
        for _ in range(draw.randrange(1, 5)):
            damaged[draw.randrange(len(damaged))] = draw.choice(b"[]{}:,-?&*!|>'\"%#\n\t 01ab\\")
        cases.append(bytes(damaged))
    for i, case in enumerate(cases):
        (tmp_path / "case.strategy").write_bytes(case)
        options = ["--strategy", tmp_path / "case.strategy", "--stop-after", "shard", "--dump-ir", tmp_path / "ir"]
        result = tools.call("compile", path, *bind(path), *options, check=False)
        assert result.returncode in (0, 1), (i, case[:200], result.stderr[-2000:])
        errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == result.returncode, (i, case[:200], result.stderr[-2000:])


def test_resumes_with_a_file(tools, tmp_path, models):
    """A dump from before the shard phase accepts a file; one from after it does not."""
    path = models("llama")
    save(tools, path, tmp_path, *bind(path), "--mesh", "data=2,model=2")
    tools.call("compile", path, *bind(path), "--stop-after", "simplify", "--dump-ir", tmp_path / "dumps")
    dump = tmp_path / "dumps" / "02-simplify.mlir"
    tools.compile(dump, tmp_path / "m.plan", "--start-from", "shard", "--strategy", tmp_path / "m.strategy")
    assert (tmp_path / "m.plan" / "plan.strategy").read_text() == (tmp_path / "m.strategy").read_text()
    late = tmp_path / "ir" / "03-shard.mlir"
    assert "--strategy comes too late" in refuse(tools, late, "--start-from", "partition", "--strategy", tmp_path / "m.strategy")
    assert "--save-strategy writes what" in refuse(tools, late, "--start-from", "partition", "--save-strategy", "x.strategy")


def test_spaces_in_a_mesh_are_no_part_of_names(tools, tmp_path):
    model = zoo.save(zoo.mlp([16, 32, 8], zoo.Random(0)), tmp_path / "m.onnx")
    tools.compile(model, tmp_path / "m.plan", "--dim", "batch=8", "--mesh", " data=2 , model = 2")
    report = json.loads((tmp_path / "m.plan" / "report.json").read_text())
    assert report["mesh"] == report["options"]["mesh"] == "data=2,model=2"
    assert report["strategy"] == "data=2,model=2: dp over data, tp over model"
    tools.compile(model, tmp_path / "again.plan", "--dim", "batch=8", "--strategy", tmp_path / "m.plan" / "plan.strategy")
    refused = tools.call("compile", model, "--dim", "batch=8", "--mesh", "a\nb=2", check=False)
    assert refused.stderr == "error: cannot read 'a\\x0ab=2' in --mesh; write name=size, e.g. data=2,model=2\n"
