"""Memory that a plan needs on a device: one number everywhere, and a limit that is kept."""

from __future__ import annotations

import json
import re

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from gridloom import zoo

MESHES = ["", "data=2", "model=2", "pipe=2"]
STATIC = zoo.Gpt2Config(layers=6, hidden=48, heads=4, vocabulary=50, positions=2048, cache="static")


def write(name, folder):
    """A model and the options that bind its dimensions."""
    if name == "gpt2-states":
        config = zoo.Gpt2Config(layers=2, hidden=32, heads=4, vocabulary=50, positions=32, cache="static")
        path = zoo.save(zoo.gpt2(config, zoo.Random(0)), folder / "model.onnx")
        return path, ["--dim", "batch=2", "--dim", "sequence=8,1", "--state", "past_*=present_*"]
    model, options = zoo.SMALL[name]
    path = zoo.MODELS[model].write(folder / "model.onnx", **options)
    used = {d.dim_param for i in onnx.load(path).graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
    return path, [part for d in sorted(used) for part in ("--dim", f"{d}={dict(batch=4, sequence=6, past=3)[d]}")]


def inspect(tools, plan) -> dict:
    return json.loads(tools.call("inspect", plan, "memory", "--format", "json").stdout)


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: mesh or "one")
@pytest.mark.parametrize("name", ["gpt2", "gpt2-states", "llama", "moe", "resnet", "unet", "vit"])
def test_a_limit_holds(tools, tmp_path, name, mesh):
    """Compilation succeeds if and only if each device's allocated memory is within the limit."""
    path, options = write(name, tmp_path)
    command = ["compile", path, "-o", tmp_path / "m.plan", *options, *(["--mesh", mesh] if mesh else [])]
    compiled = tools.call(*command).stdout
    ranks = inspect(tools, tmp_path / "m.plan")["memory_of_a_rank"]
    most = max(ranks, key=lambda rank: rank["total"])
    # Summary, report and view agree.
    report = json.loads((tmp_path / "m.plan" / "report.json").read_text())
    assert report["memory"]["total_bytes"] == most["total"]
    assert report["candidates"][0]["memory_bytes"] == most["total"]
    explained = json.loads(tools.call("explain", tmp_path / "m.plan", "--format", "json").stdout)
    assert explained["total_bytes"] == most["total"] and explained["states_bytes"] == most["states"]
    (line,) = [line for line in compiled.splitlines() if line.startswith("  memory  ")]
    number, unit = re.search(r"([\d.]+) (\w+) per device", line).groups()
    scale = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]
    assert abs(float(number) * scale - most["total"]) <= 0.051 * scale

    early = ["--stop-after", "allocate", "--dump-ir", tmp_path / "ir"]
    tools.call(*command, *early, "--memory-limit", most["total"])
    refused = tools.call(*command, *early, "--memory-limit", most["total"] - 1, check=False)
    (error,) = refused.stderr.strip().splitlines()
    assert refused.returncode == 1
    assert f"needs {most['total']} bytes, the limit is {most['total'] - 1}: weights " in error


def told_change(tools, path, *options):
    """The error, and the change that it suggests, as an option and its value."""
    refused = tools.call("compile", path, *options, check=False)
    assert refused.returncode == 1
    (error,) = refused.stderr.strip().splitlines()
    printed = re.search(r"the smallest change that fits is (--\S+) (\S+) \(", error)
    assert printed, error
    return error, printed.group(1), printed.group(2)


@pytest.mark.parametrize(
    ("limit", "given"),
    [("64MiB", []), ("20MiB", ["--mesh", "data=2"]), ("24MiB", ["--devices", "2"]), ("24MiB", ["--devices", "2", "--mesh", "data=2"]), ("30MiB", ["--mesh", "pipe=2"])],
    ids=lambda value: value if isinstance(value, str) else " ".join(value) or "one",
)
def test_states_count(tools, tmp_path, limit, given):
    """Most of the memory is caches. The suggested change must fit."""
    path = zoo.save(zoo.gpt2(STATIC, zoo.Random(0)), tmp_path / "gpt2.onnx")
    options = ["-o", tmp_path / "m.plan", "--dim", "batch=16", "--dim", "sequence=1", "--memory-limit", limit]
    options += ["--state", "past_*=present_*"]
    error, flag, value = told_change(tools, path, *options, *given)
    assert "states" in error and not (tmp_path / "m.plan").exists()
    kept = [] if flag in ("--mesh", "--devices") else given
    if flag == "--dim":
        name = value.split("=")[0]
        at = next(i for i, option in enumerate(options) if str(option).startswith(f"{name}="))
        options[at] = value
        tools.call("compile", path, *options, *kept)
    else:
        tools.call("compile", path, *options, *kept, flag, value)
    allowed = int(limit.removesuffix("MiB")) << 20
    assert all(rank["total"] <= allowed for rank in inspect(tools, tmp_path / "m.plan")["memory_of_a_rank"])


