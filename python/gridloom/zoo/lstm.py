"""A language model of stacked LSTMs."""

from __future__ import annotations

import onnx

from .graph import FLOAT, INT64, ExternalFile
from .network import Network
from .weights import Weights


def lstm(
    weights: Weights, layers: int = 2, hidden: int = 512, vocabulary: int = 10000, bidirectional: bool = False,
    opset: int = 17, name: str = "lstm", store: ExternalFile | None = None,
) -> onnx.ModelProto:  # fmt: skip
    """`input_ids` int64 [sequence, batch] to `logits` float32 [sequence, batch, vocabulary]."""
    net = Network(name, opset, weights, store)
    g, directions = net.g, 1 + bidirectional
    ids = g.input("input_ids", INT64, ["sequence", "batch"])
    x = g.op("Gather", net.parameter("encoder.weight", vocabulary, hidden, scale=1.0), ids)
    inputs = hidden
    for layer in range(layers):
        operands = [
            net.parameter(f"rnn.weight_ih_l{layer}", directions, 4 * hidden, inputs, scale=inputs**-0.5),
            net.parameter(f"rnn.weight_hh_l{layer}", directions, 4 * hidden, hidden, scale=hidden**-0.5),
            net.parameter(f"rnn.bias_l{layer}", directions, 8 * hidden),
        ]
        with g.scope("rnn"):
            direction = "bidirectional" if bidirectional else "forward"
            y = g.op("LSTM", x, *operands, hidden_size=hidden, direction=direction)
            y = g.op("Transpose", y, perm=[0, 2, 1, 3])  # [sequence, batch, directions, hidden]
            x = g.reshape(y, g.dim(y, 0), g.dim(y, 1), -1)
        inputs = directions * hidden
    logits = net.dense(x, "decoder", inputs, vocabulary)
    g.output("logits", logits, FLOAT, ["sequence", "batch", vocabulary])
    return net.build()
