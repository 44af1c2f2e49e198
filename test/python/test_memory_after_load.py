"""Resident memory of a loaded session."""

from __future__ import annotations

import json
import subprocess
import sys

import gridloom
from gridloom import zoo

# Prints by how much a load and each run increase resident memory.
PROGRAM = """
import gc, json, sys
import numpy as np
import gridloom

def resident():
    gc.collect()
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmRSS"))

x = np.ones((4, 2048), np.float32)
before = resident()
session = gridloom.load(sys.argv[1], threads=1)
found = [resident() - before]
for _ in range(3):
    session.run({"x": x})
    found.append(resident() - before)
print(json.dumps(found))
"""


def test_weights_that_are_copied_are_resident_once(tools, tmp_path):
    """Rows of 2048 elements are padded, so all weights are copied; the file's pages must be released."""
    model = zoo.save(zoo.mlp([2048, 2048, 2048, 2048, 2048], zoo.Random(0)), tmp_path / "mlp.onnx")
    plan = gridloom.compile(model, dims={"batch": 4}, tools=tools.folder)
    weights = 4 * 2048 * 2048 * 4
    result = subprocess.run([sys.executable, "-c", PROGRAM, str(plan.path)], capture_output=True, text=True, check=True, timeout=300)
    for resident in json.loads(result.stdout):
        assert 0.9 * weights < resident < 1.4 * weights
