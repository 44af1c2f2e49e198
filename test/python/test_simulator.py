"""gridloom plan and gridloom simulate: times, memory, traces, measured costs, and refusals."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import pytest

from gridloom import zoo

DIMS = {"batch": 4, "sequence": 6, "past": 3}
MESHES = ["", "data=2", "model=2", "data=2,model=2", "pipe=2", "data=2,pipe=2"]


def dims_of(path) -> list[str]:
    """--dim for every named dimension of the model's inputs."""
    graph = onnx.load(str(path), load_external_data=False).graph
    given = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in given]
    names = {dim.dim_param for value in inputs for dim in value.type.tensor_type.shape.dim if dim.dim_param}
    return [text for name in sorted(names) if name in DIMS for text in ("--dim", f"{name}={DIMS[name]}")]


def plan(tools, path, *options) -> dict:
    return json.loads(tools.call("plan", path, *options, "--json").stdout)


def simulate(tools, path, *options) -> dict:
    return json.loads(tools.call("simulate", path, *options, "--json").stdout)


def refused(tools, *call) -> str:
    result = tools.call(*call, check=False)
    assert result.returncode == 1 and not result.stdout, result.stdout + result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: "), line
    return line


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    return zoo.save(zoo.mlp([64, 256, 256, 64], zoo.Random(0)), tmp_path_factory.mktemp("simulator") / "mlp.onnx")


