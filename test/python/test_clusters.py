"""Clusters: presets and files, their effects, and what is refused."""

from __future__ import annotations

import json
import re
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gridloom import zoo

PAIR = {
    "devices": [{"name": "cpu", "kind": "cpu", "count": 2}],
    "switches": ["memory"],
    "links": [{"ends": ["cpu", "memory"], "latency_seconds": 1e-5, "bytes_per_second": 4e9}],
}


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    return zoo.save(zoo.mlp([64, 256, 64], zoo.Random(0)), tmp_path_factory.mktemp("clusters") / "mlp.onnx")


@pytest.fixture
def write(tmp_path):
    def write_cluster(description) -> str:
        path = tmp_path / "lab.json"
        path.write_text(description if isinstance(description, str) else json.dumps(description))
        return str(path)

    return write_cluster


def report_of(tools, model, plan, *options) -> dict:
    tools.compile(model, plan, "--dim", "batch=16", *options)
    return json.loads((plan / "report.json").read_text())


def refused(tools, model, tmp_path, *options) -> str:
    result = tools.call("compile", model, "-o", tmp_path / "m.plan", "--dim", "batch=16", *options, check=False)
    assert result.returncode == 1, result.stdout + result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ") and not (tmp_path / "m.plan").exists()
    return line


def slowest_us(report, kind="all_reduce") -> float:
    return max(c["estimate_us"] for c in report["collectives"] if c["kind"] == kind)


def test_an_axis_that_crosses_hosts_has_the_network(tools, mlp, tmp_path):
    """Eight GPUs per host: `model` stays inside a host if it is the minor axis, and crosses hosts if its stride is 8."""
    options = ["--cluster", "HGX-H100x2", "--target", "cuda:sm_90", "--strategy", "dp+tp"]
    inside = report_of(tools, mlp, tmp_path / "a.plan", *options, "--mesh", "data=8,model=2")
    across = report_of(tools, mlp, tmp_path / "b.plan", *options, "--mesh", "model=2,data=8")
    assert inside["machine"] == "H100-80GB" and inside["cluster"] == "HGX-H100x2"
    assert {c["bytes"] for c in inside["collectives"]} == {c["bytes"] for c in across["collectives"]}
    # Launch, one exchange, and a short message: 7 + 2 us inside, 7 + 14 across.
    assert slowest_us(inside) == pytest.approx(9, rel=0.05)
    assert slowest_us(across) == pytest.approx(21, rel=0.05)


def test_a_cluster_without_a_mesh_is_planned_as_a_whole(tools, mlp, tmp_path):
    report = report_of(tools, mlp, tmp_path / "m.plan", "--cluster", "HGX-H100", "--target", "cuda:sm_90")
    sizes = [int(n) for n in re.findall(r"=(\d+)", report["mesh"])]
    assert np.prod(sizes) == 8 and len(report["candidates"]) > 4
    assert report["memory"]["limit_bytes"] == 80 << 30


def test_devices_are_short_for_hosts(tools, mlp, tmp_path):
    reports = [
        report_of(tools, mlp, tmp_path / f"{i}.plan", "--target", "cuda:sm_80", *options)
        for i, options in enumerate([["--devices", "16xA100-80GB"], ["--cluster", "DGX-A100x2"], ["--devices", "16"]])
    ]
    assert all(report["candidates"] == reports[0]["candidates"] for report in reports)


def test_files_say_what_costs_are(tools, mlp, tmp_path, write):
    """Times follow a link's bandwidth and latency."""
    times = []
    for latency, bandwidth in [(0, 4e6), (0, 2e6), (1e-3, 4e6)]:
        link = PAIR["links"][0] | {"latency_seconds": latency, "bytes_per_second": bandwidth}
        report = report_of(tools, mlp, tmp_path / "m.plan", "--cluster", write(PAIR | {"links": [link]}), "--mesh", "model=2", "--force")
        times.append(slowest_us(report))
    start = 40  # launch of a collective on CPUs
    assert times[1] - start == pytest.approx(2 * (times[0] - start))
    assert times[2] - times[0] == pytest.approx(2e3)  # one exchange over two links


