"""--precision: errors of 16 bits and TF32, measured against ONNX Runtime's f32, on the CPU and on fake GPUs.

Errors are relative to the largest output. A result of p digits is off by at most 2^-p, sums of K products of rounded factors by about
2^-p for any K (errors add up like a random walk, and so do the terms), and layers add up likewise: the bounds below are about four times
2^-p times the root of the number of consecutive roundings, and twice the measured errors."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
from conftest import onnxruntime_session, sentences

import gridloom
from gridloom import zoo

BOUNDS = {"tf32": 1e-3, "f16": 2e-3, "bf16": 1.5e-2}
BERT = zoo.BertConfig(layers=2, hidden=64, heads=4, intermediate=128, vocabulary=50, positions=32, head="embedding")


def error(actual: np.ndarray, expected: np.ndarray) -> float:
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def within(precision: str, actual: np.ndarray, expected: np.ndarray) -> None:
    """The error is within the bound, but large enough to show that values were rounded."""
    assert 1e-6 < error(actual, expected) <= BOUNDS[precision]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """Model, inputs and ONNX Runtime's result."""
    path = zoo.save(zoo.bert(BERT, zoo.Random(0)), tmp_path_factory.mktemp("bert") / "bert.onnx")
    inputs = {
        "input_ids": np.random.default_rng(0).integers(0, 50, (4, 8)),
        "attention_mask": (np.arange(8) < np.array([[8], [5], [7], [2]])).astype(np.int64),
        "token_type_ids": np.zeros((4, 8), np.int64),
    }
    session = onnxruntime_session(path)
    return path, inputs, session.run(["embedding"], inputs)[0]


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_minilm_on_the_cpu(tools, minilm_path, minilm_reference, tmp_path, precision):
    plan, inputs = tmp_path / "minilm.plan", sentences(2, 16)
    printed = tools.compile(minilm_path, plan, "--dim", "batch=2", "--dim", "sequence=16", "--precision", precision)
    assert f"in {precision}" in printed.stdout
    run = tools.run(plan, inputs, tmp_path)
    within(precision, run.outputs["embedding"], minilm_reference(inputs))
    # Weights are converted on loading: the files stay f32, but the devices' memory halves.
    report = json.loads((plan / "report.json").read_text())
    assert report["precision"] == gridloom.Plan.read(plan).precision == precision
    assert all(weight.dtype in (np.float32, np.int64) for weight in gridloom.Plan.read(plan).weights)
    assert report["memory"]["weights_bytes"] < 0.55 * minilm_path.stat().st_size
    assert precision in tools.call("inspect", plan).stdout


@pytest.mark.parametrize("precision", ["bf16", "f16"])
@pytest.mark.parametrize("options", [("data=2",), ("model=2",), ("pipe=2", "--microbatches", "2")], ids="+".join)
def test_split_equals_unsplit(tools, bert, tmp_path, precision, options):
    path, inputs, expected = bert
    results = []
    for mesh in ("data=1",), options:
        plan = tmp_path / f"{len(results)}.plan"
        dims = "--dim", "batch=4", "--dim", "sequence=8"
        tools.compile(path, plan, *dims, "--mesh", *mesh, "--precision", precision)
        results.append(tools.run(plan, inputs, tmp_path / f"run{len(results)}").outputs["embedding"])
        within(precision, results[-1], expected)
    assert error(results[1], results[0]) <= BOUNDS[precision]
    checked = tools.call("check", plan, "--exact").stdout
    assert "PASS" in checked, checked


def test_check_knows_the_precision(tools, bert, tmp_path, monkeypatch):
    path, *_ = bert
    monkeypatch.setenv("GRIDLOOM_PYTHON", sys.executable)
    plan = tmp_path / "bert.plan"
    tools.compile(path, plan, "--dim", "batch=4", "--dim", "sequence=8", "--mesh", "model=2", "--precision", "bf16")
    assert "PASS" in tools.call("check", plan, "--oracle", "ort", "--input", "attention_mask=1").stdout
    # With f32's tolerance the same outputs differ.
    for dump in (plan / "ir").glob("*.mlir"):
        dump.write_text(dump.read_text().replace('loom.precision = "bf16"', 'loom.other = "bf16"'))
    checked = tools.call("check", plan, "--oracle", "ort", "--input", "attention_mask=1", check=False)
    assert "DIFFERS" in checked.stdout