def test_what_no_change_helps(tools, tmp_path):
    path = zoo.save(zoo.mlp([64, 64, 64], zoo.Random(0)), tmp_path / "m.onnx")
    options = ["-o", tmp_path / "m.plan", "--dim", "batch=1", "--memory-limit", "512"]
    refused = tools.call("compile", path, *options, check=False)
    assert refused.returncode == 1
    assert "the most are weights: split them over more devices" in refused.stderr


def test_plan_suggests_sizes_without_weights(tools, tmp_path):
    path = zoo.save(zoo.mlp([64, 256, 256, 16], zoo.Random(0)), tmp_path / "m.onnx", external_data=True)
    (tmp_path / "m.onnx.data").unlink()
    options = ["--dim", "batch=1024", "--mesh", "model=2", "--strategy", "tp", "--memory-limit", "400KiB"]
    refused = tools.call("plan", path, *options, check=False)
    assert refused.returncode == 1 and "the smallest change that fits is --dim batch=64 (" in refused.stderr


def test_a_limit_holds_for_dumps(tools, tmp_path):
    path = zoo.save(zoo.mlp([64, 64, 64], zoo.Random(0)), tmp_path / "m.onnx")
    tools.call("compile", path, "--dim", "batch=1", "--stop-after", "allocate", "--dump-ir", tmp_path / "ir")
    for phase, dump in [("schedule", "07-fuse.mlir"), ("emit", "09-allocate.mlir")]:
        command = ["compile", "--start-from", phase, tmp_path / "ir" / dump, "-o", tmp_path / "m.plan", "--memory-limit", "512"]
        refused = tools.call(*command, check=False)
        assert refused.returncode == 1 and ", the limit is 512 bytes: weights " in refused.stderr
    assert not (tmp_path / "m.plan").exists()


def test_an_estimate_refuses_nothing_that_fits(tools, tmp_path):
    """On a GPU attention's scores are never stored and must not count."""
    config = zoo.Gpt2Config(layers=2, hidden=256, heads=16, vocabulary=50, positions=1024)
    path = zoo.save(zoo.gpt2(config, zoo.Random(0)), tmp_path / "gpt2.onnx")
    options = ["--dim", "batch=2", "--dim", "sequence=1024", "--target", "cuda:sm_90", "--precision", "bf16"]
    options += ["--devices", "2"]
    scores = 16 * 1024 * 1024 * 2  # of one request in 16 bits; an estimate that counted scores refused limits below three times this
    tools.compile(path, tmp_path / "m.plan", *options, "--memory-limit", 2 * scores)
    (rank, *_) = inspect(tools, tmp_path / "m.plan")["memory_of_a_rank"]
    assert rank["total"] <= 2 * scores


def test_a_search_fits_the_memory_that_its_plan_needs(tools, tmp_path):
    """With the limit, the search finds nothing for the stages that it cuts first; the plan found without one fits."""
    text = """<ir_version: 10, opset_import: ["": 18]>
        model (float16[8,8,3,8] x, float[8,2,3,6] y) => (float16[8,8,3,8] a, float[8,2,2,6] b, float16[8,4,8,4] c, float16[8,4] d) {
        a = Add(x, w)
        b = LpPool<kernel_shape=[1,3], pads=[0,1,0,1], strides=[2,1]>(y)
        c = Pow(v, two)
        d = Gemm<alpha=0.5>(t, u, t)
    }"""
    model = onnx.parser.parse_model(text)
    random, f16 = np.random.default_rng(0), np.float16
    for name, shape in {"w": (8,), "v": (8, 4, 8, 4), "t": (8, 4), "u": (4, 4)}.items():
        model.graph.initializer.append(numpy_helper.from_array(random.normal(size=shape).astype(f16), name))
    model.graph.initializer.append(numpy_helper.from_array(np.array(2, f16), "two"))
    onnx.save(model, tmp_path / "m.onnx")
    command = ["compile", tmp_path / "m.onnx", "-o", tmp_path / "m.plan", "--force", "--mesh", "x=2,y=2,pipe=2"]
    tools.call(*command, "--microbatches", 3)
    needed = max(rank["total"] for rank in inspect(tools, tmp_path / "m.plan")["memory_of_a_rank"])
    tools.call(*command, "--microbatches", 3, "--memory-limit", needed)
    assert max(rank["total"] for rank in inspect(tools, tmp_path / "m.plan")["memory_of_a_rank"]) <= needed


