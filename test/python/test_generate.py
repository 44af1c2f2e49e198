"""gridloom generate: the tokens equal ONNX Runtime's, on any number of ranks."""

from __future__ import annotations

import re

import numpy as np
import onnxruntime
import pytest

from gridloom import zoo

SIZES = {"layers": 2, "hidden": 48, "heads": 4, "vocabulary": 97, "positions": 64}
PROMPT, STATE = [5, 17, 80, 3, 41, 2, 66, 9, 30, 11], ("--state", "past_*=present_*")


class Lively(zoo.Random):
    """Weights four times as large: with the zoo's own scale a model repeats the last token."""

    def get(self, name, shape, *, scale=None, mean=0.0):
        array = super().get(name, shape, scale=scale, mean=mean)
        return array * np.float32(4) if not mean and ("mlp" in name or "attn" in name) else array


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("generate")


@pytest.fixture(scope="module")
def model(folder):
    return zoo.save(zoo.gpt2(zoo.Gpt2Config(cache="static", **SIZES), Lively(4)), folder / "gpt2.onnx")


@pytest.fixture(scope="module")
def plan(tools, model, folder):
    """A plan for one device that reads prompts in pieces of 4 and 1 tokens."""
    tools.compile(model, folder / "one.plan", "--dim", "batch=1", "--dim", "sequence=4,1", *STATE)
    return folder / "one.plan"


