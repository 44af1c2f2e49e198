"""Makes a process use the fake GPUs of this folder."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPLAINT = "fake GPU: "  # begins each line on stderr that reports a program's error


def environment(devices: int, seed: int, libraries: Path | None = None) -> dict[str, str]:
    """The environment in which a process finds `devices` fake GPUs, whose streams take turns by `seed`. `libraries` is the lib folder of
    the build tree, by default that of the current build."""
    libraries = libraries or Path(os.environ.get("GRIDLOOM_BUILD", ROOT / "build" / "dev")) / "lib"
    result = {"GRIDLOOM_FAKE_DEVICES": str(devices), "GRIDLOOM_FAKE_SEED": str(seed)}
    for variable, name in [("CUDA_DRIVER", "cuda"), ("CUBLASLT", "cublaslt"), ("CUDNN", "cudnn"), ("NCCL", "nccl")]:
        library = libraries / f"libfake_{name}.so"
        if not library.exists():
            raise FileNotFoundError(f"{library} is not built; run scripts/build")
        result[f"GRIDLOOM_{variable}"] = str(library)
    return result
