"""A GPT learns the characters of licence texts on four ranks by `gridloom train`, predicts them better than a 5-gram model, and gives
the same results in ONNX Runtime."""

from __future__ import annotations

import csv

import gridloom
import numpy as np
import pytest
from conftest import onnxruntime_session
from licence_texts import SYMBOLS, NGrams, choose_discounts, cut_windows, load_characters, ngram_entropy, smooth, unigram_entropy
from training_gpt import Gpt
from training_models import cross_entropy


@pytest.fixture(scope="module")
def texts() -> tuple[np.ndarray, np.ndarray]:
    return load_characters()


def take_whole_batches(windows: dict[str, np.ndarray], batch: int) -> dict[str, np.ndarray]:
    rows = len(windows["tokens"]) // batch * batch
    return {name: array[:rows] for name, array in windows.items()}


def train(tools, folder, model: Gpt, texts, mesh: str, batch: int, steps: int, warmup: int) -> tuple[float, dict[str, np.ndarray]]:
    """Compiles and trains in `folder`; returns the mean loss of the held-out samples, and these samples."""
    held_out = take_whole_batches(cut_windows(texts[1], model.length), batch)
    np.savez(folder / "train.npz", **cut_windows(texts[0], model.length))
    np.savez(folder / "held-out.npz", **held_out)
    tools.compile(
        model.save(folder / "gpt.onnx"), folder / "gpt.plan", "--train", "--loss", "cross_entropy(logits, labels)",
        "--optimizer", "adamw(lr=3e-3, beta2=0.99, weight_decay=0.1)", "--clip", "norm(1.0)",
        "--param", "rank<=1: weight_decay=0", "--dim", f"batch={batch}", "--mesh", *mesh.split(),
    )  # fmt: skip
    tools.call(
        "train", folder / "gpt.plan", "--in-process", "--threads", 1, "--data", folder / "train.npz", "--steps", steps,
        "--eval-data", folder / "held-out.npz", "--eval-every", steps, "--lr-schedule", f"cosine(warmup={warmup}, min=0.02)",
        "--checkpoint-dir", folder / "run", "--log", folder / "log.csv", timeout=7200,
    )  # fmt: skip
    with open(folder / "log.csv", newline="") as file:
        return float(list(csv.DictReader(file))[-1]["eval_loss"]), held_out


def check_export(tools, folder, held_out: dict[str, np.ndarray], batch: int, loss: float) -> None:
    """In ONNX Runtime the exported model has the plan's logits and the loss that training reported."""
    tools.call("checkpoint", "export", folder / "run", "--model", folder / "gpt.onnx", "-o", folder / "trained.onnx")
    session = onnxruntime_session(folder / "trained.onnx", threads=1)
    parts = np.split(held_out["tokens"], len(held_out["tokens"]) // batch)
    logits = [session.run(None, {"tokens": part})[0] for part in parts]
    with gridloom.Trainer(folder / "gpt.plan", threads=1) as trainer:
        trainer.load(folder / "run")
        main = trainer.session.run({"tokens": parts[0]}, entry="main")["logits"]
    np.testing.assert_allclose(main, logits[0], rtol=1e-3, atol=1e-3)
    found, _ = cross_entropy(np.concatenate(logits).reshape(-1, SYMBOLS).astype(np.float64), held_out["labels"].ravel())
    assert loss == pytest.approx(found, abs=1e-4)


def test_5_grams_are_as_likely_as_their_sum_says(texts):
    """All symbols' probabilities after a context sum to 1, whether the text has the context or not; longer contexts help."""
    model, discounts = NGrams(texts[0], 5), choose_discounts(texts[0], 5)
    for context in (texts[1][100:104], np.array([3, 90, 17, 60])):
        rows = np.concatenate([[*context, symbol] for symbol in range(SYMBOLS)])
        found = [tuple(array[::5] for array in arrays) for arrays in model.look_up(rows)]
        assert smooth(found, discounts).sum() == pytest.approx(1, abs=1e-9)
    entropies = [ngram_entropy(*texts, order) for order in (2, 3, 5)]
    assert unigram_entropy(*texts) > entropies[0] > entropies[1] > entropies[2] > 0


@pytest.mark.parametrize("mesh", ["data=2,model=2", "data=4 --zero 1"])
def test_few_steps_are_better_than_frequencies(tools, tmp_path, texts, mesh):
    model = Gpt(layers=2, width=64, heads=4, length=64, vocabulary=SYMBOLS, grams=(2,), rows=1021)
    loss, held_out = train(tools, tmp_path, model, (texts[0], texts[1][:8193]), mesh, batch=16, steps=80, warmup=10)
    assert loss < unigram_entropy(texts[0], held_out["labels"].ravel()) - 0.3
    check_export(tools, tmp_path, held_out, 16, loss)


@pytest.mark.full
def test_a_gpt_is_better_than_5_grams(tools, tmp_path, texts):
    model = Gpt(layers=2, width=128, heads=4, length=128, vocabulary=SYMBOLS, grams=(2, 3, 5))
    loss, held_out = train(tools, tmp_path, model, texts, "data=2,model=2", batch=16, steps=800, warmup=50)
    limit = ngram_entropy(texts[0], texts[1][: held_out["labels"].size + 1])  # the same symbols
    print(f"held-out loss {loss:.4f}, 5-gram model {limit:.4f}")
    assert loss < limit
    check_export(tools, tmp_path, held_out, 16, loss)
