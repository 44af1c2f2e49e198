"""Sources of a model's weights: a safetensors file, or a counter-based generator with a seed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Protocol

import numpy as np


class Weights(Protocol):
    def get(self, name: str, shape: tuple[int, ...], *, scale: float | None = None, mean: float = 0.0) -> np.ndarray:
        """The float32 tensor `name`, which must have `shape`. `scale` and `mean` are those of random numbers."""


class Safetensors:
    """A memory-mapped safetensors file (64-bit header length, JSON header, then raw data)."""

    _TYPES = {"F32": np.float32, "F16": np.float16, "F64": np.float64}

    def __init__(self, path: str | Path):
        self.path = Path(path)
        size = self.path.stat().st_size
        with self.path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                raise ValueError(f"{self.path} is not a safetensors file: header of {length} bytes in {size}")
            self._header = json.loads(file.read(length))
        self._data = np.memmap(self.path, np.uint8, "r", offset=8 + length)

    def get(self, name: str, shape: tuple[int, ...], **_) -> np.ndarray:
        entry = self._header.get(name)
        if entry is None:
            raise KeyError(f"{self.path} has no tensor {name!r}")
        if tuple(entry["shape"]) != tuple(shape):
            raise ValueError(f"{name!r} in {self.path} has shape {entry['shape']}, expected {list(shape)}")
        if entry["dtype"] not in self._TYPES:
            raise ValueError(f"{name!r} in {self.path} is {entry['dtype']}, not one of {', '.join(self._TYPES)}")
        begin, end = entry["data_offsets"]
        raw = self._data[begin:end].view(self._TYPES[entry["dtype"]])
        return raw.reshape(shape).astype(np.float32)


class Zeros:
    """One zero for all elements: a model of any size takes no time and memory to make. For compiling, which only reads shapes; outputs
    are meaningless."""

    def get(self, name: str, shape: tuple[int, ...], **_) -> np.ndarray:
        return np.broadcast_to(np.float32(0), shape)


class Random:
    """Numbers that depend only on seed, tensor name and position, and are the same on every machine.

    Each is the centred sum of four 16-bit uniforms (nearly normal) from one 64-bit output of Philox, times a scale, by default 0.02 as
    in BERT's initialisation: integers and one multiplication, so that libm has no influence. Scales of normalisations are around one."""

    def __init__(self, seed: int, scale: float = 0.02):
        self.seed = seed
        self.scale = scale

    def get(self, name: str, shape: tuple[int, ...], *, scale: float | None = None, mean: float = 0.0) -> np.ndarray:
        key = hashlib.sha256(f"{self.seed}:{name}".encode()).digest()[:16]
        generator = np.random.Philox(key=int.from_bytes(key, "little"))
        out = np.empty(int(np.prod(shape)), np.float32)
        step = np.float32((self.scale if scale is None else scale) / (65536 * (4 / 12) ** 0.5))
        for begin in range(0, out.size, 1 << 20):
            chunk = out[begin : begin + (1 << 20)]
            words = generator.random_raw(chunk.size).view(np.uint16).reshape(-1, 4)
            chunk[:] = (words.sum(axis=1, dtype=np.int32) - 2 * 65535).astype(np.float32) * step
        if name.endswith("LayerNorm.weight"):
            mean = 1.0
        if mean:
            out += np.float32(mean)
        return out.reshape(shape)