@pytest.fixture(scope="module")
def compiled(tools, mlp, tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("compiled"), {}

    def compile(mesh, *options):
        if (mesh, *options) not in made:
            made[mesh, *options] = folder / f"{len(made)}.plan"
            given = ["--mesh", mesh] if mesh else []
            tools.compile(mlp, made[mesh, *options], "--dim", "batch=16", *given, *options)
        return made[mesh, *options]

    return compile


@pytest.mark.parametrize("name", zoo.SMALL)
def test_memory_is_what_is_allocated(tools, tmp_path, name):
    """The peak of live memory equals the allocated memory, except for gaps."""
    model, options = zoo.SMALL[name]
    path = zoo.MODELS[model].write(tmp_path / "m.onnx", **options)
    for mesh in MESHES:
        if name.startswith("lstm") and "model" in mesh:
            continue  # no weight can be split
        found = plan(tools, path, *dims_of(path), *(["--mesh", mesh] if mesh else []))
        for stage in found["stages"]:
            assert 0.95 * stage["allocated_bytes"] <= stage["peak_bytes"] <= stage["allocated_bytes"], (mesh, stage)
            curve = [point["bytes"] for point in found["memory"] if point["stage"] == stage["stage"]]
            assert 0 < max(curve) <= stage["peak_bytes"]


def test_a_plan_is_simulated_as_it_was_planned(tools, mlp, compiled):
    """Simulating the dump in a plan's folder gives the results of the compilation."""
    for mesh in [*MESHES, "data=2,model=2,pipe=2"]:
        planned = plan(tools, mlp, "--dim", "batch=16", *(["--mesh", mesh] if mesh else []))
        again = simulate(tools, compiled(mesh))
        for part in ("programs", "stages", "largest_steps", "memory", "machine"):
            assert again[part] == planned[part], (mesh, part)
        ranks = json.loads(tools.call("inspect", compiled(mesh), "memory", "--json").stdout)["memory_of_a_rank"]
        assert {stage["stage"]: stage["allocated_bytes"] for stage in again["stages"]} == {rank["stage"]: rank["total"] for rank in ranks}
        (program,) = again["programs"]
        (estimate,) = json.loads((compiled(mesh) / "report.json").read_text())["estimates"]
        for name in ("step_ms", "compute_ms", "comm_ms", "exposed_ms"):
            assert estimate[name] == pytest.approx(program[name])
        assert 0 < program["compute_ms"] and 0 <= program["exposed_ms"] <= program["step_ms"]
        assert (program["comm_ms"] > 0) == ("model" in mesh), mesh
        assert (program["bubble_percent"] > 0) == ("pipe" in mesh), mesh


FREE = {  # communication and launches are free
    "device_kinds": [{"name": "k", "memory_bytes_per_second": 1e9, "launch_seconds": 0, "collective_launch_seconds": 0,
                      "flops_per_second": {"contraction": {"f32": 1e9}, "other": {"f32": 1e9}}}],
    "devices": [{"name": "d", "kind": "k", "count": 4}],
    "switches": ["s"],
    "links": [{"ends": ["d", "s"], "latency_seconds": 0, "bytes_per_second": 1e18}],
}  # fmt: skip


@pytest.mark.parametrize("stages,micro", [(2, 1), (2, 8), (4, 16)])
def test_forward_pipelines(tools, tmp_path, stages, micro):
    """The first micro-batch passes all stages; the others follow at the pace of the slowest stage."""
    path = zoo.save(zoo.mlp([64] * 9, zoo.Random(0)), tmp_path / "deep.onnx")
    cluster = tmp_path / "free.json"
    cluster.write_text(json.dumps(FREE))
    options = ["--dim", "batch=16", "--cluster", cluster, "--mesh", f"pipe={stages}", "--microbatches", micro]
    found = plan(tools, path, *options)
    each = [stage["compute_ms"] / micro for stage in found["stages"]]
    assert len(each) == stages
    expected = sum(each) + (micro - 1) * max(each)
    assert found["programs"][0]["step_ms"] == pytest.approx(expected, rel=1e-3)
    idle = 1 - micro * np.mean(each) / expected
    assert found["programs"][0]["bubble_percent"] == pytest.approx(100 * idle, abs=0.2)


def test_very_many_microbatches(tools, tmp_path):
    """Only some are simulated; the rest continue at the pace of the slowest stage, and the trace says that they are left out."""
    path = zoo.save(zoo.mlp([64] * 9, zoo.Random(0)), tmp_path / "deep.onnx")
    cluster, micro = tmp_path / "free.json", 50_000
    cluster.write_text(json.dumps(FREE))
    options = ["--dim", f"batch={4 * micro}", "--cluster", cluster, "--mesh", "pipe=4", "--microbatches", micro]
    result = tools.call("plan", path, *options, "--json", "--trace", tmp_path / "t.json")
    found = json.loads(result.stdout)
    each = [stage["compute_ms"] / micro for stage in found["stages"]]
    assert found["programs"][0]["step_ms"] == pytest.approx(sum(each) + (micro - 1) * max(each), rel=1e-3)
    assert {step["times"] for step in found["largest_steps"]} == {micro}
    (row,) = found["extrapolated"]
    assert row["what"] == "micro-batches" and row["of"] == micro and 64 <= row["run"] < micro
    (line,) = result.stderr.splitlines()
    left_out = f"main batch={4 * micro}: {micro - row['run']} of {micro} micro-batches"
    assert line == f"warning: {tmp_path}/t.json leaves out what goes on like the rest: {left_out}"
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert max(e["args"]["iteration"] for e in events if e["ph"] == "X") == row["run"] - 1


@pytest.mark.parametrize("micro", [1, 4, 16])
def test_stages_share_cores(tools, tmp_path, micro):
    """Four stages: a single core is never idle, and four shared cores are as good as a core each."""
    path = zoo.save(zoo.mlp([64] * 9, zoo.Random(0)), tmp_path / "deep.onnx")
    kind = FREE["device_kinds"][0] | {"cores": 1}
    found = {}
    for cores in (1, 2, 3, 4, None):
        devices = FREE["devices"][0] | ({"cores": cores} if cores else {})
        (tmp_path / "cores.json").write_text(json.dumps(FREE | {"device_kinds": [kind], "devices": [devices]}))
        options = ["--cluster", tmp_path / "cores.json", "--mesh", "pipe=4", "--microbatches", micro]
        found[cores] = plan(tools, path, "--dim", "batch=16", *options)
    own = {cores: each["programs"][0]["step_ms"] for cores, each in found.items()}
    work = sum(stage["compute_ms"] for stage in found[None]["stages"])
    assert own[4] == pytest.approx(own[None]) and own[1] == pytest.approx(work, rel=1e-3)
    assert own[4] <= own[3] <= own[2] <= own[1] * (1 + 1e-9) and own[2] >= (1 - 1e-9) * work / 2
    if micro == 1:  # one stage at a time, on one core
        assert own[4] == pytest.approx(own[1], rel=1e-3)
    else:
        assert own[2] < 0.9 * own[1]


def test_slower_links_take_longer(tools, compiled, tmp_path):
    """Half the bandwidth, without latency or launch time: twice the time on the link."""
    times = []
    for bandwidth in (1e6, 5e5):
        link = FREE["links"][0] | {"bytes_per_second": bandwidth}
        path = tmp_path / f"{bandwidth}.json"
        path.write_text(json.dumps(FREE | {"links": [link]}))
        times.append(simulate(tools, compiled("model=2"), "--cluster", path)["programs"][0])
    assert times[1]["comm_ms"] == pytest.approx(2 * times[0]["comm_ms"], rel=1e-3)
    assert times[1]["step_ms"] - times[0]["step_ms"] == pytest.approx(times[0]["exposed_ms"], rel=1e-2)
    assert simulate(tools, compiled("model=2"), "--cluster", "HGX-H100")["machine"] == "H100-80GB"


def trace_of(path) -> tuple[set, set]:
    """The steps and the tracks of a trace, with their ranks."""
    events = json.loads(path.read_text())["traceEvents"]
    steps = {(e["name"], e["args"]["onnx"], e["args"]["iteration"], e["pid"]) for e in events if e["ph"] == "X"}
    tracks = {(e["name"], e["args"]["name"], e["pid"]) for e in events if e["ph"] == "M"}
    return steps, tracks


@pytest.mark.parametrize("mesh", ["", "data=2,model=2", "data=2,pipe=2"])
def test_traces_have_the_runtimes_names(tools, compiled, tmp_path, mesh):
    """The steps and tracks of each stage's first rank are the same."""
    path = compiled(mesh)
    tools.run(path, {"x": np.ones((16, 64), np.float32)}, tmp_path, "--trace", tmp_path / "run.json")
    found = simulate(tools, path, "--trace", tmp_path / "simulated.json")
    ranks = {stage["rank"] for stage in found["stages"]}
    assert len(ranks) == len(found["stages"])
    for real, ours in zip(trace_of(tmp_path / "run.json"), trace_of(tmp_path / "simulated.json")):
        assert ours == {entry for entry in real if entry[-1] in ranks} != set()
    counters = [e for e in json.loads((tmp_path / "simulated.json").read_text())["traceEvents"] if e["ph"] == "C"]
    assert {e["pid"] for e in counters} == ranks and all(e["args"]["bytes"] > 0 for e in counters)


def test_a_runs_own_times_predict_it(tools, compiled, tmp_path):
    """The steps of one rank run one after another: the total is the sum of their measured times."""
    path = compiled("")
    tools.run(path, {"x": np.ones((16, 64), np.float32)}, tmp_path, "--trace", tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    total = sum(event["dur"] for event in events if event["ph"] == "X") / 1e3
    found = simulate(tools, path, "--costs", tmp_path / "run.json")
    assert found["programs"][0]["step_ms"] == pytest.approx(total, rel=1e-4)
    assert found["measured_steps"] == found["steps"] and all(step["measured"] for step in found["largest_steps"])


def test_times_of_another_mesh(tools, mlp, compiled, tmp_path):
    """Equal steps take their measured times; the others are estimated."""
    tools.run(compiled("data=2,model=2"), {"x": np.ones((16, 64), np.float32)}, tmp_path, "--trace", tmp_path / "run.json")
    same = plan(tools, mlp, "--dim", "batch=16", "--mesh", "data=2,model=2", "--costs", tmp_path / "run.json")
    assert same["measured_steps"] == same["steps"]
    other = zoo.save(zoo.mlp([8, 24, 8], zoo.Random(0)), tmp_path / "other.onnx")
    (tmp_path / "foreign.json").write_text((tmp_path / "run.json").read_text().replace('"name":"', '"name":"not '))
    line = refused(tools, "plan", other, "--dim", "batch=4", "--costs", tmp_path / "foreign.json")
    assert "time none of the plan's steps; they are of another plan" in line


@pytest.mark.parametrize(
    "text,why",
    [
        ("", "are not JSON"),
        ("{", "are not JSON"),
        ("\x00\xff", "are not JSON"),
        ("[" * 200_000, "more than 64 lists"),
        ("[]", "have no list 'traceEvents'"),
        ('{"traceEvents": {}}', "have no list 'traceEvents'"),
        ('{"traceEvents": []}', "time no step"),
        ('{"traceEvents": [1]}', "traceEvents[0] is not an object"),
        ('{"traceEvents": [{"ph": "X", "name": "k", "dur": -1}]}', "traceEvents[0] has 'dur' -1"),
        ('{"traceEvents": [{"ph": "X", "name": 3, "dur": 1}]}', "traceEvents[0] has no 'name'"),
        ('{"traceEvents": [{"ph": "X", "name": "k", "dur": NaN}]}', "are not JSON"),
    ],
    ids=lambda value: value[:12] if value.isprintable() else "bytes",
)
def test_costs_that_are_none(tools, compiled, tmp_path, text, why):
    path = tmp_path / "costs.json"
    path.write_bytes(text.encode("latin-1"))
    line = refused(tools, "simulate", compiled(""), "--costs", path)
    assert f"the costs '{path}' " in line and why in line
    missing = refused(tools, "simulate", compiled(""), "--costs", tmp_path / "none.json")
    assert f"cannot read the costs '{tmp_path}/none.json': No such file" in missing


def test_absent_weights(tools, tmp_path):
    """Compiling needs the weights' files, planning does not."""
    config = zoo.BertConfig(layers=2, hidden=64, heads=4, intermediate=128, vocabulary=100, positions=32)
    path = zoo.save(zoo.bert(config, zoo.Random(0)), tmp_path / "bert.onnx", external_data=True)
    options = ["--dim", "batch=4", "--dim", "sequence=8", "--mesh", "data=2,model=2"]
    before = plan(tools, path, *options)
    (data,) = tmp_path.glob("*.data")
    data.unlink()
    assert "which cannot be found beside" in refused(tools, "compile", path, "-o", tmp_path / "m.plan", *options)
    assert plan(tools, path, *options) == before
    onnx_model = onnx.load(str(path), load_external_data=False)
    for tensor in onnx_model.graph.initializer:  # paths out of the model's folder are still refused
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = f"../{data.name}"
    onnx.save(onnx_model, tmp_path / "out.onnx")
    (tmp_path.parent / data.name).write_bytes(b"0")
    assert "leads out of the model's folder" in refused(tools, "plan", tmp_path / "out.onnx", *options)


def test_the_planner_chooses_for_a_plan_too(tools, mlp, tmp_path):
    found = plan(tools, mlp, "--dim", "batch=16", "--devices", "4")
    assert found["strategy"] in {row["strategy"] for row in found["candidates"] if row["verdict"] == "chosen"}
    printed = tools.call("plan", mlp, "--dim", "batch=16", "--devices", "4", "-o", tmp_path / "out", "--trace", tmp_path / "t.json")
    assert "largest steps" in printed.stdout and "\nmemory\n" not in printed.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["plan.strategy", "report.json"]
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == found
    json.loads((tmp_path / "t.json").read_text())
    # Files that a user edited are not replaced.
    file = tmp_path / "out" / "plan.strategy"
    tools.call("plan", mlp, "--dim", "batch=16", "--devices", "4", "-o", tmp_path / "out")
    file.write_text("# mine\n" + file.read_text())
    line = refused(tools, "plan", mlp, "--dim", "batch=16", "--strategy", file, "-o", tmp_path / "out")
    assert line.endswith("plan.strategy' exists and says something else; remove it, or choose another --output")
    assert file.read_text().startswith("# mine")


def test_no_foreign_file_is_replaced(tools, mlp, compiled, tmp_path):
    """A trace in place of the model, of a plan's file or of a report, and a report among other files."""
    model = tmp_path / "m.onnx"
    model.write_bytes(mlp.read_bytes())
    options = ["plan", model, "--dim", "batch=16"]
    assert refused(tools, *options, "--trace", model).endswith("m.onnx exists and is not a trace; choose another file")
    assert model.read_bytes() == mlp.read_bytes()
    for name in ("manifest.json", "new.json", "ir/new.json"):
        line = refused(tools, "simulate", compiled(""), "--trace", compiled("") / name)
        assert line.endswith(f"{name} is in the folder of a plan; choose another file")
    assert "is a folder; name a file" in refused(tools, "simulate", compiled(""), "--trace", tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "notes.txt").write_text("mine")
    line = refused(tools, *options, "-o", tmp_path / "results")
    assert line.endswith("results' exists and has no report of gridloom plan; choose another --output")
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["notes.txt"]
    for _ in range(2):  # a trace replaces a trace
        tools.call("simulate", compiled(""), "--trace", tmp_path / "t.json")


def test_several_specialisations(tools, mlp, tmp_path):
    found = plan(tools, mlp, "--dim", "batch=4,16", "--trace", tmp_path / "t.json")
    assert [program["dims"] for program in found["programs"]] == ["batch=4", "batch=16"]
    assert found["step_ms_of_all"] == pytest.approx(sum(program["step_ms"] for program in found["programs"]))
    events = [e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert max(e["ts"] + e["dur"] for e in events) == pytest.approx(1e3 * found["step_ms_of_all"], rel=1e-3)


def test_what_is_refused(tools, mlp, compiled, tmp_path):
    assert "no plan, or one without its programs" in refused(tools, "simulate", tmp_path)
    assert "nofile: is not a plan folder or a dump of a phase; nothing has this name" in refused(tools, "simulate", "nofile")
    assert "(.mlir); make a plan with gridloom compile" in refused(tools, "simulate", mlp)
    (whole,) = (compiled("data=2") / "ir").glob("*-allocate.mlir")
    lines = whole.read_text().splitlines()
    (tmp_path / "half.mlir").write_text("\n".join(lines[: len(lines) // 2]))
    assert re.search(r"half\.mlir:\d+: ", refused(tools, "simulate", tmp_path / "half.mlir"))
    (dump,) = (compiled("data=2") / "ir").glob("*-communicate.mlir")
    assert "holds no scheduled programs" in refused(tools, "simulate", dump)
    assert "the plan needs 4 devices" in refused(tools, "simulate", compiled("data=2,model=2"), "--cluster", write_pair(tmp_path))
    assert "did you mean 'HGX-H100'?" in refused(tools, "simulate", compiled(""), "--cluster", "HGX-H10")
    assert "is a compiled plan; choose another --output" in refused(tools, "plan", mlp, "--dim", "batch=16", "-o", compiled(""))
    assert "the trace cannot be written" in refused(tools, "simulate", compiled(""), "--trace", tmp_path / "none" / "t.json")
    assert "did you mean" in refused_usage(tools, "plann", mlp)
    assert "--stop-after" in refused_usage(tools, "plan", mlp, "--stop-after", "shard")
    line = refused(tools, "plan", mlp, "--dim", "batch=16", "--memory-limit", "10KiB")
    assert re.search(r"needs .* the limit is 10.0 KiB", line)


def write_pair(folder):
    path = folder / "pair.json"
    path.write_text(json.dumps(FREE | {"devices": [FREE["devices"][0] | {"count": 2}]}))
    return path


def refused_usage(tools, *call) -> str:
    result = tools.call(*call, check=False)
    assert result.returncode == 2
    return result.stderr


def test_a_scheduled_dump_is_allocated_first(tools, compiled):
    (schedule,) = (compiled("data=2,model=2") / "ir").glob("*-schedule.mlir")
    found, whole = simulate(tools, schedule), simulate(tools, compiled("data=2,model=2"))
    assert found["stages"] == whole["stages"] and found["programs"] == whole["programs"]


@pytest.mark.parametrize("verb", ["plan", "simulate"])
def test_help_has_examples(tools, verb):
    text = tools.call(verb, "--help").stdout
    assert f"gridloom {verb} model." in text and "--costs" in text
