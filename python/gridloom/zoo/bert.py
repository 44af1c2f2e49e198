"""BERT encoders, optionally with the mean pooling and normalisation of sentence-transformers."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx

from .graph import FLOAT, INT64, ExternalFile, GraphBuilder, gelu, layer_norm, linear
from .weights import Weights


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Sizes of an encoder and the forms in which its graph is written."""

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    intermediate: int = 3072
    vocabulary: int = 30522
    positions: int = 512
    types: int = 2
    epsilon: float = 1e-12
    head: str = "hidden"  # "hidden": last_hidden_state; "embedding": pooled and normalised
    opset: int = 17
    layer_norm: str = "auto"  # "fused" (opset 17), "decomposed", or the exporter's choice at this opset
    gelu: str = "erf"  # "erf", "tanh" or "op" (opset 20)

    def __post_init__(self):
        if self.hidden % self.heads:
            raise ValueError(f"hidden size {self.hidden} is not a multiple of {self.heads} heads")
        if self.head not in ("hidden", "embedding"):
            raise ValueError(f"head {self.head!r} is not one of hidden, embedding")
        if self.layer_norm not in ("auto", "fused", "decomposed"):
            raise ValueError(f"layer norm form {self.layer_norm!r} is not one of auto, fused, decomposed")

    @property
    def fused_layer_norm(self) -> bool:
        return self.layer_norm == "fused" or (self.layer_norm == "auto" and self.opset >= 17)


MINILM = BertConfig(layers=6, hidden=384, heads=12, intermediate=1536, head="embedding")


