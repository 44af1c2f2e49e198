"""A small GPT as ONNX, written node by node, for training on characters."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


@dataclasses.dataclass
class Gpt:
    """Norms come first in each block; the last layer shares the embedding table. Each n of `grams` adds a table of `rows` rows, indexed
    by a hash of the last n symbols, so that few layers and steps suffice (Pagnoni et al., Byte Latent Transformer, 2024, section 3.2.1)."""

    layers: int
    width: int
    heads: int
    length: int
    vocabulary: int
    grams: tuple[int, ...] = ()
    rows: int = 8191

    def save(self, path: Path, seed: int = 0) -> Path:
        """Input `tokens`, int64 [batch, length]; output `logits`, f32 [batch, length, vocabulary]. Weights are random."""
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {
            "wte": self._draw(0.02, self.vocabulary, self.width),
            "wpe": self._draw(0.02, self.length, self.width),
            # No float tensors, as those would be trained.
            "causal": np.tril(np.ones((self.length, self.length), bool)),
            "never": np.float32(-1e9),
            "scale": np.float32((self.width // self.heads) ** -0.5),
            "begin": np.array([0]),
            "axis": np.array([1]),
            "rows": np.array(self.rows),
            "split": np.array([0, self.length, self.heads, self.width // self.heads]),
            "join": np.array([0, self.length, self.width]),
        }
        x = self._op("Add", "embedded", self._op("Gather", "looked_up", "wte", "tokens"), "wpe")
        x = self._add_grams(x)
        for layer in range(self.layers):
            x = self._block(x, f"h{layer}")
        self._op("MatMul", "logits", self._norm(x, "ln"), self._op("Transpose", "wte.T", "wte", perm=[1, 0]))
        graph = helper.make_graph(
            self.nodes,
            "gpt",
            [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", self.length])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", self.length, self.vocabulary])],
            [numpy_helper.from_array(np.asarray(array), name) for name, array in self.weights.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)
        return path

    def _draw(self, deviation: float, *shape: int) -> np.ndarray:
        return (self.random.standard_normal(shape) * deviation).astype(np.float32)

    def _op(self, kind: str, name: str, *inputs: str, **attributes) -> str:
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def _norm(self, x: str, name: str) -> str:
        self.weights |= {f"{name}.weight": np.ones(self.width, np.float32), f"{name}.bias": np.zeros(self.width, np.float32)}
        return self._op("LayerNormalization", name, x, f"{name}.weight", f"{name}.bias", axis=-1, epsilon=1e-5)

    def _dense(self, x: str, name: str, inputs: int, outputs: int, share: float = 1) -> str:
        self.weights[f"{name}.weight"] = self._draw((share / inputs) ** 0.5, inputs, outputs)
        self.weights[f"{name}.bias"] = np.zeros(outputs, np.float32)
        return self._op("Add", name, self._op("MatMul", f"{name}.product", x, f"{name}.weight"), f"{name}.bias")

    def _add_grams(self, x: str) -> str:
        """Adds a table row for each hash: the last symbols as digits of a number, modulo `rows`."""
        code = "tokens"
        for n in range(2, max(self.grams, default=1) + 1):
            self.weights |= {f"past{n}.end": np.array([1 - n]), f"past{n}.pads": np.array([0, n - 1, 0, 0])}
            self.weights[f"past{n}.digit"] = np.array(self.vocabulary ** (n - 1))
            past = self._op("Slice", f"past{n}.cut", "tokens", "begin", f"past{n}.end", "axis")
            past = self._op("Mul", f"past{n}.code", self._op("Pad", f"past{n}", past, f"past{n}.pads"), f"past{n}.digit")
            code = self._op("Add", f"code{n}", code, past)
            if n in self.grams:
                self.weights[f"grams{n}.weight"] = self._draw(0.02, self.rows, self.width)
                looked_up = self._op("Gather", f"grams{n}", f"grams{n}.weight", self._op("Mod", f"hash{n}", code, "rows"))
                x = self._op("Add", f"embedded{n}", x, looked_up)
        return x

    def _block(self, x: str, name: str) -> str:
        width, share = self.width, 1 / (2 * self.layers)  # scales down, so that all blocks together add about as much as one
        y = self._norm(x, f"{name}.ln1")
        heads = lambda part, perm: self._op(  # noqa: E731
            "Transpose",
            f"{name}.{part}.heads",
            self._op("Reshape", f"{name}.{part}.split", self._dense(y, f"{name}.{part}", width, width), "split"),
            perm=perm,
        )
        query, key, value = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1]), heads("value", [0, 2, 1, 3])
        scores = self._op("Mul", f"{name}.scores", self._op("MatMul", f"{name}.products", query, key), "scale")
        shares = self._op("Softmax", f"{name}.shares", self._op("Where", f"{name}.masked", "causal", scores, "never"), axis=-1)
        mixed = self._op("Transpose", f"{name}.mixed", self._op("MatMul", f"{name}.values", shares, value), perm=[0, 2, 1, 3])
        joined = self._op("Reshape", f"{name}.joined", mixed, "join")
        x = self._op("Add", f"{name}.attended", x, self._dense(joined, f"{name}.projection", width, width, share))
        wide = self._dense(self._norm(x, f"{name}.ln2"), f"{name}.up", width, 4 * width)
        wide = self._op("Gelu", f"{name}.gelu", wide, approximate="tanh")
        return self._op("Add", f"{name}.out", x, self._dense(wide, f"{name}.down", 4 * width, width, share))
