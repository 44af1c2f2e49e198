"""Generation with state: one plan, loaded once, reads a prompt and decodes; the tokens equal ONNX Runtime's."""

from __future__ import annotations

import re

import numpy as np
import onnxruntime
import pytest

import gridloom
from gridloom import zoo

PROMPT, DECODED, LAYERS = 16, 64, 2
TINY = zoo.Gpt2Config(layers=2, hidden=48, heads=4, vocabulary=97, positions=96, cache="static")
LLAMA = zoo.LlamaConfig(
    layers=2, hidden=32, heads=4, kv_heads=4, intermediate=64, vocabulary=53, positions=96, cache="static"
)
# With so large a vocabulary, a prompt and a token have their work in different layers, and so would their pipeline stages.
LARGE_HEAD = zoo.Gpt2Config(layers=6, hidden=48, heads=4, vocabulary=4000, positions=96, cache="static")
SMALL = zoo.Gpt2Config(positions=128, cache="static")  # 124M parameters


def make_model(config, path):
    make = zoo.llama if isinstance(config, zoo.LlamaConfig) else zoo.gpt2
    zoo.save(make(config, zoo.Random(seed=3, scale=0.02 if config is SMALL else 0.2)), path)
    return path


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return make_model(LLAMA, tmp_path_factory.mktemp("llama") / "tiny.onnx")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_model(TINY, tmp_path_factory.mktemp("gpt2") / "tiny.onnx")


def prompt(config, batch: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, config.vocabulary, (batch, PROMPT))


def generate(step, config, count: int, batch: int = 1) -> tuple[list[list[int]], list[np.ndarray]]:
    """Reads the prompt, then feeds back the likeliest token that is not among the last eight, since an untrained model would repeat
    itself. Returns the tokens and the last position's logits."""
    ids, position, tokens, logits = prompt(config, batch), 0, [], []
    recent = ids
    for _ in range(count + 1):
        last = step(ids, position)[:, -1]
        logits.append(last)
        allowed = last.copy()
        np.put_along_axis(allowed, recent[:, -8:], -np.inf, axis=1)
        position += ids.shape[1]
        ids = allowed.argmax(axis=1)[:, None]
        tokens.append(ids[:, 0].tolist())
        recent = np.concatenate([recent, ids], axis=1)
    return tokens, logits


def reference(path, config, batch: int = 1):
    """A step of ONNX Runtime; the cache is passed from call to call."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    shape = (batch, config.heads, config.positions, config.hidden // config.heads)
    pasts = [i.name for i in session.get_inputs() if i.name.startswith("past_")]
    names = [o.name for o in session.get_outputs()]
    cache = {name: np.zeros(shape, np.float32) for name in pasts}

    def step(ids, position):
        outputs = dict(zip(names, session.run(None, {"input_ids": ids, "position": np.array([position]), **cache})))
        cache.update({name: outputs[name.replace("past_", "present_")] for name in pasts})
        return outputs["logits"]

    return step


def compiled(path, folder, mesh: str, strategy: str | None = None, batch: int = 1):
    options = {"strategy": strategy} if strategy else {}
    return gridloom.compile(
        path,
        folder,
        dims={"batch": batch, "sequence": [PROMPT, 1]},
        mesh=mesh,
        state={"past_*": "present_*"},
        **options,
    )


def check(path, config, folder, mesh: str, strategy: str | None, batch: int = 1) -> gridloom.Plan:
    want, want_logits = generate(reference(path, config, batch), config, DECODED, batch)
    assert len({row[0] for row in want}) > DECODED // 4
    plan = compiled(path, folder, mesh, strategy, batch)
    with gridloom.load(plan) as session:

        def step(ids, position):
            return session.run({"input_ids": ids, "position": np.array([position])})["logits"]

        for _ in range(2):  # a second prompt overwrites the first
            tokens, logits = generate(step, config, DECODED, batch)
            assert tokens == want
            np.testing.assert_allclose(logits, want_logits, rtol=2e-3, atol=2e-3)
    return plan


@pytest.mark.parametrize(
    ("mesh", "strategy"),
    [("", None), ("model=2", "tp"), ("pipe=2", None), ("model=4", "tp"), ("pipe=2,model=2", "tp+pp")],
    ids=lambda value: value or "none",
)
def test_tiny_gpt2(tiny, tmp_path, mesh, strategy):
    check(tiny, TINY, tmp_path / "tiny.plan", mesh, strategy)


@pytest.mark.parametrize(
    ("mesh", "strategy", "sharding"),
    [("model=2", "tp", '[{}, {"model"}, {}, {}]'), ("data=2,model=2", "dp+tp", '[{"data"}, {"model"}, {}, {}]')],
)
def test_the_state_is_split(llama, tmp_path, mesh, strategy, sharding):
    """Every device keeps the cache of its own requests and heads, in both specialisations."""
    plan = check(llama, LLAMA, tmp_path / "llama.plan", mesh, strategy, batch=2)
    program = next((plan.path / "ir").glob("*-schedule.mlir")).read_text()
    states = [line for line in program.splitlines() if "plan.buffer state" in line]
    assert len(states) == 2 * 2 * LAYERS
    assert all(sharding in line for line in states)


def test_prompt_and_token_keep_states_in_one_stage(tools, tmp_path):
    """Both specialisations must assign a cache to the same stage, or the token would not find the prompt's cache."""
    path = make_model(LARGE_HEAD, tmp_path / "gpt2.onnx")
    plan = check(path, LARGE_HEAD, tmp_path / "gpt2.plan", "pipe=2", None)
    owners: dict[str, set[str]] = {}
    for program in next((plan.path / "ir").glob("*-schedule.mlir")).read_text().split("plan.program @")[1:]:
        stage = re.match(r"\w+_stage(\d)", program).group(1)
        for state in re.findall(r'plan.buffer state "(\w+)"', program):
            owners.setdefault(state, set()).add(stage)
    assert len(owners) == 2 * LARGE_HEAD.layers and all(len(stages) == 1 for stages in owners.values()), owners
    assert {"0"} in owners.values() and {"1"} in owners.values()
    printed = tools.call("check", plan.path, "--input", "position=0").stdout
    assert "3 calls of one session, which share states" in printed and "PASS" in printed


