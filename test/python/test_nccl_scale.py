"""Plans for up to 64 GPUs on the fake driver and the fake NCCL: the calls of all ranks and their order, and failures of one rank's calls.

By default the failing calls are sampled on large meshes; with GRIDLOOM_EXHAUSTIVE=1 every call of a rank fails once."""

from __future__ import annotations

import os
import random
import re
import subprocess

import pytest

from gridloom import zoo

EXHAUSTIVE = bool(os.environ.get("GRIDLOOM_EXHAUSTIVE"))
SMALL = 8  # up to this many ranks every call fails in turn
COUNTS = [2, 2, 2, 3, 4, 4, 4, 6, 6, 8, 8, 8, 12, 16, 16, 24, 32, 48, 64, 64]


def draw_mesh(seed: int) -> str:
    """A random mesh of COUNTS[seed] devices: each prime factor goes to one axis."""
    rng = random.Random(seed)
    sizes = {"data": 1, "model": 1, "pipe": 1}
    rest, prime = COUNTS[seed], 2
    while rest > 1:
        while rest % prime:
            prime += 1
        # Models have at least four layers.
        sizes[rng.choice([axis for axis in sizes if axis != "pipe" or sizes[axis] * prime <= 4])] *= prime
        rest //= prime
    return ",".join(f"{axis}={size}" for axis, size in sizes.items() if size > 1)


def count_ranks(mesh: str) -> int:
    product = 1
    for axis in mesh.split(","):
        product *= int(axis.split("=")[1])
    return product


def make_model(seed: int, mesh: str, path):
    """A random model that the mesh can split, and the sizes of its named dimensions."""
    rng = random.Random(seed)
    if count_ranks(mesh) <= 8 and seed % 3 == 0:
        config = zoo.BertConfig(
            layers=2, hidden=32, heads=8, intermediate=64, vocabulary=50, positions=16, head="embedding"
        )
        return zoo.save(zoo.bert(config, zoo.Random(seed)), path), {"batch": 8, "sequence": 4}
    width = 64
    sizes = [width] + [width * rng.choice([1, 2]) for _ in range(rng.randint(3, 5))] + [width]
    return zoo.save(zoo.mlp(sizes, zoo.Random(seed, scale=0.2), rng.choice(["relu", "gelu", "tanh"])), path), {"batch": 64}


@pytest.mark.parametrize("seed", range(len(COUNTS)))
def test_no_rank_waits_for_ever(tools, tmp_path, seed):
    mesh = draw_mesh(seed)
    model, dims = make_model(seed, mesh, tmp_path / "model.onnx")
    plan = tmp_path / "model.plan"
    options = [option for name, size in dims.items() for option in ("--dim", f"{name}={size}")]
    if "pipe" in mesh and seed % 2:
        options += ["--microbatches", "2"]
    tools.compile(model, plan, "--mesh", mesh, *options, "--target", "cuda:sm_90")
    ranks = count_ranks(mesh)
    faults = ["--every"] if EXHAUSTIVE or ranks <= SMALL else ["--faults", "4" if ranks <= 16 else "2"]
    command = [str(tools.path("nccl-faults")), str(plan), *faults, "--seed", str(seed + 1)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert result.returncode == 0, f"{mesh}: {result.stdout}{result.stderr}"
    print(f"{mesh}: {result.stdout.strip()}")
    found = re.match(r"ranks (\d+) communicators (\d+) calls (\d+)\nfaults (\d+) of (\d+) calls", result.stdout)
    assert found, result.stdout
    assert int(found[1]) == ranks
    assert int(found[4]) == int(found[5]) if "--every" in faults else int(found[4]) > 0
