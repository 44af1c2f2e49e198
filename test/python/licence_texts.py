"""Licence texts that every Debian system has, as training texts: characters of whole files, and a 5-gram model as the baseline."""

from __future__ import annotations

import re
import subprocess
import zlib
from pathlib import Path

import numpy as np

LICENCES = Path("/usr/share/common-licenses")
DOCUMENTS = Path("/usr/share/doc")
SYMBOLS = 97  # the printable characters of ASCII, the end of a line, and one for all others


def common_files() -> dict[str, Path]:
    """By name: the licences themselves, and copyright files of packages of priority required or important, which every system has."""
    command = ["dpkg-query", "--show", "--showformat=${Package} ${Priority} ${db:Status-Status}\n"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    files = {path.name: path for path in sorted(LICENCES.iterdir()) if not path.is_symlink()}
    for package, priority, status in map(str.split, listed.splitlines()):
        path = DOCUMENTS / package / "copyright"
        if priority in ("required", "important") and status == "installed" and path.exists():
            files[package] = path
    return files


def is_held_out(name: str, one_of: int = 8) -> bool:
    """Depends on the name only, so that the split is the same on every system."""
    return zlib.crc32(name.encode()) % one_of == 0


def flatten(text: str) -> str:
    """The key that identifies equal paragraphs: case and line breaks do not count."""
    return " ".join(text.lower().split())


def encode_characters(text: str) -> np.ndarray:
    """The text as int64 numbers below SYMBOLS."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.int64)
    symbols = np.where((codes >= 32) & (codes < 127), codes - 31, 0)
    return np.where(codes == 10, SYMBOLS - 1, symbols)


def load_characters() -> tuple[np.ndarray, np.ndarray]:
    """Symbols of the training files and of the held-out files. Each paragraph occurs once; one in both stays in the training files."""
    files = common_files()
    seen: set[str] = set()
    parts: dict[bool, list[str]] = {False: [], True: []}
    for held_out in parts:
        for name in sorted(files):
            if is_held_out(name) != held_out:
                continue
            for paragraph in re.split(r"\n\s*\n", files[name].read_text(encoding="utf-8", errors="replace")):
                key = flatten(paragraph)
                if key and key not in seen:
                    seen.add(key)
                    parts[held_out].append("\n".join(line.rstrip() for line in paragraph.expandtabs().splitlines()).strip("\n"))
    return tuple(encode_characters("\n\n".join(part) + "\n\n") for part in parts.values())


def cut_windows(symbols: np.ndarray, length: int) -> dict[str, np.ndarray]:
    """Consecutive samples: `tokens` and, shifted by one symbol, `labels`, int64 [samples, length]."""
    samples = (len(symbols) - 1) // length
    cut = lambda begin: symbols[begin : begin + samples * length].reshape(samples, length)  # noqa: E731
    return {"tokens": cut(0), "labels": cut(1)}


def unigram_entropy(symbols: np.ndarray, labels: np.ndarray) -> float:
    """Nats per label by the frequencies in `symbols`, with one added to each count."""
    counts = np.bincount(symbols, minlength=SYMBOLS) + 1
    return float(-np.log(counts[labels] / counts.sum()).mean())


class NGrams:
    """Counts of a text for interpolated Kneser-Ney smoothing (Chen and Goodman, An empirical study of smoothing techniques for language
    modeling, 1999, section 2.7): the longest n-grams by how often they occur, shorter ones by the number of different symbols before
    them."""

    def __init__(self, text: np.ndarray, order: int):
        self.order = order
        self.tables = []
        for n in range(1, order + 1):
            grams = self.pack(text, n) if n == order else np.unique(self.pack(text, n + 1)) % 128**n
            keys, counts = np.unique(grams, return_counts=True)
            contexts, inverse = np.unique(keys // 128, return_inverse=True)
            totals = np.bincount(inverse, counts).astype(np.int64)
            self.tables.append(((keys, counts), (contexts, totals), (contexts, np.bincount(inverse))))

    @staticmethod
    def pack(text: np.ndarray, n: int) -> np.ndarray:
        """The n-gram that begins at each symbol, as one number."""
        return sum(text[i : len(text) - n + 1 + i] * 128 ** (n - 1 - i) for i in range(n))

    def look_up(self, text: np.ndarray) -> list[tuple]:
        """For each order, and each symbol of the text from index `order` - 1 on: its count after its context, the context's count, and
        the number of different symbols after the context."""
        found = []
        for n, tables in enumerate(self.tables, 1):
            grams = self.pack(text, n)[self.order - n :]
            row = []
            for (keys, values), wanted in zip(tables, (grams, grams // 128, grams // 128), strict=True):
                place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
                row.append(np.where(keys[place] == wanted, values[place], 0))
            found.append(tuple(row))
        return found


def smooth(found: list[tuple], discounts: list[float]) -> np.ndarray:
    """Each symbol's probability given its context."""
    share = 1 / SYMBOLS
    for (counts, totals, followers), discount in zip(found, discounts, strict=True):
        mixed = (np.maximum(counts - discount, 0) + discount * followers * share) / np.maximum(totals, 1)
        share = np.where(totals > 0, mixed, share)
    return share


def choose_discounts(text: np.ndarray, order: int) -> list[float]:
    """The discounts that are best for the last tenth of `text` with the counts of the rest."""
    begin = len(text) * 9 // 10
    found = NGrams(text[:begin], order).look_up(text[begin:])
    discounts = [0.5] * order
    for _ in range(3):
        for n in range(order):
            tried = {value: [*discounts[:n], value, *discounts[n + 1 :]] for value in np.linspace(0.05, 0.95, 19)}
            discounts = max(tried.values(), key=lambda some: np.log(smooth(found, some)).mean())
    return discounts


def ngram_entropy(text: np.ndarray, held_out: np.ndarray, order: int = 5) -> float:
    """Nats per symbol of `held_out`, except for the first `order` - 1 symbols."""
    return float(-np.log(smooth(NGrams(text, order).look_up(held_out), choose_discounts(text, order))).mean())
