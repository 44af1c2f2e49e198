"""The zoo's models against published values, a float64 reference and ONNX Runtime."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys

import numpy as np
import onnx
import pytest
from conftest import ROOT, onnxruntime_session, sentences

from gridloom import zoo

SMALL = zoo.BertConfig(layers=2, hidden=32, heads=4, intermediate=64, vocabulary=50, positions=16)


def small_inputs(batch: int = 3, length: int = 7) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    kept = np.arange(length) < rng.integers(1, length + 1, (batch, 1))
    return {
        "input_ids": rng.integers(0, SMALL.vocabulary, (batch, length)),
        "attention_mask": kept.astype(np.int64),
        "token_type_ids": rng.integers(0, 2, (batch, length)),
    }


def reference(config: zoo.BertConfig, weights, inputs) -> np.ndarray:
    """A BERT encoder in float64, written from the paper's formulas, not from the graph."""

    def get(name, *shape):
        return weights.get(name, shape).astype(np.float64)

    def norm(x, name):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        y = (x - mean) / np.sqrt(variance + config.epsilon)
        return y * get(f"{name}.weight", h) + get(f"{name}.bias", h)

    def dense(x, name, i, o):
        return x @ get(f"{name}.weight", o, i).T + get(f"{name}.bias", o)

    h, n = config.hidden, config.heads
    batch, length = inputs["input_ids"].shape
    x = get("embeddings.word_embeddings.weight", config.vocabulary, h)[inputs["input_ids"]]
    x = x + get("embeddings.token_type_embeddings.weight", config.types, h)[inputs["token_type_ids"]]
    x = norm(x + get("embeddings.position_embeddings.weight", config.positions, h)[:length], "embeddings.LayerNorm")
    for layer in range(config.layers):
        p = f"encoder.layer.{layer}"
        q, k, v = (
            dense(x, f"{p}.attention.self.{name}", h, h).reshape(batch, length, n, h // n)
            for name in ("query", "key", "value")
        )
        scores = np.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(h // n)
        scores = np.where(inputs["attention_mask"][:, None, None, :] == 1, scores, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        context = np.einsum("bhqk,bkhd->bqhd", e / e.sum(-1, keepdims=True), v).reshape(batch, length, h)
        x = norm(dense(context, f"{p}.attention.output.dense", h, h) + x, f"{p}.attention.output.LayerNorm")
        y = dense(x, f"{p}.intermediate.dense", h, config.intermediate)
        if config.gelu == "tanh":
            y = 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        else:
            y = 0.5 * y * (1 + np.vectorize(math.erf)(y / math.sqrt(2)))
        x = norm(dense(y, f"{p}.output.dense", config.intermediate, h) + x, f"{p}.output.LayerNorm")
    if config.head == "hidden":
        return x
    kept = inputs["attention_mask"][:, :, None]
    mean = (x * kept).sum(1) / kept.sum(1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


@pytest.mark.parametrize("head", ["hidden", "embedding"])
@pytest.mark.parametrize(
    "forms",
    [
        {"opset": 13},
        {"opset": 17},
        {"opset": 17, "layer_norm": "decomposed", "gelu": "tanh"},
        {"opset": 18, "layer_norm": "decomposed"},
        {"opset": 20, "gelu": "op"},
        {"opset": 21},
    ],
    ids=lambda forms: ",".join(f"{k}={v}" for k, v in forms.items()),
)
def test_bert_equals_the_formulas(tmp_path, forms, head):
    config = zoo.BertConfig(**{**SMALL.__dict__, **forms, "head": head})
    weights = zoo.Random(3, scale=0.2)
    path = zoo.save(zoo.bert(config, weights), tmp_path / "bert.onnx")
    onnx.checker.check_model(str(path), full_check=True)
    inputs = small_inputs()
    (actual,) = onnxruntime_session(path).run(None, inputs)
    np.testing.assert_allclose(actual, reference(config, weights, inputs), atol=2e-5, rtol=0)


def test_minilm_gives_the_published_embedding(minilm_reference):
    # First values for "This is an example sentence", computed by sentence-transformers.
    embedding = minilm_reference(zoo.encode(["This is an example sentence"], 16))[0]
    expected = [0.0676569, 0.0634959, 0.0487131, 0.0793049, 0.0374480]
    np.testing.assert_allclose(embedding[:5], expected, atol=1e-6)


def test_minilm_tells_paraphrases_apart(minilm_reference):
    embedding = minilm_reference(sentences(8, 32))
    similarity = embedding @ embedding.T
    for i in range(0, 6, 2):
        others = np.delete(similarity[i], [i, i + 1])
        assert similarity[i, i + 1] > 0.5 > 0.2 > others.max()


def test_minilm_is_written_as_an_exporter_writes_it(minilm_path):
    model = onnx.load(str(minilm_path), load_external_data=False)
    kinds = {node.op_type for node in model.graph.node}
    assert {"Shape", "Gather", "Concat", "Slice", "Constant", "LayerNormalization", "Erf", "ReduceL2"} <= kinds
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)
    assert "/encoder/layer.0/attention/self/query/MatMul" in names
    dims = [d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert dims == ["batch", "sequence"]


@pytest.mark.parametrize("opset,fused", [(16, False), (17, True)])
def test_layer_norm_form_follows_the_opset(opset, fused):
    config = zoo.BertConfig(**{**SMALL.__dict__, "opset": opset})
    kinds = {n.op_type for n in zoo.bert(config, zoo.Random(0)).graph.node}
    assert ("LayerNormalization" in kinds) == fused


def test_forms_newer_than_the_opset_are_refused():
    for forms, message in [
        ({"opset": 16, "layer_norm": "fused"}, "opset 16 has no LayerNormalization"),
        ({"opset": 19, "gelu": "op"}, "opset 19 has no Gelu"),
        ({"opset": 12}, "opset 12 is outside 13"),
    ]:
        with pytest.raises(ValueError, match=message):
            zoo.bert(zoo.BertConfig(**{**SMALL.__dict__, **forms}), zoo.Random(0))


def test_random_numbers_depend_on_seed_name_and_position_only():
    few, many = zoo.Random(5).get("w", (4, 8)), zoo.Random(5).get("w", (2048, 1024))
    np.testing.assert_array_equal(few.ravel(), many.ravel()[:32])
    assert not np.array_equal(few, zoo.Random(6).get("w", (4, 8)))
    assert not np.array_equal(few, zoo.Random(5).get("v", (4, 8)))
    assert abs(many.mean()) < 1e-4 and abs(many.std() - 0.02) < 1e-4


def philox(key: int, block: int) -> list[int]:
    """Philox4x64-10 as in the paper "Parallel random numbers: as easy as 1, 2, 3"."""
    low, counter, keys = 2**64 - 1, [block, 0, 0, 0], [key & (2**64 - 1), key >> 64]
    for _ in range(10):
        first, second = counter[0] * 0xD2E7470EE14C6C93, counter[2] * 0xCA5A826395121157
        counter = [
            second >> 64 ^ counter[1] ^ keys[0], second & low, first >> 64 ^ counter[3] ^ keys[1], first & low
        ]  # fmt: skip
        keys = [(keys[0] + 0x9E3779B97F4A7C15) & low, (keys[1] + 0xBB67AE8584CAA73B) & low]
    return counter


def test_random_numbers_are_the_same_on_every_machine():
    key = int.from_bytes(hashlib.sha256(b"7:w").digest()[:16], "little")
    words = philox(key, 1) + philox(key, 2)
    sums = [sum(word >> shift & 0xFFFF for shift in (0, 16, 32, 48)) - 2 * 65535 for word in words]
    expected = np.array(sums, np.float32) * np.float32(0.02 / (65536 * (4 / 12) ** 0.5))
    np.testing.assert_array_equal(zoo.Random(7).get("w", (8,)), expected)


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "gelu"])
def test_mlp(tmp_path, activation):
    weights = zoo.Random(2, scale=0.5)
    path = zoo.save(zoo.mlp([5, 7, 3], weights, activation), tmp_path / "mlp.onnx")
    x = np.random.default_rng(0).standard_normal((4, 5), dtype=np.float32)
    hidden = x @ weights.get("layer.0.weight", (7, 5)).T + weights.get("layer.0.bias", (7,))
    act = {
        "relu": lambda v: np.maximum(v, 0),
        "tanh": np.tanh,
        "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
        "gelu": lambda v: v * 0.5 * (1 + np.vectorize(math.erf)(v / math.sqrt(2))),
    }[activation]
    expected = act(hidden) @ weights.get("layer.1.weight", (3, 7)).T + weights.get("layer.1.bias", (3,))
    (actual,) = onnxruntime_session(path).run(None, {"x": x})
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_external_data_is_the_same_model(tmp_path):
    model = zoo.mlp([64, 256, 16], zoo.Random(0))
    inline = zoo.save(model, tmp_path / "inline.onnx")
    outside = zoo.save(zoo.mlp([64, 256, 16], zoo.Random(0)), tmp_path / "outside.onnx", external_data=True)
    assert outside.stat().st_size < 4096 < (tmp_path / "outside.onnx.data").stat().st_size
    x = np.ones((2, 64), np.float32)
    results = [onnxruntime_session(p).run(None, {"x": x})[0] for p in (inline, outside)]
    np.testing.assert_array_equal(*results)


def zoo_command(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "gridloom.zoo", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "python")


def test_command_writes_a_model(tmp_path):
    path = tmp_path / "tiny.onnx"
    result = zoo_command("bert-tiny", "-o", path, "--layers", 1, "--opset", 20, "--gelu", "op", "--external-data")
    assert result.returncode == 0, result.stderr
    assert "opset 20" in result.stdout
    kinds = [n.op_type for n in onnx.load(str(path)).graph.node]
    assert kinds.count("Gelu") == 1


def test_command_lists_the_models_and_refuses_wrong_ones(tmp_path):
    listed = zoo_command("list").stdout
    assert all(name in listed for name in ("minilm", "bert-base", "mlp"))
    result = zoo_command("bert-tiny", "-o", tmp_path / "x.onnx", "--hidden", 130, "--heads", 4)
    assert result.returncode == 1
    assert result.stderr == "error: hidden size 130 is not a multiple of 4 heads\n"


def test_shapes_alone_take_no_space(tmp_path):
    """A layer of Llama-3-8B: none of its 0.9 GB of weights is on disk, and the constants are correct."""
    result = zoo_command("llama", "-o", tmp_path / "big.onnx", "--shapes-only")
    assert result.returncode == 0, result.stderr
    data = tmp_path / "big.onnx.data"
    assert data.stat().st_size > 800_000_000 and data.stat().st_blocks * 512 < 1_000_000
    small = zoo_command("llama", "-o", tmp_path / "small.onnx", "--shapes-only", "--hidden", 64, "--heads", 4, "--kv-heads", 2)
    assert small.returncode == 0, small.stderr
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(str(tmp_path / "small.onnx")).graph.initializer}
    assert not weights["layers.0.self_attn.q_proj.weight"].any() and weights["inv_freq"].all()


def test_a_vocabulary_needs_logits(tmp_path):
    result = zoo_command("llama", "-o", tmp_path / "x.onnx", "--vocabulary", 512)
    assert result.returncode == 1
    assert result.stderr == "error: vocabulary 512 has no use without embedding and logits: choose head logits\n"
