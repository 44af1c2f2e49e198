"""The lower bound of all plans: it must not exceed the sum of any plan that the planner weighs, and be close to the chosen one's."""

from __future__ import annotations

import json
import random

import onnx
import pytest

from gridloom import zoo

SIZES = {"batch": 4, "sequence": 8, "past": 4}
CPU = ["--devices", "4"]
H100 = ["--devices", "8xH100-80GB", "--target", "cuda:sm_90", "--precision", "bf16"]
CLUSTERS = {"cpu": CPU, "H100": H100}


def write(name, folder):
    model, options = zoo.SMALL[name]
    return zoo.MODELS[model].write(folder / f"{name}.onnx", shapes_only=True, **options)


def bind(model, **sizes) -> list[str]:
    inputs = onnx.load(str(model), load_external_data=False).graph.input
    names = {dim.dim_param for value in inputs for dim in value.type.tensor_type.shape.dim}
    return [part for name, size in (SIZES | sizes).items() if name in names for part in ("--dim", f"{name}={size}")]


def plan(tools, model, *options, **sizes) -> dict:
    # Extrapolated sums may differ from those of whole plans.
    return json.loads(tools.call("plan", model, *bind(model, **sizes), *options, "--weigh-all", "--json").stdout)


def check(found) -> None:
    sums = [row["sum_ms"] for row in found["candidates"] if row["sum_ms"]]
    chosen = next(row for row in found["candidates"] if row["verdict"] == "chosen")
    assert found["sum_ms"] == pytest.approx(chosen["sum_ms"])
    below = {row["strategy"]: row["sum_ms"] for row in found["candidates"] if row["sum_ms"] and row["sum_ms"] < found["bound_ms"] * (1 - 1e-9)}
    assert len(sums) > 1 and 0 < found["bound_ms"] and not below, (found["bound_ms"], below)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("name", zoo.SMALL)
def test_no_candidate_is_below_the_bound(tools, tmp_path, name, cluster):
    model = write(name, tmp_path)
    options = CLUSTERS[cluster]
    loose = plan(tools, model, *options)
    check(loose)
    close = plan(tools, model, *options, "--certify")
    check(close)
    assert close["bound_ms"] >= loose["bound_ms"]
    assert "by work alone, without messages" in loose["bound_covers"] and "as the search prices" in close["bound_covers"]
    assert [row["strategy"] for row in close["candidates"]] == [row["strategy"] for row in loose["candidates"]]


@pytest.mark.parametrize("seed", range(12))
def test_no_candidate_of_a_random_model_is_below_the_bound(tools, tmp_path, seed):
    """Dense layers with sizes that divide and that do not, and batches for which stages may pay off. Of 16 devices stages are searched, too:
    meshes of three axes do not have all of theirs."""
    draw = random.Random(seed)
    sizes = [draw.choice([5, 12, 64, 96, 250, 512, 1024]) for _ in range(draw.randint(3, 6))]
    model = zoo.save(zoo.mlp(sizes, zoo.Random(seed)), tmp_path / "mlp.onnx")
    found = plan(tools, model, "--devices", str(draw.choice([2, 4, 6, 8]) if seed < 8 else 16), "--certify", batch=draw.choice([1, 6, 8, 32, 512]))
    check(found)


@pytest.mark.parametrize("pin", ["layer.0.weight=[{},{x}]", "layer.0.weight=[{y},{}]", "layer.1.weight=[{x},{}]", "x=[{x},{}]", "layer.*.weight=stored[{x},{}]"])
def test_pins_are_not_taken_for_those_of_another_mesh(tools, tmp_path, pin):
    """The bound's own meshes have axes of the same names but other sizes."""
    model = zoo.save(zoo.mlp([1024, 4096, 1024], zoo.Random(0)), tmp_path / "mlp.onnx")
    found = plan(tools, model, "--mesh", "x=4,y=2", "--shard", pin, "--certify", batch=512)
    check(found)
    assert "as the search prices" in found["bound_covers"] and "with what is pinned and without" in found["bound_covers"]
    free = plan(tools, model, "--mesh", "x=4,y=2", "--certify", batch=512)
    assert found["bound_ms"] == pytest.approx(free["bound_ms"]) and "pinned" not in free["bound_covers"]