def test_numbers_agree(tools, tmp_path):
    """inspect and explain number and count collectives in the same way, and the specialisations' times sum up."""
    config = zoo.Gpt2Config(layers=2, hidden=32, heads=4, vocabulary=50, positions=32, cache="static")
    path = zoo.save(zoo.gpt2(config, zoo.Random(0)), tmp_path / "gpt2.onnx")
    options = ["--dim", "batch=2", "--dim", "sequence=8,1", "--state", "past_*=present_*"]
    printed = tools.compile(path, tmp_path / "m.plan", *options, "--mesh", "model=2,pipe=2").stdout
    shown = tools.call("inspect", tmp_path / "m.plan", "collectives", "--format", "json").stdout
    collectives = json.loads(shown)["collectives"]
    assert [c["id"] for c in collectives] == list(range(len(collectives)))
    for collective in collectives:
        call = ["explain", tmp_path / "m.plan", "--collective", collective["id"], "--format", "json"]
        explained = json.loads(tools.call(*call).stdout)
        for mine, other in (("kind", "kind"), ("bytes", "bytes"), ("times", "times"), ("ranks", "ranks"), ("dims", "dims"),
                            ("entry", "entry"), ("onnx_node", "onnx_node"), ("because", "because")):  # fmt: skip
            assert explained[mine] == collective[other], (mine, explained, collective)
    over = tools.call("explain", tmp_path / "m.plan", "--collective", len(collectives), check=False)
    assert f"numbered 0 to {len(collectives) - 1}" in over.stderr
    summary = json.loads(tools.call("explain", tmp_path / "m.plan", "--format", "json").stdout)
    assert sum(row["count"] for row in summary["communication"]) == sum(c["times"] for c in collectives)
    assert {row["entry"] for row in summary["estimate"]} == {"main"}
    assert sorted(row["dims"] for row in summary["estimate"]) == ["batch=2,sequence=1", "batch=2,sequence=8"]
    all_steps = sum(row["step_ms"] for row in summary["estimate"])
    assert abs(summary["step_ms_of_all"] - all_steps) < 0.02
    assert "estimate        main batch=2,sequence=8: " in printed and "estimate        all 2 specialisations: " in printed
    assert "main_sequence" not in printed


def test_too_few_operations_for_a_pipeline(tools, tmp_path):
    """The error is about the whole model, not about a node that has the graph's name."""
    path = zoo.save(zoo.mlp([4, 4], zoo.Random(0)), tmp_path / "m.onnx")
    options = ["-o", tmp_path / "m.plan", "--dim", "batch=4", "--mesh", "pipe=8"]
    refused = tools.call("compile", path, *options, check=False)
    assert refused.returncode == 1 and "node" not in refused.stderr
    assert "cannot be cut into 8 stages: it has" in refused.stderr and "use a smaller 'pipe' axis" in refused.stderr


LAYERS, WIDTH, RANKS = 8, 512, 4


@pytest.mark.parametrize("batch", [4096, 512], ids=["compute", "communication"])
def test_gathered_weights_are_there_when_they_are_needed(tools, tmp_path, batch):
    """Sharded weights are gathered one layer ahead: two layers are held at a time, whether gathers or compute take longer."""
    path = zoo.save(zoo.mlp([WIDTH] * (LAYERS + 1), zoo.Random(0)), tmp_path / "mlp.onnx")
    sharded = [part for name in ("x", "layer.*.weight") for part in ("--shard", f"{name}=[{{data}}, {{}}]")]
    options = ["--dim", f"batch={batch}", "--mesh", f"data={RANKS}"]
    tools.compile(path, tmp_path / "sharded.plan", *options, *sharded)
    tools.compile(path, tmp_path / "whole.plan", *options)
    (rank, *_) = inspect(tools, tmp_path / "sharded.plan")["memory_of_a_rank"]
    (whole, *_) = inspect(tools, tmp_path / "whole.plan")["memory_of_a_rank"]
    matrix, biases = 4 * WIDTH**2, 4 * WIDTH * LAYERS
    assert rank["weights"] == LAYERS * matrix // RANKS + biases
    assert rank["registered"] == 2 * matrix, "neither more gathered weights nor copies of shards"
    assert rank["arena"] == whole["arena"] and rank["total"] < whole["total"]
    assert "PASS" in tools.call("check", tmp_path / "sharded.plan").stdout
