"""Weights that are generated again instead of being packed: the offset of each in a model's data file, and the generator's arguments.
`Recorder` records them while the zoo writes a model; `make` writes the file again, bit for bit."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import multiprocessing
import os
from pathlib import Path

import numpy as np


def load_generator(path: Path):
    """The module with the zoo's `Random`, loaded from its file, because the rest of the zoo needs the package onnx."""
    spec = importlib.util.spec_from_file_location("gridloom_weights", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Recorder:
    """Replaces the zoo's Random and ExternalFile while a model is written, and records the requests."""

    def __init__(self, generator, store):
        self.generator, self.store = generator, store
        self.path = store.path
        self.asked: dict[int, tuple] = {}  # by address of the data
        self.tensors: list[dict] = []
        self.kept: list[np.ndarray] = []

    def get(self, name: str, shape, *, scale=None, mean=0.0) -> np.ndarray:
        array = self.generator.get(name, shape, scale=scale, mean=mean)
        # The address stays unique until the next weight is requested.
        self.asked = {array.ctypes.data: (name, array, scale, mean)}
        return array

    def add(self, name: str, array: np.ndarray):
        tensor = self.store.add(name, array)
        where = {entry.key: int(entry.value) for entry in tensor.external_data if entry.key in ("offset", "length")}
        entry = {"name": name, **where}
        made = self.asked.get(array.ctypes.data)
        if made and array.size == made[1].size and array.strides in (made[1].strides, made[1].T.strides):
            source, whole, scale, mean = made
            entry.update(generate=source, shape=list(whole.shape), scale=scale, mean=mean)
            entry["transposed"] = array.strides != whole.strides
        else:
            self.kept.append(np.ascontiguousarray(array))
            entry["kept"] = len(self.kept) - 1
        self.tensors.append(entry)
        return tensor

    def finish(self, seed: int, recipe: Path) -> dict:
        """Writes `recipe`, the weights without a generator next to it, and returns the entry with the data file's digest."""
        document = {
            "seed": seed,
            "file": self.path.name,
            "bytes": self.path.stat().st_size,
            "sha256": digest(self.path),
        }
        recipe.write_text(json.dumps({**document, "tensors": self.tensors}))
        if self.kept:
            np.savez_compressed(recipe.with_suffix(".npz"), *self.kept)
        return document


def digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 22):
            found.update(part)
    return found.hexdigest()


def _write(job) -> None:
    generator, path, seed, tensor, kept = job
    if "kept" in tensor:
        with np.load(kept) as arrays:
            array = arrays[f"arr_{tensor['kept']}"]
    else:
        random = load_generator(generator).Random(seed)
        array = random.get(tensor["generate"], tuple(tensor["shape"]), scale=tensor["scale"], mean=tensor["mean"])
        if tensor["transposed"]:
            array = array.T
    with open(path, "r+b") as file:
        file.seek(tensor["offset"])
        np.ascontiguousarray(array).tofile(file)


def make(recipes: list[Path], generator: Path, workers: int | None = None) -> int:
    """Writes the missing data files of `recipes`, each next to its recipe; `generator` is the zoo's weights.py. Returns the bytes
    written. Raises ValueError if a digest differs from the recorded one."""
    jobs, files = [], []
    for recipe in recipes:
        document = json.loads(recipe.read_text())
        path = recipe.with_name(document["file"])
        if path.exists() and path.stat().st_size == document["bytes"]:
            continue
        with path.open("wb") as file:
            file.truncate(document["bytes"])
        files.append((path, document))
        kept = recipe.with_suffix(".npz")
        jobs += [(generator, path, document["seed"], tensor, kept) for tensor in document["tensors"]]
    if not jobs:
        return 0
    jobs.sort(key=lambda job: -job[3]["length"])
    workers = workers or min(len(os.sched_getaffinity(0)), 16)
    try:
        with multiprocessing.get_context("fork").Pool(workers) as pool:
            for _ in pool.imap_unordered(_write, jobs):
                pass
            digests = pool.map(digest, [path for path, _ in files])
    except BaseException:
        for path, _ in files:  # half-written files already have the right size
            path.unlink(missing_ok=True)
        raise
    for (path, document), found in zip(files, digests):
        if found != document["sha256"]:
            path.unlink()
            raise ValueError(f"{path.name} came out different from when it was packed; is numpy older than 1.17?")
    return sum(document["bytes"] for _, document in files)
