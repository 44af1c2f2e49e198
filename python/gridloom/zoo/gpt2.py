"""GPT-2: a decoder with learned positions, with or without a cache of keys and values."""

from __future__ import annotations

import dataclasses

import onnx

from .graph import BOOL, FLOAT, INT64, ExternalFile, gelu
from .network import Cache, Network
from .weights import Weights


@dataclasses.dataclass(frozen=True)
class Gpt2Config:
    """GPT-2 small by default. `cache` is "", "concat" or "static" (see network.Cache). With `mask`, positions and attention mask are
    inputs, as transformers exports them: `position_ids` and `attention_mask`. With `dropout`, a ratio, the model is in training mode:
    Dropout of embeddings, of attention and of each block's contribution."""

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    vocabulary: int = 50257
    positions: int = 1024
    epsilon: float = 1e-5
    cache: str = ""
    mask: bool = False
    dropout: float = 0.0
    opset: int = 17

    def __post_init__(self):
        if self.hidden % self.heads:
            raise ValueError(f"hidden size {self.hidden} is not a multiple of {self.heads} heads")


def gpt2(
    config: Gpt2Config, weights: Weights, name: str = "gpt2", store: ExternalFile | None = None
) -> onnx.ModelProto:
    """`input_ids` int64 [batch, sequence] to `logits` float32 [batch, sequence, vocabulary]; with a cache also past_*
    and present_* float32 [batch, heads, positions, size], and with a static one `position` int64 [1]. With `mask` there is
    no `position`, but `position_ids` int64 [batch, sequence] and `attention_mask` int64 [batch, keys]."""
    c, net = config, Network(name, config.opset, weights, store, config.dropout)
    g, size = net.g, config.hidden // config.heads
    ids = g.input("input_ids", INT64, ["batch", "sequence"])
    spelled = mask = None
    if c.mask:
        spelled = g.input("position_ids", INT64, ["batch", "sequence"])
        keys = {"": "sequence", "concat": "past + sequence", "static": c.positions}[c.cache]
        mask = g.input("attention_mask", INT64, ["batch", keys])
    cache = Cache(net, c.cache, c.layers, c.heads, size, c.positions, spelled)
    queries = net.positions(ids, cache.begin)
    table = net.parameter("wte.weight", c.vocabulary, c.hidden, scale=0.5)
    x = g.op("Gather", table, ids)
    x = g.op("Add", x, g.op("Gather", net.parameter("wpe.weight", c.positions, c.hidden, scale=0.1), spelled or queries))
    x = net.drop(x)
    kept = None
    for number in range(c.layers):
        prefix = f"h.{number}"
        with g.scope(prefix):
            y = net.layer_norm(x, f"{prefix}.ln_1", c.hidden, c.epsilon)
            with g.scope("attn"):
                joined = net.dense(y, f"{prefix}.attn.c_attn", c.hidden, 3 * c.hidden)
                sizes = g.constant([c.hidden] * 3, int)
                query, key, value = (
                    net.heads(part, c.heads, size) for part in g.ops("Split", joined, sizes, outputs=3, axis=2)
                )
                key, value = cache.extend(number, key, value)
                if not kept:
                    kept = net.causal(queries, cache.key_positions(key))
                    if mask:  # [batch, 1, 1, keys]
                        seen = g.unsqueeze(g.unsqueeze(g.op("Cast", mask, to=BOOL), 1), 1)
                        kept = g.op("And", kept, seen)
                y = net.attend(query, key, value, size, kept)
                y = net.drop(net.dense(y, f"{prefix}.attn.c_proj", c.hidden, c.hidden))
            x = g.op("Add", y, x)
            y = net.layer_norm(x, f"{prefix}.ln_2", c.hidden, c.epsilon)
            with g.scope("mlp"):
                y = gelu(g, net.dense(y, f"{prefix}.mlp.c_fc", c.hidden, 4 * c.hidden), "tanh")
                y = net.drop(net.dense(y, f"{prefix}.mlp.c_proj", 4 * c.hidden, c.hidden))
            x = g.op("Add", x, y)
    x = net.layer_norm(x, "ln_f", c.hidden, c.epsilon)
    logits = g.op("MatMul", x, g.op("Transpose", table, perm=[1, 0]))  # the embedding again
    g.output("logits", logits, FLOAT, ["batch", "sequence", c.vocabulary])
    cache.finish()
    return net.build()
