"""A multi-layer perceptron: the smallest model that can be sharded."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from .graph import FLOAT, GraphBuilder, gelu, linear
from .weights import Weights


def mlp(sizes: Sequence[int], weights: Weights, activation: str = "relu", opset: int = 17) -> onnx.ModelProto:
    """`x` [batch, sizes[0]] float32 through dense layers to `y` [batch, sizes[-1]]; `activation` (relu,
    tanh, sigmoid or gelu) between them."""
    simple = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}
    if activation not in (*simple, "gelu"):
        raise ValueError(f"activation {activation!r} is not one of {', '.join([*simple, 'gelu'])}")
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(f"sizes {list(sizes)} do not name at least two positive widths")
    g = GraphBuilder("mlp", opset)
    x = g.input("x", FLOAT, ["batch", sizes[0]])
    for number, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
        with g.scope(f"layer.{number}"):
            name = f"layer.{number}"
            matrix = g.weight(f"{name}.weight", weights.get(f"{name}.weight", (outputs, inputs)).T)
            bias = g.weight(f"{name}.bias", weights.get(f"{name}.bias", (outputs,)))
            x = linear(g, x, matrix, bias)
            if number < len(sizes) - 2:
                x = gelu(g, x, "erf") if activation == "gelu" else g.op(simple[activation], x)
    g.output("y", x, FLOAT, ["batch", sizes[-1]])
    return g.build()
