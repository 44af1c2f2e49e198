"""Random inputs for a model, and sizes at which the zoo's architectures are small."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

_DECODER = {"layers": 2, "hidden": 32, "heads": 4, "vocabulary": 50, "positions": 16}
_LLAMA = {**_DECODER, "kv_heads": 2, "intermediate": 64, "head": "logits"}

# Name to (model of MODELS, options): every architecture and form, each a few thousand parameters. The vocabulary is 50.
SMALL = {
    "gpt2": ("gpt2", _DECODER),
    "gpt2-concat": ("gpt2", {**_DECODER, "cache": "concat"}),
    "gpt2-static": ("gpt2", {**_DECODER, "cache": "static"}),
    "llama": ("llama", _LLAMA),
    "llama-static": ("llama", {**_LLAMA, "cache": "static"}),
    "moe": ("moe", {**_LLAMA, "experts": 4}),
    "moe-capacity": ("moe", {**_LLAMA, "experts": 4, "dispatch": "capacity"}),
    "vit": ("vit", {"layers": 2, "hidden": 32, "heads": 4, "intermediate": 64, "image": 32, "patch": 8, "classes": 10}),
    "resnet": ("resnet", {"blocks": (1, 2), "width": 8, "image": 32, "classes": 10}),
    "unet": ("unet", {"depth": 2, "width": 4, "image": 16}),
    "lstm": ("lstm", {"layers": 2, "hidden": 16, "vocabulary": 50}),
    "lstm-both": ("lstm", {"layers": 1, "hidden": 16, "vocabulary": 50, "bidirectional": True}),
}


def random_inputs(
    graph: onnx.GraphProto, dims: Mapping[str, int], vocabulary: int, seed: int = 0
) -> dict[str, np.ndarray]:
    """Arrays for the inputs of `graph`: normal floats, and integers below `vocabulary`; `dims` gives the sizes of
    named dimensions. A static cache is taken to hold three positions."""
    rng, inputs = np.random.default_rng(seed), {}
    initialised = {tensor.name for tensor in graph.initializer}
    for declared in graph.input:
        if declared.name in initialised:
            continue
        kind = declared.type.tensor_type
        shape = [dims[d.dim_param] if d.dim_param else d.dim_value for d in kind.shape.dim]
        if declared.name == "position":
            inputs[declared.name] = np.array([3])
        elif kind.elem_type == onnx.TensorProto.INT64:
            inputs[declared.name] = rng.integers(0, vocabulary, shape)
        else:
            inputs[declared.name] = rng.standard_normal(shape, dtype=np.float32)
    return inputs
