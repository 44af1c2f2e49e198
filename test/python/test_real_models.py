"""Trained models as users have them: equal to ONNX Runtime on every mesh, and right about real inputs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from conftest import onnxruntime_session
from real_models import MODELS

from gridloom import backend

MESHES = ["", "data=4", "model=4", "data=2,model=2", "pipe=2"]
TOLERANCE = 2e-4  # of the largest value of an output


@pytest.fixture(scope="module")
def reference():
    found = {}

    def get(name):
        if name not in found:
            inputs = MODELS[name].inputs()
            found[name] = inputs, onnxruntime_session(MODELS[name].path()).run(None, inputs)
        return found[name]

    return get


@pytest.mark.parametrize("name", MODELS)
def test_reference_makes_sense(reference, name):
    MODELS[name].check(reference(name)[1])


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: mesh or "one")
@pytest.mark.parametrize("name", MODELS)
def test_equals_onnxruntime(reference, name, mesh):
    inputs, expected = reference(name)
    program = backend.prepare(onnx.load(str(MODELS[name].path())), mesh=mesh, threads=0)
    outputs = program.run(inputs)
    for actual, want in zip(outputs, expected, strict=True):
        assert actual.shape == want.shape and actual.dtype == want.dtype
        np.testing.assert_allclose(actual, want, rtol=0, atol=TOLERANCE * max(1e-3, np.abs(want).max()))
    MODELS[name].check(outputs)
    program.close()