@pytest.mark.full
@pytest.mark.parametrize(("mesh", "strategy"), [("", None), ("model=2", "tp"), ("model=4", "tp")])
def test_gpt2_small(tmp_path, mesh, strategy):
    path = make_model(SMALL, tmp_path / "gpt2.onnx")
    check(path, SMALL, tmp_path / "gpt2.plan", mesh, strategy)


def test_the_state_is_needed(tiny, tmp_path):
    """Without the cache, which a new session per call loses, the tokens differ."""
    want, _ = generate(reference(tiny, TINY), TINY, 8)
    plan = compiled(tiny, tmp_path / "tiny.plan", "")

    def step(ids, position):
        with gridloom.load(plan) as session:
            return session.run({"input_ids": ids, "position": np.array([position])})["logits"]

    tokens, _ = generate(step, TINY, 8)
    assert tokens[0] == want[0] and tokens != want


def test_states_can_be_reset(tiny, tmp_path):
    with gridloom.load(compiled(tiny, tmp_path / "tiny.plan", "model=2", "tp")) as session:
        inputs = {"input_ids": np.array([[5]]), "position": np.array([3])}
        first = session.run(inputs)["logits"]
        session.run({"input_ids": prompt(TINY, 1), "position": np.array([0])})
        assert not np.array_equal(session.run(inputs)["logits"], first)
        session.reset_states()
        np.testing.assert_array_equal(session.run(inputs)["logits"], first)


def test_a_state_keeps_its_shape(tmp_path):
    path = make_model(
        zoo.Gpt2Config(layers=1, hidden=32, heads=2, vocabulary=29, positions=32, cache="concat"), tmp_path / "m.onnx"
    )
    with pytest.raises(gridloom.CompileError, match="a state keeps its shape: give the model a cache of fixed size"):
        gridloom.compile(
            path,
            tmp_path / "m.plan",
            mesh="",
            dims={"batch": 1, "sequence": 4, "past": 8},
            state={"past_*": "present_*"},
        )


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (("past_*", "*_*"), "is not INPUT=OUTPUT"),
        (("gone_*", "present_*"), "the model has no input 'gone_*'"),
        (("past_*", "gone_*"), "has no output 'gone_key_0'"),
    ],
)
def test_states_that_are_not_there(tiny, tmp_path, state, error):
    with pytest.raises(gridloom.CompileError) as raised:
        gridloom.compile(tiny, tmp_path / "m.plan", mesh="", dims={"batch": 1, "sequence": 4}, state=dict([state]))
    assert error in str(raised.value)
