"""Trained models as users have them: equal to ONNX Runtime on every mesh, and with sensible results for real inputs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from conftest import onnxruntime_session
from real_models import MODELS

from gridloom import backend

MESHES = ["", "data=4", "model=4", "data=2,model=2", "pipe=2"]
# Runs without --full.
QUICK = {
    ("ocr-detector", "data=2,model=2"), ("ocr-recogniser", "model=4"), ("file-types", ""), ("file-types", "pipe=2"),
    ("notes", "data=4"), ("voice", "pipe=2"), ("voice", "data=2,model=2"),
}  # fmt: skip
CASES = [
    pytest.param(name, mesh, id=f"{name}-{mesh or 'one'}", marks=[] if (name, mesh) in QUICK else pytest.mark.full)
    for name in MODELS
    for mesh in MESHES
]
# Relative to an output's largest value; or three times the difference between ONNX Runtime with and without optimisations, if that is
# larger: the note model takes logarithms of values near zero.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def reference():
    found = {}

    def get(name):
        if name not in found:
            inputs, path = MODELS[name].inputs(), MODELS[name].path()
            expected = onnxruntime_session(path).run(None, inputs)
            plain = onnxruntime_session(path, optimised=False).run(None, inputs)
            spread = [np.abs(a - b).max() for a, b in zip(expected, plain)]
            found[name] = inputs, expected, spread
        return found[name]

    return get


@pytest.mark.parametrize("name", MODELS)
def test_reference_makes_sense(reference, name):
    MODELS[name].check(reference(name)[1])


@pytest.mark.parametrize("name,mesh", CASES)
def test_equals_onnxruntime(reference, name, mesh):
    inputs, expected, spread = reference(name)
    # No strategy splits the classifier, which has no pair of layers: its last layer is split by hand.
    by_hand = {"jax2tf_get_logits_/Const_24:0": "[{model},{}]"} if name == "file-types" and "model" in mesh else None
    program = backend.prepare(onnx.load(str(MODELS[name].path())), mesh=mesh, shard=by_hand, threads=0)
    outputs = program.run(inputs)
    for actual, want, own in zip(outputs, expected, spread, strict=True):
        assert actual.shape == want.shape and actual.dtype == want.dtype
        np.testing.assert_allclose(actual, want, rtol=0, atol=max(TOLERANCE * np.abs(want).max(), 3 * own))
    MODELS[name].check(outputs)
    program.close()
