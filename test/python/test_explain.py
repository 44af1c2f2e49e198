"""`gridloom explain` and `gridloom diff`: what a plan costs, why, and what alternatives would cost."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gridloom import zoo

CONFIG = zoo.LlamaConfig(layers=2, hidden=64, heads=4, kv_heads=4, intermediate=128, vocabulary=64, positions=32, head="logits")
DIMS = ["--dim", "batch=4", "--dim", "sequence=16"]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return zoo.save(zoo.llama(CONFIG, zoo.Random(0)), tmp_path_factory.mktemp("explain") / "llama.onnx")


@pytest.fixture(scope="module")
def compiled(tools, llama, tmp_path_factory):
    """Plans of the model by options, each compiled once."""
    folder, made = tmp_path_factory.mktemp("plans"), {}

    def compile(*options):
        if options not in made:
            made[options] = folder / f"{len(made)}.plan"
            tools.compile(llama, made[options], *DIMS, *options, "-q")
        return made[options]

    return compile


@pytest.fixture(scope="module")
def cut(tools, tmp_path_factory):
    """Plans of two stages and two micro-batches, by further options."""
    folder = tmp_path_factory.mktemp("cut")
    model = zoo.save(zoo.mlp([64, 256, 64, 256, 64], zoo.Random(0)), folder / "mlp.onnx")

    def compile(*options):
        plan = folder / ("-".join(options) + ".plan")
        tools.compile(model, plan, "--dim", "batch=8", "--mesh", "pipe=2,model=2", "--microbatches", "2", *options, "-q")
        assert any("micro" in value["sharding"] for value in report(plan)["values"])
        return plan

    return compile


@pytest.fixture(scope="module")
def tensor(compiled):
    return compiled("--mesh", "model=2")


def show(tools, *arguments) -> dict:
    return json.loads(tools.call(*arguments, "--json").stdout)


def report(plan) -> dict:
    return json.loads((plan / "report.json").read_text())


def refused(tools, *call, code=1) -> str:
    result = tools.call(*call, check=False)
    assert result.returncode == code and not result.stdout, result.stdout + result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: "), line
    return line


# What a plan costs


def test_a_plan_is_explained_by_what_it_costs(tools, compiled):
    plan = compiled("--devices", "4")
    shown = show(tools, "explain", plan)
    known = report(plan)
    assert len(shown["candidates"]) == len(known["candidates"]) >= 8
    assert shown["candidates"][0]["verdict"] == "chosen" and shown["strategy"] == shown["candidates"][0]["strategy"]
    slower = [row["sum_ms"] for row in shown["candidates"] if row["verdict"] == "slower" and not row["simulated_ms"]]
    assert slower == sorted(slower)
    # Times of the same kind are compared, and refused candidates count.
    chosen, next_one = shown["candidates"][:2]
    outcome = r"fastest of (\d+) candidates, \d+ simulated: ([\d.]+) ms simulated(?:, ([\d.]+) ms in sum)?"
    why = re.match(outcome + r"; the next, (.+), takes ([\d.]+) ms (simulated|in sum)(?: \(\+\d+ %\))?", shown["why"])
    assert why and why[4] == next_one["strategy"], shown["why"]
    both = bool(next_one["simulated_ms"])
    assert (why[6] == "simulated") == both and (why[3] is None) == both
    kind = "simulated_ms" if both else "sum_ms"
    assert [float(why[2 if both else 3]), float(why[5])] == pytest.approx([chosen[kind], next_one[kind]], rel=1e-2)
    assert int(why[1]) == len(known["candidates"])
    (program,) = shown["estimate"]
    assert program["exposed_percent"] == pytest.approx(100 * program["exposed_ms"] / program["step_ms"], abs=1)
    costs = [row["ms"] for row in shown["largest_costs"]]
    assert costs == sorted(costs, reverse=True) and costs[0] <= program["step_ms"]


def test_a_given_mesh_has_no_other_candidate(tools, tensor):
    shown = show(tools, "explain", tensor)
    assert shown["why"] == "there was no other candidate for --mesh model=2" and "candidates" not in shown


def test_values_are_split_as_inspect_writes_it(tools, tensor):
    weight = "layers.0.mlp.down_proj.weight"
    (value,) = show(tools, "explain", tensor, "--value", weight)["values"]
    inspected = {row["name"]: row for row in show(tools, "inspect", tensor, "weights")["weights"]}
    assert value["sharding"] == inspected[weight]["sharding"] == "[model, -]"
    assert "write a node, weight or input, as in --value encoder.q" in refused(tools, "explain", tensor, "--value", "", code=2)


def test_remarks_are_no_warnings(tools, llama, tensor, tmp_path):
    known = report(tensor)
    assert known["warnings"] == [] and known["remarks"]
    assert "warnings" not in show(tools, "explain", tensor)
    options = [*DIMS, "--devices", "2xH100-80GB", "--mesh", "model=2", "--json"]
    planned = tools.call("plan", llama, *options)
    found = json.loads(planned.stdout)
    assert [row["warning"] for row in found["warnings"]] == [line.removeprefix("warning: ") for line in planned.stderr.splitlines()] != []
    assert found["remarks"]


def test_a_search_says_how_good_it_is(tools, llama, tmp_path):
    tools.compile(llama, tmp_path / "s.plan", *DIMS, "--mesh", "x=2", "--strategy", "search", "-q")
    search = report(tmp_path / "s.plan")["search"]
    assert 0 < search["bound_ms"] <= search["cost_ms"] * (1 + 1e-9)
    bound = show(tools, "explain", tmp_path / "s.plan")["bound"]
    assert "one operation after another; on this mesh none take less than" in bound and f"{search['bound_ms']:.3f} ms" in bound
    assert "search_bound" not in (tmp_path / "s.plan" / "ir" / "03-shard.mlir").read_text()


def test_what_is_exposed_adds_up(tools, tensor):
    """Only one stream communicates, so its collectives' exposed times sum to the step's."""
    known = report(tensor)
    (program,) = known["estimates"]
    assert program["exposed_ms"] > 0
    assert sum(c["exposed_us"] for c in known["collectives"]) / 1e3 == pytest.approx(program["exposed_ms"], rel=1e-3)
    assert sum(c["time_us"] for c in known["collectives"]) / 1e3 == pytest.approx(program["comm_ms"], rel=1e-3)
    for collective in known["collectives"]:
        behind = sum(step["us"] for step in collective["hidden_behind"])
        assert behind == pytest.approx(collective["time_us"] - collective["exposed_us"], abs=0.01)
    heaviest = show(tools, "explain", tensor)["heaviest_collectives"]
    assert [row["exposed_us"] for row in heaviest] == sorted((row["exposed_us"] for row in heaviest), reverse=True)
    one = show(tools, "explain", tensor, "--collective", heaviest[0]["id"])
    assert one["exposed_us"] == heaviest[0]["exposed_us"] and one["because"]
    value = show(tools, "explain", tensor, "--value", heaviest[0]["onnx_node"])
    assert heaviest[0]["time_us"] in [row["time_us"] for row in value["its_collectives"]]


def test_collectives_in_loops_run_as_often_as_their_loop(tools, tmp_path):
    f32, trips = TensorProto.FLOAT, 50
    state, carried = (helper.make_tensor_value_info(name, f32, [8, 64]) for name in ("state", "carried"))
    scalars = [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, [])]
    nodes = [
        helper.make_node("MatMul", ["state", "columns"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "rows"], ["carried"], name="second"),
        helper.make_node("Identity", ["go"], ["on"]),
    ]
    body = helper.make_graph(nodes, "body", [*scalars, state], [helper.make_tensor_value_info("on", TensorProto.BOOL, []), carried])
    matrix = np.eye(64, dtype=np.float32)
    values = {"columns": matrix, "rows": matrix, "trips": np.array(trips), "true": np.array(True)}
    weights = [numpy_helper.from_array(value, name) for name, value in values.items()]
    x, y = (helper.make_tensor_value_info(name, f32, [8, 64]) for name in "xy")
    loop = helper.make_node("Loop", ["trips", "true", "x"], ["y"], name="loop", body=body)
    graph = helper.make_graph([loop], "g", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    printed = tools.compile(tmp_path / "m.onnx", tmp_path / "m.plan", "--mesh", "model=2").stdout
    assert f"all_reduce over model: {trips} calls, 100.0 KiB sent per device" in printed
    (row,) = show(tools, "explain", tmp_path / "m.plan")["communication"]
    assert row["count"] == trips and row["bytes"] == trips * 8 * 64 * 4
    assert row["estimate_us"] == pytest.approx(row["time_us"])
    assert show(tools, "explain", tmp_path / "m.plan", "--collective", "0")["times"] == trips
    assert [row["times"] for row in show(tools, "inspect", tmp_path / "m.plan", "collectives")["collectives"]] == [trips]
    (row,) = show(tools, "inspect", tmp_path / "m.plan")["communication"]
    assert (row["times"], row["bytes"]) == (trips, trips * 8 * 64 * 4)
    tools.compile(tmp_path / "m.onnx", tmp_path / "n.plan")
    collective = "stage 0 all_reduce over model for second"
    assert f"- {collective}: {trips} x, 100.0 KiB\n" in tools.call("diff", tmp_path / "m.plan", tmp_path / "n.plan").stdout
    (tmp_path / "n.plan" / "report.json").unlink()
    assert f"- {collective}: 1 x, 2.0 KiB\n" in tools.call("diff", tmp_path / "m.plan", tmp_path / "n.plan").stdout


def test_costs_are_those_of_the_simulator(tools, tensor):
    simulated = show(tools, "simulate", tensor)
    known = {(c["op"], c["node"]): (c["ms"], c["times"]) for c in report(tensor)["costs"]}
    assert len(known) > 20
    for step in simulated["largest_steps"]:
        assert known[step["step"], step["onnx_node"]] == (pytest.approx(step["ms"]), step["times"])


def test_a_stage_has_its_load_and_what_it_waits_for(tools, compiled):
    plan = compiled("--mesh", "pipe=2", "--microbatches", "2")
    memory = json.loads(tools.call("inspect", plan, "memory", "--json").stdout)["memory_of_a_rank"]
    stages = [show(tools, "explain", plan, "--stage", n) for n in (0, 1)]
    for stage, kept in zip(stages, memory):
        assert stage["total_bytes"] == kept["total"] and stage["load"][0]["compute_ms"] > 0
        assert stage["transfers"] and {row["kind"] for row in stage["transfers"]} <= {"send", "recv"}
    # The second stage waits for the first micro-batch of the first stage.
    first = max(row["waiting_us"] for row in stages[1]["transfers"] if row["kind"] == "recv")
    assert first > 0.4 * 1e3 * stages[0]["load"][0]["compute_ms"]
    assert max(stage["percent_of_its_load"] for stage in stages) == 100
    assert "there is no stage 2: stages are numbered 0 to 1" in refused(tools, "explain", plan, "--stage", 2)


def test_a_search_with_stages_bounds_those_alone(tools, cut):
    plan = cut("--strategy", "search")
    search = report(plan)["search"]
    text = show(tools, "explain", plan)["bound"]
    found = re.fullmatch(r"the splits take ([\d.]+) ms in 2 stages; with these stages none take less than ([\d.]+) ms(?: \(at most ([\d.]+) % faster\))?", text)
    assert found, text
    assert [float(found[1]), float(found[2])] == pytest.approx([search["cost_ms"], search["bound_ms"]], abs=1e-3)
    assert float(found[3] or 0) == pytest.approx(100 * (1 - search["bound_ms"] / search["cost_ms"]), abs=0.06)


def test_rows_of_stages_and_programs_are_told_apart(tools, llama, tmp_path):
    sizes = ["--dim", "batch=4", "--dim", "sequence=8,16"]
    tools.compile(llama, tmp_path / "p.plan", *sizes, "--mesh", "pipe=2,model=2", "-q")
    shown = show(tools, "explain", tmp_path / "p.plan")
    for table, keys in (("largest_costs", ("op", "onnx_node")), ("heaviest_collectives", ("id",))):
        rows = [tuple(row[key] for key in (*keys, "program", "stage")) for row in shown[table]]
        assert len(set(rows)) == len(rows) > 1, rows
    assert {row["program"] for row in shown["heaviest_collectives"]} == {"main batch=4,sequence=8", "main batch=4,sequence=16"}


# What it would cost otherwise


def pinned(tools, plan, pin) -> dict:
    return show(tools, "explain", plan, "--why-not", pin)


def test_another_mesh_is_simulated_and_can_be_compiled(tools, tensor, compiled, tmp_path):
    answer = pinned(tools, tensor, "mesh=data=2")
    other = report(compiled("--mesh", "data=2"))["estimates"][0]["step_ms"]
    now = report(tensor)["estimates"][0]["step_ms"]
    assert answer["plan_ms"] == pytest.approx(now) and answer["pinned_ms"] == pytest.approx(other)
    assert answer["change_ms"] == pytest.approx(other - now)
    assert answer["verdict"].startswith("faster" if other < now else "slower")
    gone = [row for row in answer["collectives"] if row["pinned_times"] == 0]
    assert gone and all(row["collective"].startswith("all_reduce over model for ") for row in gone)
    words = shlex.split(answer["compile_it"])
    assert words[:2] == ["gridloom", "compile"]
    words[words.index("-o") + 1] = tmp_path / "other.plan"
    tools.call(*words[1:], "-q")
    assert report(tmp_path / "other.plan")["estimates"][0]["step_ms"] == pytest.approx(other)


def test_a_value_is_pinned(tools, tensor, tmp_path):
    weight = "layers.0.mlp.down_proj.weight"
    answer = pinned(tools, tensor, f"{weight}=[{{}},{{}}]")
    assert answer["change_ms"] == pytest.approx(answer["pinned_ms"] - answer["plan_ms"])
    assert any(row["change_bytes"] > 0 for row in answer["memory"] if row["bytes"].startswith("weights"))
    words = shlex.split(answer["compile_it"])
    words[words.index("-o") + 1] = tmp_path / "other.plan"
    tools.call(*words[1:], "-q")
    (program,) = report(tmp_path / "other.plan")["estimates"]
    assert program["step_ms"] == pytest.approx(answer["pinned_ms"])
    again = pinned(tools, tensor, f"{weight}=[{{model}},{{}}]")
    assert again["verdict"] == "the plan is split so already" and again["change_ms"] == 0
    assert not {"times", "kinds_of_steps", "collectives", "memory"} & set(again)


def test_a_file_says_what_a_pin_may_not(tools, llama, tensor, tmp_path):
    """A short strategy file leaves values open, which can be pinned; its own lines cannot be overridden."""
    weight = "layers.0.mlp.down_proj.weight"
    (tmp_path / "short.strategy").write_text(f"strategy: 1\nmesh: model=2\nweights:\n  {weight}: [{{model}}, {{}}]\n")
    tools.compile(llama, tmp_path / "f.plan", *DIMS, "--strategy", tmp_path / "short.strategy", "-q")
    pin = "layers.1.mlp.down_proj.weight=[{model},{}]"
    answer = pinned(tools, tmp_path / "f.plan", pin)
    assert answer["change_ms"] != 0 and str(tmp_path / "short.strategy") in answer["compile_it"]
    line = refused(tools, "explain", tmp_path / "f.plan", "--why-not", f"{weight}=[{{}},{{model}}]")
    assert weight in line and "short.strategy" in line
    assert "fixes its mesh; compile without --strategy" in refused(tools, "explain", tmp_path / "f.plan", "--why-not", "mesh=model=4")


def test_what_is_searched_is_searched_again(tools, llama, tmp_path):
    """If its own choice is pinned, the search finds the same plan."""
    tools.compile(llama, tmp_path / "s.plan", *DIMS, "--mesh", "x=2", "--strategy", "search", "-q")
    known = {v["name"]: v["sharding"] for v in report(tmp_path / "s.plan")["values"]}
    name = "layers.1.mlp.up_proj.weight"
    now = known[name].split("[")[1].split("]")[0].replace('"', "")
    answer = pinned(tools, tmp_path / "s.plan", f"{name}=[{now}]")
    assert answer["pinned_ms"] == pytest.approx(answer["plan_ms"])
    assert "--strategy search" in answer["compile_it"]


def test_what_chose_among_meshes_keeps_the_plans(tools, compiled, tmp_path):
    plan = compiled("--devices", "2")
    answer = pinned(tools, plan, "mesh=model=2" if "model=2" not in report(plan)["mesh"] else "mesh=data=2")
    # It repeats the user's options: the same devices, or more if the mesh needs more.
    assert " --devices 2 " in answer["compile_it"] and "--cluster" not in answer["compile_it"]
    assert answer["change_ms"] >= -0.1 * answer["plan_ms"]
    words = shlex.split(answer["compile_it"])
    words[words.index("-o") + 1] = tmp_path / "other.plan"
    tools.call(*words[1:], "-q")
    assert report(tmp_path / "other.plan")["estimates"][0]["step_ms"] == pytest.approx(answer["pinned_ms"])
    assert " --devices 4 " in pinned(tools, plan, "mesh=data=2,model=2")["compile_it"]


@pytest.mark.parametrize(
    ("pin", "why"),
    [
        ("layers.0.mlp.down_proj.weight=[{data},{}]", "names axis 'data'; the mesh has model"),
        ("layers.0.mlp.down_proj.weight=[{model}]", "has 1 dimensions; the value is 'tensor<128x64xf32>'"),
        ("layers.*.mlp.down_proj.weight=[{model}]", "has 1 dimensions; the value is 'tensor<128x64xf32>'"),
        ("layers.0.mlp.down_proj.weight=[{model},{model}]", "names axis 'model' twice"),
        ("layers.0.mlp.down_prj.weight=[{model},{}]", "is no input, output, weight or node of the model; did you mean 'layers.0.mlp.down_proj.weight'?"),
        ("mesh=model=zwei", "cannot read 'model=zwei' in --mesh"),
        ("nonsense", "write NAME=[{axis,...},...] or mesh=axis=size,..."),
    ],
    ids=lambda value: value,
)
def test_a_pin_that_cannot_be(tools, tensor, pin, why):
    line = refused(tools, "explain", tensor, "--why-not", pin)
    assert f"not with '{pin}': " in line and why in line and ("did you mean" in line) == ("did you mean" in why)


def test_a_pin_against_the_users_own(tools, llama, tmp_path):
    weight = "layers.0.mlp.down_proj.weight"
    given = f"{weight}=[{{model}},{{}}]"
    tools.compile(llama, tmp_path / "p.plan", *DIMS, "--mesh", "model=2", "--shard", given, "-q")
    pin = f"{weight}=[{{}},{{model}}]"
    line = refused(tools, "explain", tmp_path / "p.plan", "--why-not", pin)
    assert f"--shard '{pin}' contradicts --shard '{given}'; keep one of them" in line


def test_what_is_gone_says_where_it_went(tools, llama, tensor, tmp_path):
    names = {value["name"] for value in report(tensor)["values"]}
    joined = next(name for name in sorted(names) if " + " in name)
    part = next(node for node in joined.split(" + ") if node not in names)
    line = refused(tools, "explain", tensor, "--why-not", f"{part}=[{{}}]")
    assert f"node '{part}' is computed as part of '{joined}'" in line
    graph = onnx.load(llama, load_external_data=False).graph
    tensors = {output: node.name for node in graph.node for output in node.output}
    made, maker = next((t, n) for t, n in sorted(tensors.items()) if n in names and t not in names)
    line = refused(tools, "explain", tensor, "--why-not", f"{made}=[{{}}]")
    assert f"'{made}' is the tensor that node '{maker}' makes" in line


def test_a_folded_node_says_into_what(tools, tmp_path):
    """The product of two constants is computed when the model is compiled, and folded into the operation that reads it."""
    weight = numpy_helper.from_array(zoo.Random(0).get("w", (8, 8)), "w")
    two = numpy_helper.from_array(zoo.Random(0).get("two", (1,), scale=1.0), "two")
    nodes = [
        helper.make_node("Mul", ["two", "two"], ["four"], name="/Square"),
        helper.make_node("Add", ["x", "four"], ["shifted"], name="/Shift"),
        helper.make_node("MatMul", ["shifted", "w"], ["y"], name="/MatMul"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "folded", values[:1], values[1:], [weight, two])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    tools.compile(tmp_path / "m.onnx", tmp_path / "m.plan", "--dim", "batch=4", "--mesh", "data=2", "-q")
    assert "/Square" not in {value["name"] for value in report(tmp_path / "m.plan")["values"]}
    line = refused(tools, "explain", tmp_path / "m.plan", "--why-not", "/Square=[{data}]")
    assert "node '/Square' is no operation of its own: it was folded away, and what it gave is in '/Shift'" in line


def test_plans_that_cannot_be_planned_again(tools, llama, tensor, tmp_path):
    tools.compile(llama, tmp_path / "one.plan", *DIMS, "-q")
    pin = "layers.0.mlp.down_proj.weight=[{},{}]"
    assert "the plan is for one device, on which nothing is split" in refused(
        tools, "explain", tmp_path / "one.plan", "--why-not", pin
    )
    dump = tensor / "ir" / "03-shard.mlir"
    tools.call("compile", "--start-from", "partition", dump, "-o", tmp_path / "dump.plan", "-q")
    assert "was compiled from a dump, with --start-from partition" in refused(
        tools, "explain", tmp_path / "dump.plan", "--why-not", pin
    )
    model = shutil.copy(llama, tmp_path / "moved.onnx")
    tools.compile(model, tmp_path / "moved.plan", *DIMS, "--mesh", "model=2", "-q")
    model.unlink()
    assert "is not there" in refused(tools, "explain", tmp_path / "moved.plan", "--why-not", pin)
    known = report(tensor)
    del known["options"]
    shutil.copytree(tensor, tmp_path / "old.plan")
    (tmp_path / "old.plan" / "report.json").write_text(json.dumps(known))
    assert "that this version of 'gridloom compile' wrote" in refused(
        tools, "explain", tmp_path / "old.plan", "--why-not", pin
    )
    assert tools.call("explain", tmp_path / "old.plan").stdout
    result = tools.call("explain", tensor, "--alternatives", check=False)
    assert result.returncode == 2 and "--collective" in result.stderr


def test_alternatives_to_a_collective(tools, tensor):
    known = report(tensor)
    heaviest = max(known["collectives"], key=lambda c: c["exposed_us"])
    answer = show(tools, "explain", tensor, "--collective", heaviest["id"], "--alternatives")
    trials = [row for row in answer["alternatives"] if row["step_ms"] is not None]
    assert len(trials) >= 2 and [row["step_ms"] for row in trials] == sorted(row["step_ms"] for row in trials)
    for row in answer["alternatives"]:
        assert row["pin"].startswith(heaviest["origin"] + "=[") and row["verdict"]
    best = trials[0]
    assert answer["cheapest"].startswith(best["pin"] + ", ")
    assert pinned(tools, tensor, best["pin"])["pinned_ms"] == pytest.approx(best["step_ms"])
    assert best["change_ms"] == pytest.approx(best["step_ms"] - known["estimates"][0]["step_ms"], abs=1e-9)


@pytest.mark.parametrize("axes", [("data", "model"), ("model", "data")])
def test_alternatives_name_axes_as_the_mesh_does(tools, tmp_path, axes):
    """A collective over two axes: pins list them in the mesh's order, whatever their names."""
    rows = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in ("x", "y")]
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name="/product"), helper.make_node("Exp", ["p"], ["y"], name="/exp")]
    graph = helper.make_graph(nodes, "g", rows[:1], rows[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    joined = ",".join(axes)
    pins = ["--shard", f"x=[{{}},{{{joined}}}]", "--shard", f"w=[{{{joined}}},{{}}]", "--shard", "/exp=[{},{}]"]
    tools.compile(tmp_path / "m.onnx", tmp_path / "m.plan", "--mesh", f"{axes[0]}=2,{axes[1]}=2", *pins, "-q")
    reduce = next(c for c in report(tmp_path / "m.plan")["collectives"] if len(c["axes"]) == 2)
    answer = show(tools, "explain", tmp_path / "m.plan", "--collective", reduce["id"], "--alternatives")
    tried = {row["pin"].split("=", 1)[1] for row in answer["alternatives"]}
    assert f"[{{{joined}}},{{}}]" in tried and f"[{{{','.join(reversed(axes))}}},{{}}]" not in tried


def test_alternatives_with_micro_batches(tools, cut):
    """Micro-batch axes are no part of a pin, and transfers have no alternatives."""
    plan = cut("--strategy", "tp+pp")
    known = report(plan)
    reduce = next(c for c in known["collectives"] if c["kind"] == "all_reduce")
    answer = show(tools, "explain", plan, "--collective", reduce["id"], "--alternatives")
    assert all("micro" not in row["pin"] for row in answer["alternatives"])
    trials = [row for row in answer["alternatives"] if row["step_ms"] is not None]
    assert len(trials) == 2 and pinned(tools, plan, trials[0]["pin"])["pinned_ms"] == pytest.approx(trials[0]["step_ms"])
    send = next(c for c in known["collectives"] if c["kind"] == "send")
    line = refused(tools, "explain", plan, "--collective", send["id"], "--alternatives")
    assert f"collective {send['id']} is a transfer to or from another stage" in line and "--why-not mesh=..." in line
    assert "--why-not: it is empty; write NAME=[{axis,...},...] or mesh=axis=size" in refused(tools, "explain", plan, "--why-not", "", code=2)


# Two plans


def test_plans_are_compared_by_cost(tools, tensor, compiled):
    other = compiled("--mesh", "data=2")
    found = show(tools, "diff", tensor, other)
    assert found["differ"] is True
    a, b = (report(plan)["estimates"][0] for plan in (tensor, other))
    times = {row["time"]: row for row in found["times"]}
    assert times["step"]["change_ms"] == pytest.approx(b["step_ms"] - a["step_ms"])
    assert times["communication exposed"]["first_ms"] == pytest.approx(a["exposed_ms"])
    for table in ("kinds_of_steps", "scopes", "collectives"):
        changes = [abs(row["change_ms"]) for row in found[table]]
        assert changes == sorted(changes, reverse=True) and changes[0] > 0, table
    assert "/layers.*/mlp/down_proj" in {row["scope"] for row in found["scopes"]}
    total = sum(row["change_ms"] for row in found["kinds_of_steps"])
    whole = sum(c["ms"] for c in report(other)["costs"]) - sum(c["ms"] for c in report(tensor)["costs"])
    assert total == pytest.approx(whole, abs=1e-3 * a["step_ms"])
    text = tools.call("diff", tensor, other).stdout
    assert text.index("times") < text.index("- mesh: model=2\n+ mesh: data=2\n")
    assert tools.call("diff", tensor, other, "--exit-code", check=False).returncode == 1


def test_equal_plans_have_no_differences(tools, tensor):
    assert tools.call("diff", tensor, tensor, "--exit-code").stdout == "the plans are equal\n"
    assert show(tools, "diff", tensor, tensor) == {"differ": False, "differences": []}


def test_programs_of_one_plan_are_not_compared(tools, llama, tensor, tmp_path):
    """A program that only one plan has is not a difference of the one that both have."""
    tools.compile(llama, tmp_path / "two.plan", "--dim", "batch=4,8", "--dim", "sequence=16", "--mesh", "model=2", "-q")
    found = show(tools, "diff", tensor, tmp_path / "two.plan")
    assert [(row["program"], row["plan"]) for row in found["programs_of_one_plan"]] == [("main batch=8,sequence=16", "second")]
    assert not {"times", "kinds_of_steps", "scopes", "collectives"} & set(found)


def test_diff_and_why_not_have_the_same_rows(tools, tensor, compiled):
    """Both read a plan's costs in the same way."""
    answer = pinned(tools, tensor, "mesh=data=2")
    found = show(tools, "diff", tensor, compiled("--mesh", "data=2"))
    for table in ("times", "kinds_of_steps", "scopes", "collectives", "memory"):
        mine = [list(row.values()) for row in answer[table]]
        theirs = [list(row.values()) for row in found[table]]
        assert [row[0] for row in mine] == [row[0] for row in theirs], table
        assert [row[-1] for row in mine] == pytest.approx([row[-1] for row in theirs], rel=1e-6, abs=1e-9), table


def test_a_plan_without_a_report_has_no_costs(tools, tensor, compiled, tmp_path):
    other = shutil.copytree(compiled("--mesh", "data=2"), tmp_path / "bare.plan")
    (other / "report.json").unlink()
    text = tools.call("diff", tensor, other).stdout
    assert text.startswith(f"no costs: {other} has no report.json: ") and "kinds of steps" not in text
    assert "- mesh: model=2\n+ mesh: data=2\n" in text
    found = show(tools, "diff", tensor, other)
    assert f"{other} has no report.json" in found["no_costs"] and set(found) == {"differ", "no_costs", "differences"}


def test_transfers_have_a_direction(tools, cut, tensor):
    text = tools.call("diff", cut("--strategy", "tp+pp"), tensor).stdout
    assert "- stage 0 send to stage 1 for " in text and "- stage 1 recv from stage 0 for " in text
