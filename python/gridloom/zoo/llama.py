"""Llama-style decoders: RMS norm, rotary positions, grouped queries, SwiGLU, and optionally a mixture of experts."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx

from .graph import FLOAT, INT64, ExternalFile
from .network import Cache, Network
from .weights import Weights


@dataclasses.dataclass(frozen=True)
class LlamaConfig:
    """The sizes of Llama-3-8B, except the number of layers. With `experts` each MLP has that many, of which every token uses `chosen`.
    `dispatch` is "dense" (each expert computes all tokens) or "capacity" (each computes at most `capacity` times its even share; later
    choices, then later tokens, are dropped). `head` "hidden" leaves out embedding and logits: `hidden_states` in and out."""

    layers: int = 1
    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    intermediate: int = 14336
    vocabulary: int = 128256
    positions: int = 2048
    theta: float = 500000.0
    epsilon: float = 1e-5
    experts: int = 0
    chosen: int = 2
    dispatch: str = "dense"
    capacity: float = 1.25
    head: str = "logits"
    cache: str = ""
    opset: int = 17

    def __post_init__(self):
        if self.hidden % self.heads or (self.hidden // self.heads) % 2:
            raise ValueError(f"hidden size {self.hidden} is not an even multiple of {self.heads} heads")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads are not a multiple of {self.kv_heads} key-value heads")
        if self.head not in ("logits", "hidden"):
            raise ValueError(f"head {self.head!r} is not one of logits, hidden")
        if self.head == "hidden" and self.vocabulary != type(self).vocabulary:
            raise ValueError(f"vocabulary {self.vocabulary} has no use without embedding and logits: choose head logits")
        if self.experts and not 0 < self.chosen <= self.experts:
            raise ValueError(f"{self.chosen} experts cannot be chosen among {self.experts}")
        if self.dispatch not in ("dense", "capacity"):
            raise ValueError(f"dispatch {self.dispatch!r} is not one of dense, capacity")
        if self.dispatch == "capacity" and not self.experts:
            raise ValueError("dispatch 'capacity' needs experts: choose --experts 8")
        if not 0 < self.capacity < 1e6:
            raise ValueError(f"capacity {self.capacity} is not above 0 and below a million")


class _Llama(Network):
    def __init__(self, config: LlamaConfig, weights: Weights, name: str, store: ExternalFile | None):
        super().__init__(name, config.opset, weights, store)
        self.config = config
        self.size = config.hidden // config.heads

    def rms_norm(self, x: str, name: str) -> str:
        g, c = self.g, self.config
        with g.scope(name.rsplit(".", 1)[-1]):
            square = g.op("Pow", x, g.constant(2.0))
            mean = g.axes_op("ReduceMean", square, [-1], since=18, keepdims=1)
            root = g.op("Sqrt", g.op("Add", mean, g.constant(c.epsilon)))
            scaled = g.op("Mul", x, g.op("Div", g.constant(1.0), root))
            return g.op("Mul", self.parameter(f"{name}.weight", c.hidden, scale=0.1, mean=1.0), scaled)

    def rotations(self, positions: str) -> tuple[str, str]:
        """Cosine and sine per position and component: [sequence, size]."""
        g, size = self.g, self.size
        frequencies = (self.config.theta ** (-np.arange(0, size, 2, dtype=np.float64) / size)).astype(np.float32)
        angles = g.op("Mul", g.unsqueeze(g.op("Cast", positions, to=FLOAT), 1), g.weight("inv_freq", frequencies[None]))
        angles = g.op("Concat", angles, angles, axis=-1)
        return g.op("Cos", angles), g.op("Sin", angles)

    def rotate(self, x: str, rotations: tuple[str, str]) -> str:
        g, half = self.g, self.size // 2

        def part(begin: int, end: int) -> str:
            return g.op("Slice", x, *(g.constant([n], int) for n in (begin, end, 3)))

        turned = g.op("Concat", g.op("Neg", part(half, self.size)), part(0, half), axis=-1)
        return g.op("Add", g.op("Mul", x, rotations[0]), g.op("Mul", turned, rotations[1]))

    def repeat(self, x: str) -> str:
        """Repeats each key-value head once for every query head of its group."""
        g, c = self.g, self.config
        groups = c.heads // c.kv_heads
        if groups == 1:
            return x
        batch, length = g.unsqueeze(g.dim(x, 0), 0), g.unsqueeze(g.dim(x, 2), 0)
        numbers = [g.constant([n], int) for n in (c.kv_heads, groups, self.size)]
        wide = g.op("Expand", g.unsqueeze(x, 2), g.op("Concat", batch, *numbers[:2], length, numbers[2], axis=0))
        return g.reshape(wide, g.dim(x, 0), c.heads, g.dim(x, 2), self.size)

    def gated(self, x: str, prefix: str) -> str:
        g, c = self.g, self.config
        gate = self.dense(x, f"{prefix}.gate_proj", c.hidden, c.intermediate, bias=False)
        up = self.dense(x, f"{prefix}.up_proj", c.hidden, c.intermediate, bias=False)
        y = g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), up)
        return self.dense(y, f"{prefix}.down_proj", c.intermediate, c.hidden, bias=False)

    def experts(self, x: str, prefix: str) -> str:
        """Each expert's MLP on its own rows: [1 or experts, rows, hidden] to [experts, rows, hidden]."""
        g, c = self.g, self.config

        def dense(y: str, name: str, inputs: int, outputs: int) -> str:
            matrix = self.parameter(f"{prefix}.experts.{name}.weight", c.experts, inputs, outputs, scale=inputs**-0.5)
            return g.op("MatMul", y, matrix)

        gate, up = (dense(x, name, c.hidden, c.intermediate) for name in ("gate_proj", "up_proj"))
        y = g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), up)
        return dense(y, "down_proj", c.intermediate, c.hidden)

    def mixture(self, x: str, prefix: str) -> str:
        g, c = self.g, self.config
        tokens = g.reshape(x, -1, c.hidden)
        scores = g.op("Softmax", self.dense(tokens, f"{prefix}.gate", c.hidden, c.experts, bias=False), axis=-1)
        best, which = g.ops("TopK", scores, g.constant([c.chosen], int), outputs=2, axis=-1)
        best = g.op("Div", best, g.axes_op("ReduceSum", best, [-1], since=13, keepdims=1))
        mix = self.mix_some if c.dispatch == "capacity" else self.mix_all
        return g.reshape(mix(tokens, best, which, prefix), g.dim(x, 0), g.dim(x, 1), c.hidden)

    def mix_all(self, tokens: str, best: str, which: str, prefix: str) -> str:
        """Every expert computes every token; experts that the router did not choose get weight zero."""
        g, c = self.g, self.config
        hot = g.op("OneHot", which, g.constant([c.experts], int), g.constant([0.0, 1.0]), axis=-1)
        shares = g.axes_op("ReduceSum", g.op("Mul", hot, g.unsqueeze(best, 2)), [1], since=13, keepdims=0)
        y = self.experts(g.unsqueeze(tokens, 0), prefix)  # [experts, tokens, hidden]
        y = g.op("Mul", y, g.unsqueeze(g.op("Transpose", shares, perm=[1, 0]), 2))
        return g.axes_op("ReduceSum", y, [0], since=13, keepdims=0)

    def mix_some(self, tokens: str, best: str, which: str, prefix: str) -> str:
        """Each expert computes the tokens sent to it, up to its capacity (GShard, arXiv 2006.16668, section 2.2). All first choices come
        before all second choices: choices are in the order [chosen, tokens]."""
        g, c = self.g, self.config
        count = g.dim(tokens, 0)
        expert = g.reshape(g.op("Transpose", which, perm=[1, 0]), -1)
        share = g.reshape(g.op("Transpose", best, perm=[1, 0]), -1, 1)
        even = g.op("Mul", g.op("Cast", count, to=FLOAT), g.constant(c.capacity * c.chosen / c.experts))
        capacity = g.op("Cast", g.op("Ceil", even), to=INT64)
        # The number of earlier choices of the same expert.
        hot = g.op("OneHot", expert, g.constant([c.experts], int), g.constant([0, 1], int), axis=-1)
        before = g.op("CumSum", hot, g.constant(0, int), exclusive=1)
        place = g.axes_op("ReduceSum", g.op("Mul", hot, before), [-1], since=13, keepdims=0)
        fits = g.op("Less", place, capacity)
        # Choices that do not fit go to an extra last row.
        rows = g.op("Mul", g.constant(c.experts, int), capacity)
        row = g.op("Where", fits, g.op("Add", g.op("Mul", expert, capacity), place), rows)
        height = g.unsqueeze(g.op("Add", rows, g.constant(1, int)), 0)
        empty = g.op("Expand", g.constant(0.0), g.op("Concat", height, g.constant([c.hidden], int), axis=0))
        sent = g.op("ScatterND", empty, g.unsqueeze(row, 1), g.op("Concat", *[tokens] * c.chosen, axis=0))
        sent = g.op("Slice", sent, g.constant([0], int), g.unsqueeze(rows, 0), g.constant([0], int))
        y = self.experts(g.reshape(sent, c.experts, capacity, c.hidden), prefix)
        y = g.op("Gather", g.reshape(y, -1, c.hidden), g.op("Min", row, g.op("Sub", rows, g.constant(1, int))), axis=0)
        y = g.op("Mul", y, g.op("Mul", share, g.op("Cast", g.unsqueeze(fits, 1), to=FLOAT)))
        return g.axes_op("ReduceSum", g.reshape(y, c.chosen, count, c.hidden), [0], since=13, keepdims=0)

    def layer(self, x: str, number: int, cache: Cache, rotations: tuple[str, str], queries: str) -> str:
        g, c, size = self.g, self.config, self.size
        prefix = f"layers.{number}"
        with g.scope(prefix):
            y = self.rms_norm(x, f"{prefix}.input_layernorm")
            with g.scope("self_attn"):
                query, key, value = (
                    self.heads(self.dense(y, f"{prefix}.self_attn.{n}", c.hidden, h * size, bias=False), h, size)
                    for n, h in (("q_proj", c.heads), ("k_proj", c.kv_heads), ("v_proj", c.kv_heads))
                )
                key, value = cache.extend(number, self.rotate(key, rotations), value)
                kept = self.causal(queries, cache.key_positions(key))
                y = self.attend(self.rotate(query, rotations), self.repeat(key), self.repeat(value), size, kept)
                y = self.dense(y, f"{prefix}.self_attn.o_proj", c.hidden, c.hidden, bias=False)
            x = g.op("Add", x, y)
            y = self.rms_norm(x, f"{prefix}.post_attention_layernorm")
            with g.scope("mlp"):
                y = self.mixture(y, f"{prefix}.mlp") if c.experts else self.gated(y, f"{prefix}.mlp")
            return g.op("Add", x, y)