def test_plans_of_more_axes_than_are_searched_are_bounded_by_work(tools, tmp_path):
    model = zoo.save(zoo.mlp([1024, 4096, 1024], zoo.Random(0)), tmp_path / "mlp.onnx")
    few, many = ["a=4,b=2,c=2", "pipe=2,b=2,c=2,d=2"], "a=2,b=2,c=2,d=2"
    for mesh, strategy, is_searched in [(few[0], "auto", True), (few[1], "auto", True), (many, "auto", False), (many, "search", False)]:
        options = ["--mesh", mesh, "--strategy", strategy, "--memory-limit", "30MB"]
        loose, close = plan(tools, model, *options, batch=512), plan(tools, model, *options, "--certify", batch=512)
        assert ("as the search prices" in close["bound_covers"]) == is_searched, close["bound_covers"]
        if not is_searched:
            assert close["bound_covers"].endswith("by work alone, without messages: meshes of 4 axes are too many to search")
            assert 0 < close["bound_ms"] == loose["bound_ms"] <= close["sum_ms"]
        else:
            check(close)


def test_certification_ends_with_the_time_to_plan(tools, tmp_path):
    model = write("vit", tmp_path)
    loose, cut = plan(tools, model, *CPU), plan(tools, model, *CPU, "--certify", "--plan-time", "0")
    assert cut["bound_covers"].endswith("by work alone, without messages: planning ended before the searches did")
    assert 0 < cut["bound_ms"] <= loose["bound_ms"] * (1 + 1e-9)


def test_a_batch_of_any_size_is_bounded(tools, tmp_path):
    """If launches are free, the number of micro-batches is not limited by their cost, so the bound must not try them all."""
    kind = {"name": "free", "memory_bytes_per_second": 1e12, "launch_seconds": 0, "collective_launch_seconds": 0, "flops_per_second": {"contraction": {"f32": 1e13}, "other": {"f32": 1e12}}}
    cluster = {
        "device_kinds": [kind],
        "devices": [{"name": "d", "kind": "free", "count": 2}],
        "switches": ["s"],
        "links": [{"ends": ["d", "s"], "latency_seconds": 1e-6, "bytes_per_second": 1e11}],
    }
    (tmp_path / "free.json").write_text(json.dumps(cluster))
    model = zoo.save(zoo.mlp([4, 4, 4], zoo.Random(0)), tmp_path / "mlp.onnx")
    check(plan(tools, model, "--cluster", tmp_path / "free.json", batch=10**12))


def test_explain_says_what_no_plan_goes_below(tools, tmp_path):
    model = write("vit", tmp_path)
    result = tools.call("compile", model, *bind(model), *CPU, "--certify", "-o", tmp_path / "m.plan")
    bound = json.loads((tmp_path / "m.plan" / "report.json").read_text())["bound"]
    shown = json.loads(tools.call("explain", tmp_path / "m.plan", "--json").stdout)["bound_of_all"]
    assert f"in sum {bound['sum_ms']:.3f} ms; no plan takes less than {bound['bound_ms']:.3f} ms (at most " in shown
    assert shown.endswith(bound["scope"]) and bound["scope"].startswith("all meshes of 4 devices, all splits, storages, stages and micro-batches; ")
    assert f"  bound           {bound['sum_ms']:.3g} ms by its sum, no plan takes less than {bound['bound_ms']:.3g} ms: " in result.stdout
    alone = tools.call("compile", model, *bind(model), "--mesh", "data=2", "-o", tmp_path / "n.plan")
    assert "bound" not in json.loads((tmp_path / "n.plan" / "report.json").read_text()) and "no plan takes less" not in alone.stdout


@pytest.mark.parametrize("name, sizes", [("gpt2", {"sequence": 512, "past": 0}), ("moe", {"sequence": 512})])
def test_transformers_are_certified_within_two_percent(tools, tmp_path, name, sizes):
    model = zoo.MODELS[name].write(tmp_path / f"{name}.onnx", shapes_only=True)
    found = json.loads(tools.call("plan", model, *bind(model, batch=8, **sizes), *H100, "--certify", "--json").stdout)
    assert found["bound_ms"] <= found["sum_ms"] <= 1.02 * found["bound_ms"]