@pytest.mark.parametrize("precision", ["tf32", "bf16", "f16"])
@pytest.mark.parametrize("mesh", ["data=1", "data=2", "model=2", "pipe=2"])
def test_bert_on_fake_gpus(tools, fake_gpus, bert, tmp_path, precision, mesh):
    path, inputs, expected = bert
    plan = tmp_path / "bert.plan"
    dims = "--dim", "batch=4", "--dim", "sequence=8"
    tools.compile(path, plan, *dims, "--mesh", mesh, "--target", "cuda:sm_90", "--precision", precision)
    fake_gpus(int(mesh[-1]), 1)
    result = tools.run(plan, inputs, tmp_path / "run", "--in-process")
    within(precision, result.outputs["embedding"], expected)
    assert "fake GPU" not in result.text, result.text


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_a_residual_network(tools, tmp_path, precision):
    model = zoo.MODELS["resnet"].make(blocks=(1, 1), width=8, image=32, classes=10)
    path, plan = zoo.save(model, tmp_path / "resnet.onnx"), tmp_path / "resnet.plan"
    tools.compile(path, plan, "--dim", "batch=2", "--precision", precision)
    inputs = zoo.random_inputs(model.graph, {"batch": 2}, vocabulary=1)
    session = onnxruntime_session(path)
    name = session.get_outputs()[0].name
    within(precision, tools.run(plan, inputs, tmp_path).outputs[name], session.run([name], inputs)[0])


@pytest.mark.parametrize("precision", ["bf16", "f16"])
@pytest.mark.parametrize("mesh", ["data=1", "model=2"])
def test_gpt2_with_a_cache(tmp_path, precision, mesh):
    """Sixteen tokens one by one: the cache is kept in 16 bits, and nothing is rounded twice."""
    config = zoo.Gpt2Config(layers=2, hidden=48, heads=4, vocabulary=97, positions=32, cache="static")
    path = zoo.save(zoo.gpt2(config, zoo.Random(0)), tmp_path / "gpt2.onnx")
    plan = gridloom.compile(
        path,
        tmp_path / "gpt2.plan",
        mesh=mesh,
        dims={"batch": 1, "sequence": 1},
        state={"past_*": "present_*"},
        precision=precision,
    )
    reference, session = onnxruntime_session(path), gridloom.load(plan)
    names = [output.name for output in reference.get_outputs()]
    cache = {
        value.name: np.zeros([1, 4, 32, 12], np.float32)
        for value in reference.get_inputs()
        if value.name.startswith("past_")
    }
    for position, token in enumerate(np.random.default_rng(0).integers(0, 97, 16)):
        inputs = {"input_ids": np.array([[token]]), "position": np.array([position])}
        outputs = dict(zip(names, reference.run(None, {**inputs, **cache}), strict=True))
        cache = {name: outputs[name.replace("past_", "present_")] for name in cache}
        within(precision, np.asarray(session.run(inputs)["logits"]), outputs["logits"])


