"""Makes the machine's GPUs the fake ones of this folder."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPLAINT = "fake GPU: "  # begins each line on stderr that says what a program did wrong


def environment(devices: int, seed: int, libraries: Path | None = None) -> dict[str, str]:
    """What a process needs to find `devices` fake GPUs, their streams' turns drawn from `seed`. `libraries` is the build
    tree's lib, by default that of the build in use."""
    libraries = libraries or Path(os.environ.get("GRIDLOOM_BUILD", ROOT / "build" / "dev")) / "lib"
    result = {"GRIDLOOM_FAKE_DEVICES": str(devices), "GRIDLOOM_FAKE_SEED": str(seed)}
    for variable, name in [("CUDA_DRIVER", "cuda"), ("CUBLASLT", "cublaslt"), ("CUDNN", "cudnn"), ("NCCL", "nccl")]:
        library = libraries / f"libfake_{name}.so"
        if not library.exists():
            raise FileNotFoundError(f"{library} is not built; run scripts/build")
        result[f"GRIDLOOM_{variable}"] = str(library)
    return result
