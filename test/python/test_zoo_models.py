"""The zoo's models, compiled for several meshes, against ONNX Runtime: small by default, at true size with --full."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from conftest import onnxruntime_session

from gridloom import CompileError, backend, zoo

DECODER = zoo.SMALL["gpt2"][1]
TRUE = {
    "bert-base": ("bert-base", {}),
    "gpt2": ("gpt2", {}),
    "gpt2-static": ("gpt2", {"cache": "static"}),
    "llama-8b-layer": ("llama", {}),
    "moe": ("moe", {}),
    "moe-capacity": ("moe", {"dispatch": "capacity"}),
    "vit-b-16": ("vit", {}),
    "resnet-50": ("resnet", {}),
    "unet": ("unet", {}),
    "lstm": ("lstm", {}),
}
MESHES = {
    "one": (None, None),
    "data=2": ("data=2", None),
    "model=2": ("model=2", None),
    "data=2,model=2": ("data=2,model=2", None),
    "pipe=2": ("pipe=2", None),
    "random": ("x=2,y=2", "random:3"),
}
DIMS = {"batch": 2, "sequence": 6, "past": 3}


def make_inputs(path, vocabulary: int = 50, **dims: int) -> dict[str, np.ndarray]:
    graph = onnx.load(str(path), load_external_data=False).graph
    return zoo.random_inputs(graph, {**DIMS, **dims}, vocabulary)


def compare(path, inputs, expected, mesh: str, tolerance: float) -> backend.Program:
    """Every output must be within `tolerance` of the expected one, relative to its largest value."""
    name, strategy = MESHES[mesh]
    model = onnx.load(str(path), load_external_data=False)
    program = backend.prepare(model, mesh=name, strategy=strategy, base=path.parent, threads=0)
    for actual, want in zip(program.run(inputs), expected, strict=True):
        assert actual.shape == want.shape and actual.dtype == want.dtype
        assert np.isfinite(want).all() and np.abs(want).max() > 0
        np.testing.assert_allclose(actual, want, rtol=0, atol=tolerance * np.abs(want).max())
    return program


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("zoo"), {}

    def make(name):
        if name not in made:
            model, options = zoo.SMALL[name]
            path = zoo.MODELS[model].write(folder / f"{name}.onnx", **options)
            session = onnxruntime_session(path)
            inputs = make_inputs(path)
            made[name] = path, inputs, session.run(None, inputs)
        return made[name]

    return make


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", zoo.SMALL)
def test_small(small, name, mesh):
    if name.startswith("lstm") and "model" in mesh:
        # Every step reads the whole previous state: a split weight would have to be gathered again.
        with pytest.raises(CompileError, match="axis 'model' of 2 devices splits nothing"):
            compare(*small(name), mesh, 2e-5)
    else:
        compare(*small(name), mesh, 2e-5).close()


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_sequence_parallel(small, tools, tmp_path, name):
    """Norms work on parts of the sequence: all_gathers and reduce_scatters around them, no all_reduce of whole activations."""
    path, inputs, expected = small(name)
    dims = ["--dim", "batch=2", "--dim", "sequence=6"]
    printed = tools.compile(path, tmp_path / "m.plan", *dims, "--mesh", "model=2", "--strategy", "tp+sp").stdout
    assert "model=2: tp over model, sp" in printed
    assert "reduce_scatter over model: 4 calls" in printed and "all_reduce" not in printed
    outputs = tools.run(tmp_path / "m.plan", inputs, tmp_path).outputs
    np.testing.assert_allclose(outputs["logits"], expected[0], atol=2e-5 * np.abs(expected[0]).max())


@pytest.mark.full
@pytest.mark.parametrize("name", TRUE)
def test_true_size(tmp_path, name):
    model, options = TRUE[name]
    if model == "bert-base":
        path = zoo.save(zoo.bert(zoo.BertConfig(), zoo.Random(0)), tmp_path / "model.onnx")
        vocabulary = 2  # the mask and token types are 0 or 1
    else:
        path = zoo.MODELS[model].write(tmp_path / "model.onnx", external_data=True, **options)
        vocabulary = zoo.MODELS[model].options.get("vocabulary", 1)
    session = onnxruntime_session(path)
    inputs = make_inputs(path, vocabulary, sequence=16)
    expected = session.run(None, inputs)
    del session
    for mesh in MESHES:
        compare(path, inputs, expected, mesh, 1e-4).close()


def test_static_cache_equals_no_cache(tmp_path):
    """Twelve tokens at once, and four times three with the cache."""
    plain = zoo.MODELS["gpt2"].write(tmp_path / "plain.onnx", **DECODER)
    cached = zoo.MODELS["gpt2"].write(tmp_path / "cached.onnx", **DECODER, cache="static")
    ids = np.random.default_rng(1).integers(0, 50, (2, 12))
    (expected,) = onnxruntime_session(plain).run(None, {"input_ids": ids})
    program = backend.prepare(onnx.load(str(cached)), mesh="data=2,model=2")
    state = {name: np.zeros((2, 4, 16, 8), np.float32) for name in program.inputs if name.startswith("past_")}
    for begin in range(0, 12, 3):
        feed = {"input_ids": ids[:, begin : begin + 3], "position": np.array([begin]), **state}
        outputs = dict(zip([output.name for output in program.outputs], program.run(feed)))
        state = {name: outputs[name.replace("past", "present")] for name in state}
        np.testing.assert_allclose(outputs["logits"], expected[:, begin : begin + 3], atol=2e-4)
    program.close()


def test_dispatch_by_capacity(tmp_path):
    """With room for all tokens it equals the mixture in which every expert computes all tokens; tokens without room are skipped."""
    ids = np.random.default_rng(1).integers(0, 50, (2, 6))

    def run(**options) -> np.ndarray:
        path = zoo.MODELS["moe"].write(tmp_path / "moe.onnx", **{**zoo.SMALL["moe"][1], "layers": 1, **options})
        return onnxruntime_session(path).run(None, {"input_ids": ids})[0]

    dense = run()
    np.testing.assert_allclose(run(dispatch="capacity", capacity=2.0), dense, atol=1e-5)
    assert np.abs(run(dispatch="capacity", capacity=0.5) - dense).max() > 0.01
    # One expert with room for the first half of the tokens, which is the first row of the batch.
    whole, half = (run(experts=1, chosen=1, dispatch="capacity", capacity=c) for c in (1.0, 0.5))
    np.testing.assert_allclose(half[0], whole[0], atol=1e-5)
    assert (np.abs(half[1] - whole[1]).max(axis=-1) > 0.01).all()


def test_large_weights_are_streamed(tmp_path):
    """Equal to the model in one file; offsets are aligned for mapping."""
    inside = zoo.MODELS["gpt2"].write(tmp_path / "inside.onnx", **DECODER)
    outside = zoo.MODELS["gpt2"].write(tmp_path / "outside.onnx", external_data=True, **DECODER)
    tensors = [t for t in onnx.load(str(outside), load_external_data=False).graph.initializer if t.external_data]
    assert tensors and all(int(t.external_data[1].value) % 4096 == 0 for t in tensors)
    one, other = (onnx.load(str(path)).graph.initializer for path in (inside, outside))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(a), onnx.numpy_helper.to_array(b))


@pytest.mark.parametrize(
    "name,options,message",
    [
        ("gpt2", {"heads": 5}, "hidden size 768 is not a multiple of 5 heads"),
        ("gpt2", {"cache": "ring"}, "cache form 'ring' is not one of"),
        ("llama", {"kv_heads": 5}, "32 heads are not a multiple of 5 key-value heads"),
        ("moe", {"chosen": 9}, "9 experts cannot be chosen among 8"),
        ("moe", {"dispatch": "some"}, "dispatch 'some' is not one of dense, capacity"),
        ("moe", {"dispatch": "capacity", "capacity": 0.0}, "capacity 0.0 is not above 0"),
        ("llama", {"dispatch": "capacity"}, "dispatch 'capacity' needs experts"),
        ("unet", {"image": 100}, "a picture of 100 cannot be halved 4 times"),
        ("vit", {"wings": 2}, "unknown option 'wings'"),
    ],
)
def test_impossible_sizes_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        zoo.MODELS[name].make(**options)