def llama(
    config: LlamaConfig, weights: Weights, name: str = "llama", store: ExternalFile | None = None
) -> onnx.ModelProto:
    """`input_ids` int64 [batch, sequence] to `logits` float32 [batch, sequence, vocabulary], or `hidden_states` to
    `output` float32 [batch, sequence, hidden]; a cache adds what gpt2's does, with key-value heads."""
    c, net = config, _Llama(config, weights, name, store)
    g = net.g
    if c.head == "logits":
        ids = g.input("input_ids", INT64, ["batch", "sequence"])
        x = g.op("Gather", net.parameter("embed_tokens.weight", c.vocabulary, c.hidden, scale=1.0), ids)
    else:
        ids = x = g.input("hidden_states", FLOAT, ["batch", "sequence", c.hidden])
    cache = Cache(net, c.cache, c.layers, c.kv_heads, net.size, c.positions)
    queries = net.positions(ids, cache.begin)
    rotations = net.rotations(queries)
    for number in range(c.layers):
        x = net.layer(x, number, cache, rotations, queries)
    if c.head == "logits":
        x = net.dense(net.rms_norm(x, "norm"), "lm_head", c.hidden, c.vocabulary, bias=False)
        g.output("logits", x, FLOAT, ["batch", "sequence", c.vocabulary])
    else:
        g.output("output", x, FLOAT, ["batch", "sequence", c.hidden])
    cache.finish()
    return net.build()
