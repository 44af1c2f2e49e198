"""Exports of PyTorch's exporters, compiled for every target, precision and mesh: each compiles, or is refused for a reason in the model.

GRIDLOOM_EXPORTS=FOLDER     holds NAME.EXPORTER.onnx, or .onnx.xz of them; without it nothing runs
GRIDLOOM_EXPORTS_EVERY=5    compiles each fifth case only, spread over models, meshes, targets and precisions"""

from __future__ import annotations

import json
import lzma
import os
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import onnxruntime_session

FOLDER = os.environ.get("GRIDLOOM_EXPORTS", "")
EVERY = int(os.environ.get("GRIDLOOM_EXPORTS_EVERY", "1"))
MESHES = ["data=2", "model=2", "data=2,model=2", "pipe=2"]
TARGETS = ["cpu", "cuda:sm_90"]
PRECISIONS = ["f32", "bf16", "f16"]

# Sizes by the name of the open dimension; some models need other ones.
SIZES = {"batch": 4, "seq": 16, "samples": 400, "s10": 4, "s86": 4, "s12": 10, "s29": 8, "s71": 8}

# Errors of models with operators that no target supports.
UNSUPPORTED = {
    "embbag.dyn20": r"carries a sequence",
    "hf_mixtral_e.ts17": r"Split.*: splits dimension 0, whose length NonZero .* computes at run time \(at most 5\)",
    "retinanet_resnet50_fpn.ts17": r"TopK.*'K' must be integers known at compile time",
}
# Errors for a mesh that is too large for a model: an axis that splits nothing, more stages than operations.
TOO_LITTLE = re.compile(r"axis '(\w+)' of 2 devices splits nothing of the model|cannot cut .* into 2 stages|(fewer|smaller) than the")
# Models that an axis must split, and the least share of their 2-D weights that it splits.
SPLIT = {
    "big_gpt2.dyn20": 8 / 9,
    "big_llama.dyn20": 13 / 16,
    "big_llama.ts17": 13 / 16,
    "enc.dyn20": 7 / 8,
    "enc.ts17": 7 / 8,
    "hf_gpt2.dyn20": 6 / 8,
    "hf_llama.dyn20": 13 / 16,
    "hf_llama_kv.dyn20": 13 / 16,
    "hf_vit.dyn20": 12 / 13,
    "mha.dyn20": 7 / 8,
    "mha.ts17": 7 / 8,
    "rb_bert.dyn20": 12 / 13,
    "vit_small.dyn20": 7 / 8,
    "vit_small.ts17": 7 / 8,
}


def find_models() -> dict[str, Path]:
    if not FOLDER:
        return {}
    files = sorted([*Path(FOLDER).glob("*.onnx"), *Path(FOLDER).glob("*.onnx.xz")])
    return {re.sub(r"\.onnx(\.xz)?$", "", path.name): path for path in files}


MODELS = find_models()
CASES = [(m, t, p, mesh) for m in MODELS for mesh in MESHES for t in TARGETS for p in PRECISIONS]

if not MODELS:
    pytest.skip(
        f"GRIDLOOM_EXPORTS={FOLDER!r} holds no .onnx or .onnx.xz"
        if FOLDER
        else "set GRIDLOOM_EXPORTS to a folder of exported models",
        allow_module_level=True,
    )


@pytest.fixture(scope="session")
def unpack(tmp_path_factory):
    """The model's file, unpacked once."""
    folder = tmp_path_factory.mktemp("exports")

    def get(name: str) -> Path:
        path = MODELS[name]
        if path.suffix == ".onnx":
            return path
        plain = folder / path.stem
        if not plain.exists():
            plain.write_bytes(lzma.decompress(path.read_bytes()))
        return plain

    return get


def get_dims(path: Path) -> list[str]:
    graph = onnx.load(path, load_external_data=False).graph
    names = {d.dim_param for value in graph.input for d in value.type.tensor_type.shape.dim if d.dim_param}
    return [option for name in sorted(names) for option in ("--dim", f"{name}={SIZES[name]}")]


@pytest.mark.parametrize(("name", "target", "precision", "mesh"), CASES[:: max(1, EVERY)])
def test_compiles_or_says_why_not(tools, unpack, tmp_path, name, target, precision, mesh):
    path = unpack(name)
    options = [*get_dims(path), "--target", target, "--precision", precision, "--mesh", mesh, "--quiet"]
    result = tools.call("compile", path, "-o", tmp_path / "m.plan", *options, check=False)
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert result.returncode in (0, 1), result.stderr
    if result.returncode == 0:
        return
    assert len(errors) == 1, result.stderr
    if name in UNSUPPORTED and re.search(UNSUPPORTED[name], errors[0]):
        return
    assert TOO_LITTLE.search(errors[0]) and name not in SPLIT, result.stderr


@pytest.mark.parametrize("name", [name for name in SPLIT if name in MODELS])
def test_tensor_parallelism_reaches_the_weights(tools, unpack, tmp_path, name):
    path = unpack(name)
    tools.compile(path, tmp_path / "m.plan", *get_dims(path), "--mesh", "model=2", "--quiet")
    weights = json.loads(tools.call("inspect", tmp_path / "m.plan", "weights", "--json").stdout)["weights"]
    matrices = [w for w in weights if w["shape"].count(",") == 1 and 1 not in json.loads(w["shape"])]
    whole = [w["name"] for w in matrices if "model" not in w["sharding"]]
    assert 1 - len(whole) / len(matrices) >= SPLIT[name] - 1e-9 or len(whole) <= 1, whole


@pytest.mark.parametrize("name", [name for name in SPLIT if name in MODELS])
def test_split_results_equal_onnxruntime(tools, unpack, tmp_path, name):
    path = unpack(name)
    model = onnx.load(path)
    random = np.random.default_rng(1)
    inputs = {}
    for value in model.graph.input:
        shape = [SIZES[d.dim_param] if d.dim_param else d.dim_value for d in value.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if value.name == "attention_mask":
            inputs[value.name] = np.ones(shape, kind)
        elif kind == np.int64:
            inputs[value.name] = random.integers(0, 90, shape)
        elif kind == np.bool_:
            inputs[value.name] = np.zeros(shape, kind)
        else:
            inputs[value.name] = random.standard_normal(shape).astype(kind)
    expected = onnxruntime_session(path).run(None, inputs)
    tools.compile(path, tmp_path / "m.plan", *get_dims(path), "--mesh", "data=2,model=2", "--quiet")
    outputs = tools.run(tmp_path / "m.plan", inputs, tmp_path).outputs
    for value, array in zip(model.graph.output, expected, strict=True):
        size = max(1e-6, float(np.abs(array).max()))
        np.testing.assert_allclose(outputs[value.name], array, atol=1e-4 * size, rtol=1e-4)