def test_doctor_finds_sizes_for_a_cluster(tools, mlp):
    printed = tools.call("doctor", mlp, "--cluster", "DGX-A100", "--target", "cuda:sm_80").stdout
    assert "can be compiled: gridloom compile" in printed and "--cluster DGX-A100" in printed
    assert "batch=8" in printed  # one sample per device


def test_too_little_memory_for_a_preset(tools, mlp, tmp_path):
    """The suggested change is a number of hosts."""
    options = ["--cluster", "DGX-A100", "--target", "cuda:sm_80", "--memory-limit", "10KiB"]
    line = refused(tools, mlp, tmp_path, *options)
    assert re.search(r"the smallest change that fits is --(cluster DGX-A100x\d+|dim)", line), line


def test_a_small_cluster_with_a_large_mesh(tools, mlp, tmp_path, write):
    line = refused(tools, mlp, tmp_path, "--cluster", "HGX-H100", "--mesh", "data=4,model=4")
    assert line == "error: mesh data=4,model=4 needs 16 devices; --cluster HGX-H100 has 8"
    path = write(PAIR)
    assert f"needs 3 devices; --cluster {path} has 2" in refused(tools, mlp, tmp_path, "--cluster", path, "--mesh", "data=3")
    line = refused(tools, mlp, tmp_path, "--cluster", "HGX-H100x1000")
    assert line.startswith("error: --cluster HGX-H100x1000 has 8000 devices, more than the planner tries, 4096; give a --mesh")


@pytest.mark.parametrize(
    "text,why",
    [
        ("HGX-H10", "unknown --cluster 'HGX-H10'; did you mean 'HGX-H100'?"),
        ("nowhere.json", "cannot read the cluster 'nowhere.json'"),
        ("HGX-H100x0", "unknown --cluster 'HGX-H100x0'"),
    ],
)
def test_names_of_nothing(tools, mlp, tmp_path, text, why):
    assert why in refused(tools, mlp, tmp_path, "--cluster", text)


LINK = {"ends": ["cpu", "memory"], "latency_seconds": 0, "bytes_per_second": 1}