@pytest.mark.parametrize(
    "options,said",
    [
        (("--precision", "tf32"), "tf32 is a format of NVIDIA's tensor cores; add --target cuda:sm_90"),
        (("--precision", "fp8"), "fp8"),
    ],
)
def test_what_there_is_not(tools, bert, tmp_path, options, said):
    result = tools.call("compile", bert[0], "-o", tmp_path / "x.plan", *options, check=False)
    assert result.returncode and said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_weight_is_sharded_by_its_name(tools, bert, tmp_path):
    """The pin also applies to its 16-bit copy."""
    path, inputs, expected = bert
    plan = tmp_path / "bert.plan"
    name = "embeddings.word_embeddings.weight"
    dims = "--dim", "batch=4", "--dim", "sequence=8"
    tools.compile(path, plan, *dims, "--mesh", "model=2", "--precision", "bf16", "--shard", f"{name}=[{{}},{{model}}]")
    within("bf16", tools.run(plan, inputs, tmp_path / "named").outputs["embedding"], expected)
    # The annotated model has the sharding at the weight, and compiles again without --mesh.
    annotated, again = tmp_path / "annotated.onnx", tmp_path / "again.plan"
    options = "--precision", "bf16", "--shard", f"{name}=[{{}},{{model}}]", "--emit-onnx", annotated
    tools.compile(path, plan, *dims, "--mesh", "model=2", *options)
    tools.compile(annotated, again, *dims, "--precision", "bf16")
    values = json.loads((again / "report.json").read_text())["values"]
    (copy,) = (value for value in values if value["name"].startswith(name))
    assert copy["sharding"].endswith('[{}, {"model"}]>') and copy["origin"].startswith("model: annotation of node")
    within("bf16", tools.run(again, inputs, tmp_path / "annotated").outputs["embedding"], expected)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_activations_join_multiplications(tools, fake_gpus, tmp_path, monkeypatch, precision):
    """GPT-2's gelu is an epilogue; if the library has no algorithm with it, the plan's fallback kernel computes it."""
    model = zoo.MODELS["gpt2"].make(layers=2, hidden=32, heads=4, vocabulary=50, positions=16)
    path, plan = zoo.save(model, tmp_path / "gpt2.onnx"), tmp_path / "gpt2.plan"
    dims = "--dim", "batch=2", "--dim", "sequence=8"
    # Without cuDNN's attention, which skips masked scores where the model adds -3.4e38.
    tools.compile(path, plan, *dims, "--target", "cuda:sm_90", "--no-cudnn", "--precision", precision)
    assert "+ bias + gelu" in tools.call("inspect", plan, "schedule").stdout
    inputs = {"input_ids": np.random.default_rng(0).integers(0, 50, (2, 8))}
    expected = onnxruntime_session(path).run(["logits"], inputs)[0]
    fake_gpus(1, 1)
    for folder in "joined", "apart":
        result = tools.run(plan, inputs, tmp_path / folder, "--in-process", "--repeat", 3)
        assert "fake GPU" not in result.text, result.text
        assert error(result.outputs["logits"], expected) <= BOUNDS.get(precision, 1e-5)
        monkeypatch.setenv("GRIDLOOM_FAKE_CUBLASLT_PLAIN", "1")
    assert "PASS" in tools.call("check", plan, "--exact", "--no-run").stdout


def test_measured_algorithms_are_kept(tools, fake_gpus, bert, tmp_path, monkeypatch):
    path, inputs, expected = bert
    plan = tmp_path / "bert.plan"
    dims = "--dim", "batch=4", "--dim", "sequence=8"
    tools.compile(path, plan, *dims, "--mesh", "model=2", "--target", "cuda:sm_90")
    fake_gpus(2, 1)
    monkeypatch.setenv("GRIDLOOM_FAKE_CUBLASLT_TIMES", "6000000,40,4000000")
    tools.run(plan, inputs, tmp_path / "measured", "--in-process", "--autotune")
    (file,) = (plan / "autotune").glob("*.json")
    choices = json.loads(file.read_text())["choices"]
    assert choices and all(c["microseconds"] < c["guess_microseconds"] for c in choices.values())
    # The next load uses them and measures nothing.
    written = file.stat().st_mtime_ns
    result = tools.run(plan, inputs, tmp_path / "used", "--in-process", "--autotune")
    assert file.stat().st_mtime_ns == written and "warning" not in result.text
    np.testing.assert_allclose(result.outputs["embedding"], expected, atol=1e-5, rtol=0)
    file.write_text(file.read_text()[:100])
    result = tools.run(plan, inputs, tmp_path / "damaged", "--in-process")
    warnings = [line for line in result.text.splitlines() if "warning" in line]
    assert len(warnings) == 1 and f"{file.name} is ignored: it is damaged" in warnings[0]
    # If the file cannot be written, the run continues.
    shutil.rmtree(file.parent)
    file.parent.write_text("in the way")
    result = tools.run(plan, inputs, tmp_path / "unwritable", "--in-process", "--autotune")
    warnings = [line for line in result.text.splitlines() if "warning" in line]
    assert len(warnings) == 1 and f"{file.name} cannot be written" in warnings[0]
    assert "nothing to autotune on cpu" in autotune_on_the_cpu(tools, path, tmp_path, inputs)


def autotune_on_the_cpu(tools, path, folder, inputs) -> str:
    tools.compile(path, folder / "cpu.plan", "--dim", "batch=4", "--dim", "sequence=8")
    return tools.run(folder / "cpu.plan", inputs, folder / "cpu", "--autotune").text