def reference(model, prompts, count: int) -> list[list[int]]:
    """Greedy tokens by ONNX Runtime; its cache is passed from call to call."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    pasts = [i for i in session.get_inputs() if i.name.startswith("past_")]
    names = [o.name for o in session.get_outputs()]
    cache = {i.name: np.zeros([len(prompts), *i.shape[1:]], np.float32) for i in pasts}
    ids, position, made = np.array(prompts), 0, []
    for _ in range(count):
        feeds = {"input_ids": ids, "position": np.array([position]), **cache}
        outputs = dict(zip(names, session.run(None, feeds)))
        cache = {name: outputs[name.replace("past_", "present_")] for name in cache}
        position += ids.shape[1]
        ids = outputs["logits"][:, -1].argmax(axis=1)[:, None]
        made.append(ids[:, 0])
    return np.array(made).T.tolist()


def generate(tools, plan, *options, tokens=PROMPT) -> list[list[int]]:
    given = ",".join(map(str, tokens)) if isinstance(tokens, list) else tokens
    result = tools.call("generate", plan, "--tokens", given, *options)
    assert re.search(r"tokens read in [0-9.]+ ms \([0-9]+ tokens/s\)", result.stderr)
    return [[int(token) for token in line.split(",")] for line in result.stdout.splitlines()]


def refused(tools, *arguments) -> str:
    result = tools.call("generate", *arguments, check=False)
    (line,) = result.stderr.splitlines()
    assert result.returncode == 1 and line.startswith("error: ")
    return line


@pytest.mark.parametrize("mesh", ["", "model=2", "pipe=2", "model=4", "pipe=2,model=2"], ids=lambda mesh: mesh or "one")
def test_tokens_are_those_of_onnx_runtime(tools, model, tmp_path, mesh):
    options = ["--mesh", mesh] if mesh else []
    tools.compile(model, tmp_path / "m.plan", "--dim", "batch=1", "--dim", "sequence=4,1", *STATE, *options)
    want = reference(model, [PROMPT], 24)
    assert len(set(want[0])) > 4
    assert generate(tools, tmp_path / "m.plan", "--max-tokens", "24") == want


def test_a_batch_of_prompts_from_a_file(tools, model, tmp_path):
    tools.compile(model, tmp_path / "m.plan", "--dim", "batch=2", "--dim", "sequence=4,1", *STATE, "--mesh", "data=2,model=2")
    prompts = [PROMPT, PROMPT[::-1]]
    np.save(tmp_path / "p.npy", np.array(prompts))
    (tmp_path / "p.txt").write_text("\n".join(" ".join(map(str, row)) for row in prompts))
    want = reference(model, prompts, 8)
    assert want[0] != want[1]
    for name in ("p.npy", "p.txt"):
        options = ["--max-tokens", "8", "--output", tmp_path / "out.npy", "--force"]
        assert generate(tools, tmp_path / "m.plan", *options, tokens=tmp_path / name) == want
        assert np.load(tmp_path / "out.npy").tolist() == want
        line = refused(tools, tmp_path / "m.plan", "--tokens", tmp_path / name, "--output", tmp_path / name)
        assert f"{name} exists; choose another --output or --force" in line
    full = ["--max-tokens", "8", "--output", "/dev/full"]
    line = refused(tools, tmp_path / "m.plan", "--tokens", tmp_path / "p.txt", *full)
    assert "/dev/full cannot be written: " in line
    assert "takes 1 prompt at once; it takes 'input_ids' i64 [2, " in refused(tools, tmp_path / "m.plan", "--tokens", "1,2")


@pytest.mark.parametrize("cache", ["static", "concat"])
def test_position_ids_and_masks_as_transformers_exports_them(tools, model, tmp_path, cache):
    """With a static cache the mask spans the cache; a growing cache is filled from its end, and passes through the host."""
    config = zoo.Gpt2Config(cache=cache, mask=True, **SIZES)
    masked = zoo.save(zoo.gpt2(config, Lively(4)), tmp_path / "m.onnx")
    options = STATE if cache == "static" else ("--dim", "past=32")
    want = reference(model, [PROMPT], 12)
    for mesh in ("", "model=2", "pipe=2"):
        split = ["--mesh", mesh] if mesh else []
        tools.compile(masked, tmp_path / "m.plan", "--dim", "batch=1", "--dim", "sequence=4,1", *options, *split)
        assert generate(tools, tmp_path / "m.plan", "--max-tokens", "12") == want
    if cache == "concat":
        line = refused(tools, tmp_path / "m.plan", "--tokens", "1,2,3", "--max-tokens", "31")
        assert "3 tokens and 31 more are too many: the cache holds 32" in line


def test_caches_are_paired_by_name(tools, model, tmp_path):
    """Inputs alternate keys and values; outputs list all keys before all values."""
    grows = zoo.gpt2(zoo.Gpt2Config(cache="concat", mask=True, **SIZES), Lively(4))
    outputs = sorted(grows.graph.output, key=lambda output: ("key" not in output.name, "value" not in output.name))
    assert [output.name for output in outputs[:2]] == ["present_key_0", "present_key_1"]
    del grows.graph.output[:]
    grows.graph.output.extend(outputs)
    options = ("--dim", "batch=1", "--dim", "sequence=4,1", "--dim", "past=32")
    tools.compile(zoo.save(grows, tmp_path / "m.onnx"), tmp_path / "m.plan", *options)
    assert generate(tools, tmp_path / "m.plan", "--max-tokens", "12") == reference(model, [PROMPT], 12)


def test_without_a_cache_the_whole_sequence_is_computed(tools, model, tmp_path):
    bare = zoo.save(zoo.gpt2(zoo.Gpt2Config(**SIZES), Lively(4)), tmp_path / "bare.onnx")
    tools.compile(bare, tmp_path / "m.plan", "--dim", "batch=1", "--dim", "sequence=12,20", "--mesh", "model=2")
    assert generate(tools, tmp_path / "m.plan", "--max-tokens", "11") == reference(model, [PROMPT], 11)
    line = refused(tools, tmp_path / "m.plan", "--tokens", "1,2,3", "--max-tokens", "19")
    assert "3 tokens and 19 more are too many: the sequence holds 20; lower --max-tokens, or compile" in line


def test_draws_depend_on_the_seed(tools, plan):
    greedy = generate(tools, plan)
    draw = lambda *options: generate(tools, plan, "--temperature", "1.5", *options)  # noqa: E731
    assert draw("--seed", "1") == draw("--seed", "1")
    assert len({str(draw("--seed", str(seed))) for seed in range(4)} | {str(greedy)}) == 5
    assert generate(tools, plan, "--top-k", "1", "--seed", "5") == greedy
    assert draw("--top-k", "1") == greedy
    assert generate(tools, plan, "--top-k", "8", "--seed", "5") != greedy  # the temperature is 1
    assert generate(tools, plan, "--top-k", "8", "--temperature", "0", "--seed", "5") == greedy


def test_a_stop_token_ends_the_output(tools, plan):
    greedy = generate(tools, plan)[0]
    at = next(i for i in range(2, 16) if greedy[i] not in greedy[:i])
    assert generate(tools, plan, "--stop", greedy[at]) == [greedy[: at + 1]]


def test_what_cannot_be_generated(tools, model, plan, tmp_path):
    line = refused(tools, plan, "--tokens", "1", "--dim", "sequence=3")
    assert "no specialisation of entry main fits --dim sequence=3; there are: batch=" in line
    assert "--input input_ids would replace --tokens; leave it out" in refused(tools, plan, "--tokens", "1", "--input", "input_ids=3")
    stopped = tools.call("generate", plan, "--tokens", "1", "--stop", "-1", check=False)
    assert stopped.returncode == 2 and "--stop: Value -1 is not a whole number from 0" in stopped.stderr
    assert "token 97 is outside of the vocabulary of 97" in refused(tools, plan, "--tokens", "97")
    assert "10 tokens and 56 more are too many: the cache holds 64; lower --max-tokens" in refused(
        tools, plan, "--tokens", ",".join(map(str, PROMPT)), "--max-tokens", "56"
    )
    tools.compile(model, tmp_path / "four.plan", "--dim", "batch=1", "--dim", "sequence=4", *STATE)
    line = refused(tools, tmp_path / "four.plan", "--tokens", "1,2,3,4,5")
    assert "no specialisation takes 1 token, the shortest takes 4; compile the plan with a size of 1 too" in line
    grows = zoo.save(zoo.gpt2(zoo.Gpt2Config(cache="concat", **SIZES), Lively(4)), tmp_path / "grows.onnx")
    tools.compile(grows, tmp_path / "grows.plan", "--dim", "batch=1", "--dim", "sequence=1", "--dim", "past=8")
    line = refused(tools, tmp_path / "grows.plan", "--tokens", "1,2")
    assert "'past_key_0' f32 [1, 4, 8, 12] is a cache that the caller keeps; compile the plan with --state" in line
    assert "one that grows by concatenation needs an attention_mask" in line
    mlp = zoo.save(zoo.mlp([16, 8], zoo.Random(0)), tmp_path / "mlp.onnx")
    tools.compile(mlp, tmp_path / "mlp.plan", "--dim", "batch=1")
    line = refused(tools, tmp_path / "mlp.plan", "--tokens", "1")
    assert "no one input takes token ids, integers of [batch, sequence]; name it with --ids; the plan takes 'x'" in line
