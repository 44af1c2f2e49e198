"""gridloom check of steps by optimizers that divide a gradient by its own size: a gradient that is only rounding may move a weight
either way, and all else is compared."""

from __future__ import annotations

import re
import shutil

import gridloom
import numpy as np
import pytest
from training_models import Mlp

from gridloom import zoo

EXCUSE = re.compile(r"call (\d): (\S+).* output '(\S+)' .*; (\d+) of (\d+) elements differ by no more than rounding of their gradients")


def save_gpt(path):
    sizes = {"layers": 1, "hidden": 32, "heads": 4, "vocabulary": 40, "positions": 16}
    return zoo.save(zoo.gpt2(zoo.Gpt2Config(**sizes), zoo.Random(0)), path)


@pytest.mark.parametrize(
    ("mesh", "optimizer"),
    [
        ("model=2", "adamw(lr=1e-2)"),
        pytest.param("data=2", "adam(lr=1e-2, ema=0.9)", marks=pytest.mark.full),
        pytest.param("data=2,model=2", "lamb(lr=1e-2)", marks=pytest.mark.full),
        pytest.param("model=2", "lion(lr=1e-2)", marks=pytest.mark.full),
        pytest.param("data=2", "rmsprop(lr=1e-3)", marks=pytest.mark.full),
        pytest.param("model=4", "adafactor(lr=1e-2, min_factored=5)", marks=pytest.mark.full),
    ],
)
def test_keys_biases_may_move_either_way(tools, tmp_path, mesh, optimizer):
    """Attention's probabilities do not depend on the keys' biases: their gradient is the rounding of a zero sum."""
    options = {"train": True, "loss": "cross_entropy(logits, labels)", "optimizer": optimizer, "dims": {"batch": 4, "sequence": 6}}
    plan = gridloom.compile(save_gpt(tmp_path / "m.onnx"), tmp_path / "m.plan", mesh=mesh, tools=tools.folder, **options)
    text = tools.call("check", plan.path, "--exact", "--input", "labels=randint(0,40)").stdout
    assert "PASS" in text and "an error of 1e-06 of a step's largest gradient is allowed in each gradient" in text
    excused = [(name, int(count), int(total)) for _, program, name, count, total in EXCUSE.findall(text)]
    if optimizer.startswith("adamw"):
        biases = [each for each in excused if each[0] == "h.0.attn.c_attn.bias"]
        assert biases and all(0 < count <= 32 for _, count, _ in biases), excused
    assert all(count <= total / 2 for _, count, total in excused), excused
    # With tolerances of 0 there are no exceptions.
    result = tools.call("check", plan.path, "--rtol", 0, "--atol", 0, "--input", "labels=randint(0,40)", check=False)
    assert result.returncode == 1 and not EXCUSE.search(result.stdout)


@pytest.fixture(scope="module")
def adam_plan(tools, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adam")
    random = np.random.default_rng(4)
    path = Mlp(lambda *shape: (random.standard_normal(shape) / 3).astype(np.float32)).save(folder / "m.onnx")
    options = {"train": True, "loss": "cross_entropy(y, labels)", "optimizer": "adamw(lr=1e-2)", "dims": {"batch": 8}}
    return gridloom.compile(path, folder / "m.plan", mesh="data=2", tools=tools.folder, **options).path


def check(tools, plan, *options):
    return tools.call("check", plan, "--no-run", "--model", plan.parent / "m.onnx", "--input", "labels=randint(0,5)", *options, check=False)


MUTANTS = {
    "climbs": (r"loom\.subtract( %w1\.update(?:_\d+)?, %w1\.update_\d+ : tensor<10x14xf32> loc\(#loc\d+\)\n +%w1_\d+ = loom\.select)", r"loom.add\1"),
    "forgets faster": ("dense<1.000000e-03> : tensor<10x14xf32>", "dense<2.000000e-03> : tensor<10x14xf32>"),
    "has a shorter memory": ("dense<1.000000e-01> : tensor<10x14xf32>", "dense<1.500000e-01> : tensor<10x14xf32>"),
    "has a large epsilon": ("dense<9.99999993E-9> : tensor<10x14xf32>", "dense<1.000000e-04> : tensor<10x14xf32>"),
    "corrects no bias": (r"loom\.divide( %w1\.update_\d+, %train\.step_\d+)", r"loom.multiply\1"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_wrong_updates_are_found(tools, adam_plan, tmp_path, mutant):
    """A fault is planted in the last program's update of one weight, 10 x 14."""
    assert check(tools, adam_plan).returncode == 0
    plan = tmp_path / "m.plan"
    shutil.copytree(adam_plan, plan)
    shutil.copy(adam_plan.parent / "m.onnx", tmp_path)
    program = plan / "ir" / "07-fuse.mlir"
    text, count = re.subn(*MUTANTS[mutant], program.read_text())
    assert count == 1, count
    program.write_text(text)
    result = check(tools, plan)
    assert result.returncode == 1 and re.search(r"output 'w1\S*' .*<-- DIFFERS", result.stdout), result.stdout
