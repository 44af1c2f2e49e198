"""Models as PyTorch exports them in training mode learn on four ranks what they learn on one, and give the same results in ONNX Runtime."""

from __future__ import annotations

import gridloom
import numpy as np
import onnx
import pytest
from conftest import onnxruntime_session
from training_exports import evaluation_of, save_cnn, save_transformer
from training_models import load_digits

BATCH, STEPS = 32, 300
MODELS = {"cnn": save_cnn, "transformer": save_transformer}


@pytest.fixture(scope="module")
def digits() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    return load_digits()


def make_trainer(tools, folder, name: str, seed: int, mesh: str | None, precision: str = "f32") -> gridloom.Trainer:
    plan = gridloom.compile(
        MODELS[name](folder / f"{name}{seed}.onnx", seed), folder / f"{name}{seed}{mesh}{precision}.plan", tools=tools.folder,
        train=True, loss="cross_entropy(logits, labels)", metric="accuracy(logits, labels)",
        optimizer="adamw(lr=3e-3, weight_decay=0.01)", clip="norm(1.0)", param={"rank<=1": "weight_decay=0"},
        dims={"batch": BATCH}, mesh=mesh, precision=precision,
    )  # fmt: skip
    return gridloom.Trainer(plan, schedule=f"cosine(warmup=5, total={STEPS})", seed=seed, threads=1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("precision", "meshes", "tolerance"), [("f32", ["data=4", "data=2,model=2"], 1e-4), ("bf16", ["data=2,model=2"], 2e-2)]
)
def test_first_steps_are_those_of_one_rank(tools, tmp_path, digits, name, precision, meshes, tolerance):
    losses = {}
    for mesh in [None, *meshes]:
        with make_trainer(tools, tmp_path, name, 0, mesh, precision) as trainer:
            losses[mesh] = [step["loss"] for step in trainer.fit(digits[0], steps=20)]
    assert losses[None][-1] < losses[None][0] * 0.9
    for mesh in meshes:
        np.testing.assert_allclose(losses[mesh], losses[None], rtol=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_export_is_the_model(tools, tmp_path, digits, name):
    """Nodes and names are those of the original file; in evaluation mode its logits equal the plan's."""
    with make_trainer(tools, tmp_path, name, 1, "data=2,model=2") as trainer:
        trainer.fit(digits[0], steps=40)
        expected = trainer.session.run({"x": digits[1]["x"][:BATCH]}, entry="main")["logits"]
        trainer.save(tmp_path / "checkpoint")
    tools.call("checkpoint", "export", tmp_path / "checkpoint", "--model", tmp_path / f"{name}1.onnx", "-o", tmp_path / "trained.onnx")
    before, trained = onnx.load(tmp_path / f"{name}1.onnx"), onnx.load(tmp_path / "trained.onnx")
    assert trained.graph.node == before.graph.node
    changed = {a.name for a, b in zip(before.graph.initializer, trained.graph.initializer, strict=True) if a != b}
    assert changed == {weight.name for weight in before.graph.initializer}  # statistics, too
    onnx.save(evaluation_of(trained), tmp_path / "inference.onnx")
    logits = onnxruntime_session(tmp_path / "inference.onnx").run(None, {"x": digits[1]["x"][:BATCH]})[0]
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_five_seeds_learn_as_well_on_four_ranks(tools, tmp_path, digits, name):
    """The mean accuracy is within the range of one rank's seeds. The floor is below the expected result: in JAX, with other batches and
    masks, the same transformer reaches 0.94 to 0.96; with a learning rate of 1e-3 it is 0.83 to 0.89 in both."""
    found = {}
    for mesh in (None, "data=2,model=2"):
        for seed in range(5):
            with make_trainer(tools, tmp_path, name, seed, mesh) as trainer:
                trainer.fit(digits[0], steps=STEPS)
                found.setdefault(mesh, []).append(trainer.evaluate(digits[1])["accuracy"])
    one, four = found.values()
    print(name, "one rank", one, "four ranks", four)
    assert min(one) <= np.mean(four) <= max(one), found
    assert min(one) >= 0.93, found
