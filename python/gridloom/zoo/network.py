"""Parts that the zoo's networks share: parameters from a generator, dense layers, norms, attention heads."""

from __future__ import annotations

import onnx

from .graph import ExternalFile, GraphBuilder, layer_norm
from .weights import Weights


class Network:
    """A graph under construction with its weights. Parameters have PyTorch's names; matrices are stored as [in, out], and drawn so that
    signals neither vanish nor explode."""

    def __init__(self, name: str, opset: int, weights: Weights, store: ExternalFile | None, dropout: float = 0.0):
        self.g = GraphBuilder(name, opset, store)
        self.weights = weights
        self.dropout = dropout  # a ratio; 0 leaves Dropout out

    def parameter(self, name: str, *shape: int, scale: float | None = None, mean: float = 0.0) -> str:
        return self.g.weight(name, self.weights.get(name, shape, scale=scale, mean=mean))

    def dense(self, x: str, name: str, inputs: int, outputs: int, bias: bool = True) -> str:
        g = self.g
        with g.scope(name.rsplit(".", 1)[-1]):
            y = g.op("MatMul", x, self.parameter(f"{name}.weight", inputs, outputs, scale=inputs**-0.5))
            return g.op("Add", y, self.parameter(f"{name}.bias", outputs)) if bias else y

    def layer_norm(self, x: str, name: str, size: int, epsilon: float = 1e-5) -> str:
        g = self.g
        weight, bias = self.parameter(f"{name}.weight", size, scale=0.1, mean=1.0), self.parameter(f"{name}.bias", size)
        with g.scope(name.rsplit(".", 1)[-1]):
            return layer_norm(g, x, weight, bias, epsilon, fused=g.opset >= 17)

    def drop(self, x: str) -> str:
        """Dropout in training mode, if the network has a ratio."""
        if not self.dropout:
            return x
        return self.g.op("Dropout", x, self.g.constant(self.dropout), self.g.constant(True, bool))

    def heads(self, x: str, heads: int, size: int) -> str:
        """[batch, sequence, heads * size] to [batch, heads, sequence, size]."""
        g = self.g
        return g.op("Transpose", g.reshape(x, g.dim(x, 0), g.dim(x, 1), heads, size), perm=[0, 2, 1, 3])

    def attend(self, query: str, key: str, value: str, size: int, kept: str | None) -> str:
        """Attention of [batch, heads, sequence, size], merged again to [batch, sequence, heads * size]. `kept` is true where a query may
        attend, and broadcasts to [batch, heads, queries, keys]."""
        g = self.g
        scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = g.op("Div", scores, g.constant(size**0.5))
        if kept:
            scores = g.op("Where", kept, scores, g.constant(-3.4028235e38))
        context = g.op("MatMul", self.drop(g.op("Softmax", scores, axis=-1)), value)
        context = g.op("Transpose", context, perm=[0, 2, 1, 3])
        return g.reshape(context, g.dim(context, 0), g.dim(context, 1), -1)

    def positions(self, x: str, begin: str | None) -> str:
        """begin, begin + 1, ... for each of x's positions along dimension 1: int64 [sequence]. `begin` is int64 [1]."""
        g = self.g
        count = g.op("Range", g.constant(0, int), g.dim(x, 1), g.constant(1, int))
        return g.op("Add", count, begin) if begin else count

    def causal(self, queries: str, keys: str) -> str:
        """True where a key is not after the query: [queries, keys]."""
        g = self.g
        return g.op("LessOrEqual", g.unsqueeze(keys, 0), g.unsqueeze(queries, 1))

    def build(self) -> onnx.ModelProto:
        return self.g.build()


class Cache:
    """Keys and values of earlier positions. `form` is "" (none), "concat" (past_* grow by concatenation, as exporters write it) or
    "static" (buffers of `capacity` positions; new ones are written from `position` on, or from the first of `positions`, [batch,
    sequence], if given)."""

    def __init__(
        self, network: Network, form: str, layers: int, heads: int, size: int, capacity: int, positions: str | None = None
    ):
        if form not in ("", "concat", "static"):
            raise ValueError(f"cache form {form!r} is not one of '', concat, static")
        self.network, self.g, self.form = network, network.g, form
        self.shape = ["batch", heads, capacity if form == "static" else "past", size]
        self.result = ["batch", heads, capacity if form == "static" else "total", size]
        float_type = onnx.TensorProto.FLOAT
        self.past: list[list[str]] = []
        self.begin: str | None = None
        for layer in range(layers if form else 0):
            names = [f"past_{kind}_{layer}" for kind in ("key", "value")]
            self.past.append([self.g.input(name, float_type, self.shape) for name in names])
        if form == "concat":
            self.begin = self.g.unsqueeze(self.g.dim(self.past[0][0], 2), 0)
        elif form == "static" and positions:
            first = self.g.op("Slice", positions, *(self.g.constant([n, n], int) for n in (0, 1)))
            self.begin = self.g.reshape(first, 1)
        elif form == "static":
            self.begin = self.g.input("position", onnx.TensorProto.INT64, [1])
        self._present: list[tuple[str, str]] = []

    def extend(self, layer: int, key: str, value: str) -> tuple[str, str]:
        """All keys and values so far, of [batch, heads, positions, size]."""
        if not self.form:
            return key, value
        parts = []
        for kind, past, new in zip(("key", "value"), self.past[layer], (key, value)):
            joined = self.g.op("Concat", past, new, axis=2) if self.form == "concat" else self._write(past, new)
            # The graph output is a separate Identity, so that attention keeps its name.
            self._present.append((f"present_{kind}_{layer}", self.g.op("Identity", joined)))
            parts.append(joined)
        return parts[0], parts[1]

    def _write(self, past: str, new: str) -> str:
        g = self.g
        count = g.dim(new, 2)
        slots = g.op("Range", g.constant(0, int), g.dim(past, 2), g.constant(1, int))
        source = g.op("Sub", slots, self.begin)  # the new position that belongs into each slot
        fresh = g.op("And", g.op("GreaterOrEqual", source, g.constant(0, int)), g.op("Less", source, count))
        last = g.op("Sub", count, g.constant(1, int))
        source = g.op("Min", g.op("Max", source, g.constant(0, int)), last)
        return g.op("Where", g.unsqueeze(fresh, 1), g.op("Gather", new, source, axis=2), past)

    def key_positions(self, key: str) -> str:
        """0, 1, ... for all cached and new keys: int64 [positions]."""
        g = self.g
        return g.op("Range", g.constant(0, int), g.dim(key, 2), g.constant(1, int))

    def finish(self) -> None:
        """Declares the graph outputs present_*."""
        for name, value in self._present:
            self.g.output(name, value, onnx.TensorProto.FLOAT, self.result)