class _Bert:
    """Writes one encoder. Parameters keep their PyTorch names; matrices are stored as [in, out]."""

    def __init__(self, config: BertConfig, weights: Weights, name: str, store: ExternalFile | None):
        self.config = config
        self.weights = weights
        self.g = GraphBuilder(name, config.opset, store)

    def parameter(self, name: str, *shape: int) -> str:
        return self.g.weight(name, self.weights.get(name, shape))

    def dense(self, x: str, name: str, inputs: int, outputs: int) -> str:
        with self.g.scope(name.rsplit(".", 1)[-1]):
            matrix = self.g.weight(f"{name}.weight", self.weights.get(f"{name}.weight", (outputs, inputs)).T)
            return linear(self.g, x, matrix, self.parameter(f"{name}.bias", outputs))

    def norm(self, x: str, name: str) -> str:
        hidden = self.config.hidden
        weight = self.parameter(f"{name}.weight", hidden)
        bias = self.parameter(f"{name}.bias", hidden)
        with self.g.scope("LayerNorm"):
            return layer_norm(self.g, x, weight, bias, self.config.epsilon, self.config.fused_layer_norm)

    def embeddings(self, ids: str, types: str) -> str:
        g, c = self.g, self.config
        with g.scope("embeddings"):
            table = g.weight("embeddings.position_ids", np.arange(c.positions, dtype=np.int64)[None])
            zero, one = g.constant([0], np.int64), g.constant([1], np.int64)
            positions = g.op("Slice", table, zero, g.unsqueeze(g.dim(ids, 1), 0), one, one)
            looked_up = [
                g.op("Gather", self.parameter(f"embeddings.{kind}_embeddings.weight", rows, c.hidden), index)
                for kind, rows, index in [
                    ("word", c.vocabulary, ids),
                    ("token_type", c.types, types),
                    ("position", c.positions, positions),
                ]
            ]
            x = g.op("Add", g.op("Add", looked_up[0], looked_up[1]), looked_up[2])
            return self.norm(x, "embeddings.LayerNorm")

    def additive_mask(self, mask: str) -> str:
        """0 where tokens are, the least float where padding is: [batch, 1, 1, sequence]."""
        g = self.g
        wide = g.op("Cast", g.unsqueeze(g.unsqueeze(mask, 1), 2), to=FLOAT)
        inverted = g.op("Sub", g.constant(1.0), wide)
        return g.op("Mul", inverted, g.constant(np.finfo(np.float32).min))

    def attention(self, x: str, mask: str, prefix: str) -> str:
        g, c = self.g, self.config
        size = c.hidden // c.heads

        def heads(name: str, permutation: list[int]) -> str:
            y = self.dense(x, f"{prefix}.self.{name}", c.hidden, c.hidden)
            split = g.reshape(y, g.dim(y, 0), g.dim(y, 1), c.heads, size)
            return g.op("Transpose", split, perm=permutation)

        with g.scope("attention"):
            with g.scope("self"):
                query = heads("query", [0, 2, 1, 3])
                key = heads("key", [0, 2, 3, 1])
                value = heads("value", [0, 2, 1, 3])
                scores = g.op("Div", g.op("MatMul", query, key), g.constant(size**0.5))
                probabilities = g.op("Softmax", g.op("Add", scores, mask), axis=-1)
                context = g.op("Transpose", g.op("MatMul", probabilities, value), perm=[0, 2, 1, 3])
                joined = g.reshape(context, g.dim(context, 0), g.dim(context, 1), c.hidden)
            with g.scope("output"):
                y = self.dense(joined, f"{prefix}.output.dense", c.hidden, c.hidden)
                return self.norm(g.op("Add", y, x), f"{prefix}.output.LayerNorm")

    def layer(self, x: str, mask: str, number: int) -> str:
        g, c = self.g, self.config
        prefix = f"encoder.layer.{number}"
        with g.scope("encoder", f"layer.{number}"):
            x = self.attention(x, mask, f"{prefix}.attention")
            with g.scope("intermediate"):
                y = self.dense(x, f"{prefix}.intermediate.dense", c.hidden, c.intermediate)
                y = gelu(g, y, c.gelu)
            with g.scope("output"):
                y = self.dense(y, f"{prefix}.output.dense", c.intermediate, c.hidden)
                return self.norm(g.op("Add", y, x), f"{prefix}.output.LayerNorm")

    def embedding(self, x: str, mask: str) -> str:
        """The mean over real tokens, scaled to unit length: [batch, hidden]."""
        g = self.g
        with g.scope("pooling"):
            expanded = g.op("Expand", g.unsqueeze(mask, 2), g.op("Shape", x))
            kept = g.op("Cast", expanded, to=FLOAT)
            total = g.axes_op("ReduceSum", g.op("Mul", x, kept), [1], since=13, keepdims=0)
            count = g.axes_op("ReduceSum", kept, [1], since=13, keepdims=0)
            mean = g.op("Div", total, g.op("Clip", count, g.constant(1e-9)))
        with g.scope("normalize"):
            length = g.axes_op("ReduceL2", mean, [1], since=18, keepdims=1)
            floor = g.op("Clip", length, g.constant(1e-12))
            return g.op("Div", mean, g.op("Expand", floor, g.op("Shape", mean)))

    def build(self) -> onnx.ModelProto:
        g, c = self.g, self.config
        ids, mask, types = (
            g.input(name, INT64, ["batch", "sequence"])
            for name in ("input_ids", "attention_mask", "token_type_ids")
        )
        x = self.embeddings(ids, types)
        additive = self.additive_mask(mask)
        for number in range(c.layers):
            x = self.layer(x, additive, number)
        if c.head == "embedding":
            g.output("embedding", self.embedding(x, mask), FLOAT, ["batch", c.hidden])
        else:
            g.output("last_hidden_state", x, FLOAT, ["batch", "sequence", c.hidden])
        return g.build()


def bert(config: BertConfig, weights: Weights, name: str = "bert", store: ExternalFile | None = None) -> onnx.ModelProto:
    """An encoder over int64 `input_ids`, `attention_mask` and `token_type_ids` of [batch, sequence].

    The output is float32: `last_hidden_state` [batch, sequence, hidden], or `embedding` [batch, hidden]
    with unit rows when `config.head` is "embedding". With a `store` large weights go there as they are made."""
    return _Bert(config, weights, name, store).build()
