"""Spans of licence texts labelled with the licence's family, from the machine-readable copyright files of Debian's packages, and a
linear classifier as the baseline."""

from __future__ import annotations

import re
import zlib
from collections import defaultdict

import numpy as np
from licence_texts import DOCUMENTS, LICENCES, flatten, is_held_out
from tokenizers import Tokenizer

from gridloom import zoo

FAMILIES = {
    "GPL": r"gpl(-[123]|\+?$)",
    "LGPL": r"lgpl",
    "GFDL": r"gfdl|fdl",
    "BSD": r"bsd",
    "MIT and ISC": r"expat|mit|x11|isc",
    "Apache": r"apache",
    "Artistic": r"artistic",
    "MPL": r"mpl",
    "CC": r"cc0|cc-by",
}
SPAN = 16  # tokens
HELD_OUT = 3  # one package of so many


def find_family(name: str) -> int | None:
    """The family of a short licence name such as GPL-2+; None for combinations of licences and for other families."""
    name = name.lower().strip()
    if re.search(r"\b(and|or|with)\b|[,/]|exception", name):
        return None
    return next((i for i, pattern in enumerate(FAMILIES.values()) if re.match(pattern, name)), None)


def list_paragraphs() -> list[tuple[bool, int, str]]:
    """For each paragraph: whether its package is held out, the family, and the text. Texts of the licences themselves are not held out."""
    found = []
    for path in sorted(LICENCES.iterdir()):
        family = find_family(path.name)
        if family is not None and not path.is_symlink():
            found += [(False, family, text) for text in re.split(r"\n\s*\n", path.read_text(encoding="utf-8"))]
    files = {path.resolve(): path for path in sorted(DOCUMENTS.glob("*/copyright"), reverse=True)}
    for path in sorted(files.values()):
        text = path.read_text(encoding="utf-8", errors="replace")
        if "Format:" not in text[:500]:
            continue
        for stanza in re.split(r"\n[ \t]*\n(?=\S)", text):
            licence = re.search(r"^License:[ \t]*(.*)\n((?:[ \t].*\n?)+)", stanza + "\n", re.M)
            family = find_family(licence[1]) if licence else None
            if family is not None:
                held_out = is_held_out(path.parent.name, HELD_OUT)
                found += [(held_out, family, part) for part in re.split(r"\n[ \t]*\.[ \t]*\n", licence[2])]
    return found


def load_spans() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Training and held-out samples: `input_ids`, int64 [samples, SPAN + 2] with begin and end tokens, and `labels`.

    Paragraphs are identified by their words. Those of several families are left out; those of packages on both sides go to one side by
    their own hash. Of equal spans only the held-out one is kept."""
    tokenizer = Tokenizer.from_file(str(zoo.minilm_folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    begin, end = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    paragraphs = list_paragraphs()
    families, sides = defaultdict(set), defaultdict(set)
    for held_out, family, text in paragraphs:
        families[flatten(text)].add(family)
        sides[flatten(text)].add(held_out)
    seen: set = set()
    tables = []
    for side in (True, False):
        rows = []
        for _, family, text in paragraphs:
            key = flatten(text)
            held_out = zlib.crc32(key.encode()) % HELD_OUT == 0 if len(sides[key]) > 1 else True in sides[key]
            if held_out != side or len(families[key]) > 1 or key in seen:
                continue
            seen.add(key)
            ids = tokenizer.encode(" ".join(text.split()), add_special_tokens=False).ids
            for first in range(0, len(ids) - SPAN + 1, SPAN):
                span = tuple(ids[first : first + SPAN])
                if span not in seen:
                    seen.add(span)
                    rows.append((family, begin, *span, end))
        table = np.array(rows, np.int64)
        tables.append({"input_ids": table[:, 1:], "labels": table[:, 0]})
    return tables[1], tables[0]


def append_one(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


def fit_linear(x: np.ndarray, labels: np.ndarray, decay: float, steps: int = 1000) -> np.ndarray:
    """Weights [features + 1, families] of logistic regression: minimises the mean cross entropy plus half `decay` times the squares of
    all rows but the last, by Nesterov's accelerated gradient (Beck and Teboulle, FISTA, 2009, section 4, with a constant step)."""
    x, wanted = append_one(x), np.eye(len(FAMILIES))[labels]
    step = 1 / (np.linalg.eigvalsh(x.T @ x / len(x))[-1] / 2 + decay)  # the softmax's second derivative is at most 1/2
    decays = np.full((x.shape[1], 1), decay)
    decays[-1] = 0
    weights = ahead = np.zeros((x.shape[1], wanted.shape[1]))
    pace = 1.0
    for _ in range(steps):
        scores = x @ ahead
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        last, weights = weights, ahead - step * (x.T @ (shares - wanted) / len(x) + decays * ahead)
        pace, before = (1 + (1 + 4 * pace**2) ** 0.5) / 2, pace
        ahead = weights + (before - 1) / pace * (weights - last)
    return weights


def linear_accuracy(weights: np.ndarray, x: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean((append_one(x) @ weights).argmax(axis=1) == labels))


def probe_accuracy(x: np.ndarray, labels: np.ndarray, held_out: np.ndarray, held_out_labels: np.ndarray) -> float:
    """The held-out accuracy of a linear classifier of features that are scaled to unit variance. Its decay is chosen by training on four
    fifths of the training set and measuring on the rest."""
    mean, deviation = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64) + 1e-6
    x, held_out = (x - mean) / deviation, (held_out - mean) / deviation
    order = np.random.default_rng(0).permutation(len(x))
    some, rest = np.split(order, [len(x) // 5])
    rate = lambda decay: linear_accuracy(fit_linear(x[rest], labels[rest], decay), x[some], labels[some])  # noqa: E731
    decay = max((0.001, 0.003, 0.01, 0.03, 0.1, 0.3), key=rate)
    return linear_accuracy(fit_linear(x, labels, decay), held_out, held_out_labels)