@pytest.mark.parametrize(
    "change,why",
    [
        ("{", "is not JSON: line 1, column 2"),
        (json.dumps(PAIR)[:-20], "is not JSON: line 1"),
        ({"link": []}, "unknown field 'link'; did you mean 'links'?"),
        ({"links": [LINK | {"ends": ["cpu", "memori"]}]}, "links[0]: there is no device or switch 'memori'; did you mean 'memory'?"),
        ({"links": [LINK | {"bytes_per_second": 0}]}, "links[0]: 'bytes_per_second' is 0; it has to be a number above 0"),
        ({"links": [LINK | {"bytes_per_second": -2}]}, "'bytes_per_second' is -2"),
        ({"links": [LINK | {"bytes_per_second": float("nan")}]}, "is not JSON: line 1"),
        ({"links": []}, "no links join device 1 with device 0"),
        ({"devices": []}, "'devices' is empty"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_files_that_are_wrong(tools, mlp, tmp_path, write, change, why):
    path = write(change if isinstance(change, str) else PAIR | change)
    line = refused(tools, mlp, tmp_path, "--cluster", path)
    assert line.startswith(f"error: the cluster '{path}' ") and why in line


def test_a_hundred_thousand_devices(tools, mlp, tmp_path, write):
    hosts = [f"h{i}" for i in range(12500)]
    path = write(
        {
            "devices": [{"name": f"g{i}", "kind": "H100-80GB"} for i in range(100_000)],
            "switches": [*hosts, "network"],
            "links": [LINK | {"ends": [f"g{i}", f"h{i // 8}"], "bytes_per_second": 4e11} for i in range(100_000)]
            + [LINK | {"ends": [host, "network"], "bytes_per_second": 4e11} for host in hosts],
        }
    )
    begin = time.monotonic()
    options = ["--mesh", "data=8,model=2", "--target", "cuda:sm_90", "--stop-after", "shard", "--dump-ir", tmp_path / "ir"]
    tools.compile(mlp, tmp_path / "m.plan", "--dim", "batch=16", "--cluster", path, *options)
    assert time.monotonic() - begin < 30  # quadratic time would be minutes
    (shard,) = (tmp_path / "ir").glob("*-shard.mlir")
    assert len(re.findall("block = ", shard.read_text())) == 2 and shard.stat().st_size < 100_000


def test_options_that_exclude_each_other(tools, mlp, tmp_path):
    result = tools.call("compile", mlp, "--cluster", "cpu", "--devices", "2", check=False)
    assert result.returncode == 2 and "--cluster" in result.stderr and "--devices" in result.stderr


def test_a_dump_goes_on_as_the_whole_compilation(tools, mlp, tmp_path):
    """Phases after the shard phase read the cluster from the program, not from options."""
    options = ["--target", "cuda:sm_90", "-q"]
    whole = tmp_path / "whole"
    tools.compile(mlp, tmp_path / "m.plan", "--dim", "batch=16", "--mesh", "data=2,model=8", "--cluster", "HGX-H100x2",
                  *options, "--dump-ir", whole)  # fmt: skip
    dumps = sorted(path.name for path in whole.iterdir())
    for phase in ("partition", "communicate", "schedule"):
        first = next(i for i, name in enumerate(dumps) if phase in name)
        parts = tmp_path / phase
        tools.call("compile", whole / dumps[first - 1], "-o", tmp_path / "m.plan", "--start-from", phase, *options, "--force", "--dump-ir", parts)
        for name in dumps[first:]:
            assert (parts / name).read_text() == (whole / name).read_text(), name
        report = json.loads((tmp_path / "m.plan" / "report.json").read_text())
        assert report["machine"] == "H100-80GB"
    result = tools.call("compile", whole / dumps[first - 1], "--start-from", "schedule", "--cluster", "cpu", check=False)
    assert result.returncode == 1 and "--cluster, --shard and --microbatches come too late" in result.stderr


def test_a_dump_with_another_cluster(tools, mlp, tmp_path):
    tools.compile(mlp, tmp_path / "m.plan", "--dim", "batch=16", "--mesh", "data=2", "--stop-after", "shard", "--dump-ir", tmp_path)
    (dump,) = tmp_path.glob("*-shard.mlir")
    text = dump.read_text()
    for change in [("levels = [", "level = ["), ("block = ", "block = -"), ("latency_seconds = ", "latency_seconds = -")]:
        dump.write_text(text.replace(*change))
        result = tools.call("compile", dump, "--start-from", "partition", check=False)
        assert result.returncode == 1
        assert "attribute 'dist.cluster' does not describe kinds of devices and levels of links" in result.stderr


def product(path):
    """y = x w, with x and w split over one axis in incompatible ways."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 1536])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 9])
    w = helper.make_tensor("w", TensorProto.FLOAT, [1536, 9], np.ones([1536, 9], np.float32).tobytes(), raw=True)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], "product")], "g", [x], [y], [w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def test_what_is_cheaper_depends_on_the_target(tools, tmp_path):
    """On CPUs gathering x takes longest; on GPUs the third exchange of an all_reduce over three devices would."""
    model = product(tmp_path / "product.onnx")
    made = {}
    for target in ("cpu", "cuda:sm_90"):
        options = ["--target", target, "--mesh", "model=3", "--shard", "x=[{},{model}]", "--shard", "w=[{},{model}]"]
        tools.compile(model, tmp_path / "m.plan", *options, "--stop-after", "partition", "--dump-ir", tmp_path / target)
        (shard,) = (tmp_path / target).glob("*-shard.mlir")
        (partition,) = (tmp_path / target).glob("*-partition.mlir")
        (sharding,) = re.findall(r"loom.dot_general .*dist.shardings = \[(#dist.sharding<.*?>)\]", shard.read_text())
        made[target] = sharding, sorted(set(re.findall(r"dist\.(all_\w+)", partition.read_text())))
    assert made["cpu"] == ("#dist.sharding<@mesh, [{}, {}]>", ["all_reduce", "all_to_all"])
    assert made["cuda:sm_90"] == ('#dist.sharding<@mesh, [{}, {"model"}]>', ["all_gather"])
