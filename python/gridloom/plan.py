"""A plan as plain objects. Reading one runs nothing and needs neither compiler nor bindings."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import numpy as np

# Element types as the manifest spells them. numpy has neither bf16 nor 8-bit floats: arrays of these have ml_dtypes' types if it is
# installed, else hold the bits.
_NUMPY = {
    "f32": "float32", "f64": "float64", "f16": "float16", "i8": "int8", "i16": "int16", "i32": "int32",
    "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "bool": "bool",
}  # fmt: skip
_ML_DTYPES = {
    "bf16": ("bfloat16", "uint16"), "f8e4m3fn": ("float8_e4m3fn", "uint8"), "f8e5m2": ("float8_e5m2", "uint8"),
    "f8e4m3fnuz": ("float8_e4m3fnuz", "uint8"), "f8e5m2fnuz": ("float8_e5m2fnuz", "uint8"),
}  # fmt: skip


def numpy_type(name: str) -> np.dtype:
    """The numpy type of a manifest's element type."""
    if name in _NUMPY:
        return np.dtype(_NUMPY[name])
    extension, bits = _ML_DTYPES[name]
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype([(name, bits)])
    return np.dtype(getattr(ml_dtypes, extension))


@dataclasses.dataclass(frozen=True)
class Binding:
    """An input or output of an entry: global shape, names of its dimensions ("" if fixed), and the stages that read or write it.
    `labels` describes each loss that takes the input as labels: its text `loss`, the number of `classes` and the label that is
    `ignored`, if any."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    dim_names: tuple[str, ...]
    stages: tuple[int, ...]
    labels: tuple[dict, ...] = ()


@dataclasses.dataclass(frozen=True)
class Specialisation:
    """An entry for one choice of its symbolic dimensions."""

    dims: dict[str, int]
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]


@dataclasses.dataclass(frozen=True)
class Entry:
    name: str
    specialisations: tuple[Specialisation, ...]


@dataclasses.dataclass(frozen=True)
class Weight:
    """A weight of the model: global shape and size in bytes."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    bytes: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """A plan, read from its manifest. `report` describes the compiler's decisions; `log` has the compiler's messages if
    `gridloom.compile` made this plan. A plan that trains has in `training` the learning rate, losses and optimizer, and the smallest
    loss scale if the loss is scaled."""

    path: Path
    mesh: dict[str, int]
    stages: int
    microbatches: int
    target: dict[str, str]
    entries: tuple[Entry, ...]
    weights: tuple[Weight, ...]
    log: str = dataclasses.field(default="", repr=False)
    precision: str = "f32"
    training: dict | None = None

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def ranks(self) -> int:
        """The number of ranks that run this plan: the product of the mesh's axes."""
        return int(np.prod(list(self.mesh.values()), dtype=np.int64))

    @property
    def report(self) -> dict:
        """The compiler's decisions, their reasons and costs (report.json)."""
        return json.loads((self.path / "report.json").read_text())

    @classmethod
    def read(cls, path: str | os.PathLike, log: str = "") -> Plan:
        """Reads `path`/manifest.json; raises ValueError for a folder that is no plan of a known version."""
        path = Path(path)
        try:
            manifest = json.loads((path / "manifest.json").read_text())
            if manifest["schema"]["major"] != 2:
                raise ValueError(f"{path} has plan schema {manifest['schema']['major']}, this package reads 2")
            return cls(
                path=path,
                mesh={axis["name"]: axis["size"] for axis in manifest["mesh"]["axes"]},
                stages=len(manifest["stages"]),
                microbatches=manifest.get("microbatches", 1),
                target=manifest["target"],
                entries=tuple(_entry(e) for e in manifest["entries"]),
                weights=tuple(
                    Weight(w["name"], numpy_type(w["type"]), tuple(w["shape"]), w["bytes"]) for w in manifest["weights"]
                ),
                log=log,
                precision=manifest.get("precision", "f32"),
                training=manifest.get("training"),
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ValueError(f"{path} is not a plan: it has no manifest.json") from error
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path}/manifest.json is damaged: {error!r}") from error


def _entry(entry: dict) -> Entry:
    def bindings(values: list[dict]) -> tuple[Binding, ...]:
        return tuple(
            Binding(
                v["name"],
                numpy_type(v["type"]),
                tuple(v["shape"]),
                tuple(v.get("dim_names", [])),
                tuple(v["stages"]),
                tuple(v.get("labels", [])),
            )
            for v in values
        )

    return Entry(
        entry["name"],
        tuple(
            Specialisation(dict(s["dims"]), bindings(s["inputs"]), bindings(s["outputs"]))
            for s in entry["specialisations"]
        ),
    )
