"""Shared by the training tests: a perceptron and a small CNN as ONNX, and both in float64: values, derivatives, and how large sums of
products may get; and models in training mode."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.DOUBLE}


def load_digits() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """scikit-learn's handwritten digits, 1,797 images of 8 x 8: every fourth of each digit is for testing. `x` is f32 [samples, 1, 8, 8]
    from 0 to 1, `labels` int64. The wheel's file is read directly, because importing the package takes longer."""
    spec = importlib.util.find_spec("sklearn")
    path = Path(spec.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    x = (table[:, :-1] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = table[:, -1].astype(np.int64)
    test = np.zeros(len(labels), bool)
    for digit in range(10):
        test[np.flatnonzero(labels == digit)[::4]] = True
    return {"x": x[~test], "labels": labels[~test]}, {"x": x[test], "labels": labels[test]}

# An optimizer whose steps have one size whatever the gradients are: sums of signs are exact.
SIGNS = "lion(lr=1, beta1=0, beta2=0, weight_decay=0)"


def save_model(path: Path, nodes: list, row: list[int], classes: int, weights: dict[str, np.ndarray]) -> Path:
    """Input x [batch, *row], output y [batch, classes], in the weights' type."""
    kind = TYPES[next(iter(weights.values())).dtype]
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info("x", kind, ["batch", *row])],
        [helper.make_tensor_value_info("y", kind, ["batch", classes])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


class Sums:
    """Float64 arithmetic that records the largest possible sum of products, in steps of its factors' grid: below 2^53 every order of
    summation gives the same bits."""

    def __init__(self):
        self.most = 0.0

    def __call__(self, spec: str, *factors: np.ndarray) -> np.ndarray:
        step = np.prod([grid(factor) for factor in factors])
        self.most = max(self.most, float(np.einsum(spec, *map(np.abs, factors)).max() / step))
        return np.einsum(spec, *factors)


def grid(array: np.ndarray) -> float:
    """The largest power of two, at most 1, of which all elements are multiples."""
    step = 1.0
    while not np.array_equal(np.round(array / step) * step, array):
        step /= 2
    return step


class Mlp:
    """relu(x w1 + b1) w2 + b2."""

    row = [10]

    def __init__(self, draw, hidden: int = 14, classes: int = 5):
        self.weights = {"w1": draw(10, hidden), "b1": draw(hidden), "w2": draw(hidden, classes), "b2": draw(classes)}
        self.classes = classes

    def save(self, path: Path) -> Path:
        make = helper.make_node
        nodes = [
            make("Gemm", ["x", "w1", "b1"], ["a"], name="first"),
            make("Relu", ["a"], ["h"], name="relu"),
            make("Gemm", ["h", "w2", "b2"], ["y"], name="second"),
        ]
        return save_model(path, nodes, self.row, self.classes, self.weights)

    def forward(self, w, x, sums):
        a = sums("bi,io->bo", x, w["w1"]) + w["b1"]
        h = np.maximum(a, 0)
        return sums("bi,io->bo", h, w["w2"]) + w["b2"], (x, a, h)

    def backward(self, w, kept, dy, sums):
        x, a, h = kept
        da = sums("bo,io->bi", dy, w["w2"]) * (a > 0)
        return {"w1": sums("bi,bo->io", x, da), "b1": sums("bo->o", da), "w2": sums("bi,bo->io", h, dy), "b2": sums("bo->o", dy)}


class Cnn:
    """Two convolutions, the second with stride 2; a pooling of 2 by 2 windows, and a layer over the rest."""

    row = [2, 8, 8]

    def __init__(self, draw, pool: str = "AveragePool", classes: int = 5):
        self.weights = {"c1": draw(6, 2, 3, 3), "d1": draw(6), "c2": draw(4, 6, 3, 3), "w": draw(16, classes), "b": draw(classes)}
        self.classes, self.pool = classes, pool

    def save(self, path: Path) -> Path:
        make = helper.make_node
        nodes = [
            make("Conv", ["x", "c1", "d1"], ["a1"], name="first", pads=[1] * 4),
            make("Relu", ["a1"], ["h1"], name="relu1"),
            make(self.pool, ["h1"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
            make("Conv", ["p", "c2"], ["a2"], name="second", pads=[1] * 4, strides=[2, 2]),
            make("Relu", ["a2"], ["h2"], name="relu2"),
            make("Flatten", ["h2"], ["f"], name="flatten"),
            make("Gemm", ["f", "w", "b"], ["y"], name="last"),
        ]
        return save_model(path, nodes, self.row, self.classes, self.weights)

    @staticmethod
    def windows(x, stride):
        """The windows [batch, channels, height, width, 3, 3] of x with a border of zeros."""
        x = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
        return np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::stride, ::stride]

    def pooled(self, h, sums):
        """The pooled values, and each element's share of its window's derivative."""
        batch, channels, height, width = h.shape
        cut = h.reshape(batch, channels, height // 2, 2, width // 2, 2)
        if self.pool == "AveragePool":
            return sums("bcyixj->bcyx", cut) / 4, np.full_like(h, 0.25)
        flat = cut.transpose(0, 1, 2, 4, 3, 5).reshape(batch, channels, height // 2, width // 2, 4)
        first = np.eye(4)[flat.argmax(-1)].reshape(*flat.shape[:-1], 2, 2)
        return flat.max(-1), first.transpose(0, 1, 2, 4, 3, 5).reshape(h.shape)

    def forward(self, w, x, sums):
        a1 = sums("bcyxij,ocij->boyx", self.windows(x, 1), w["c1"]) + w["d1"][:, None, None]
        p, shares = self.pooled(np.maximum(a1, 0), sums)
        a2 = sums("bcyxij,ocij->boyx", self.windows(p, 2), w["c2"])
        f = np.maximum(a2, 0).reshape(len(x), -1)
        return sums("bi,io->bo", f, w["w"]) + w["b"], (x, a1, shares, p, a2, f)

    def backward(self, w, kept, dy, sums):
        x, a1, shares, p, a2, f = kept
        da2 = sums("bo,io->bi", dy, w["w"]).reshape(a2.shape) * (a2 > 0)
        spread = np.zeros((*a2.shape[:2], *p.shape[2:]))
        spread[:, :, ::2, ::2] = da2
        dp = sums("boyxij,ocij->bcyx", self.windows(spread, 1), w["c2"][:, :, ::-1, ::-1])
        da1 = dp.repeat(2, axis=2).repeat(2, axis=3) * shares * (a1 > 0)
        return {
            "c1": sums("bcyxij,boyx->ocij", self.windows(x, 1), da1),
            "d1": sums("boyx->o", da1),
            "c2": sums("bcyxij,boyx->ocij", self.windows(p, 2), da2),
            "w": sums("bi,bo->io", f, dy),
            "b": sums("bo->o", dy),
        }  # fmt: skip


def save_digits_cnn(path: Path, seed: int) -> Path:
    """Images x [batch, 1, 8, 8] to logits [batch, 10], in training mode: batch statistics and Dropout. All f32."""
    random = np.random.default_rng(seed)
    weights = {
        "conv1.weight": random.standard_normal((16, 1, 3, 3)) / 3,
        "bn1.weight": np.ones(16),
        "bn1.bias": np.zeros(16),
        "bn1.mean": np.zeros(16),
        "bn1.var": np.ones(16),
        "conv2.weight": random.standard_normal((32, 16, 3, 3)) / 12,
        "bn2.weight": np.ones(32),
        "bn2.bias": np.zeros(32),
        "bn2.mean": np.zeros(32),
        "bn2.var": np.ones(32),
        "fc.weight": random.standard_normal((10, 512)) / np.sqrt(512),
        "fc.bias": np.zeros(10),
    }
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    weights |= {"ratio": np.float32(0.25), "training": np.bool_(True)}
    norm = lambda i, x, y: helper.make_node(  # noqa: E731
        "BatchNormalization", [x, *(f"bn{i}.{part}" for part in ("weight", "bias", "mean", "var"))], [y, f"mean{i}", f"var{i}"], name=f"bn{i}", training_mode=1
    )
    nodes = [
        helper.make_node("Conv", ["x", "conv1.weight"], ["c1"], name="conv1", pads=[1] * 4),
        norm(1, "c1", "n1"),
        helper.make_node("Relu", ["n1"], ["r1"], name="relu1"),
        helper.make_node("MaxPool", ["r1"], ["p1"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "conv2.weight"], ["c2"], name="conv2", pads=[1] * 4),
        norm(2, "c2", "n2"),
        helper.make_node("Relu", ["n2"], ["r2"], name="relu2"),
        helper.make_node("Flatten", ["r2"], ["f"], name="flatten"),
        helper.make_node("Dropout", ["f", "ratio", "training"], ["d"], name="dropout"),
        helper.make_node("Gemm", ["d", "fc.weight", "fc.bias"], ["logits"], name="fc", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def squared_error(y, target):
    """The sum over all elements, and its derivative."""
    return ((y - target) ** 2).sum(), 2 * (y - target)


def cross_entropy(y, labels):
    """The mean over the rows, and its derivative."""
    shares = np.exp(y - y.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(shares[rows, labels]).mean()
    shares[rows, labels] -= 1
    return loss, shares / len(labels)


def split(model, storage: str) -> dict[str, str]:
    """Shardings of the first dimension of the optimizer's memory, and with "all" of the weights, over `data`."""
    if storage.startswith("zero"):
        return split_as_zero(model, int(storage[-1]))
    kind = "stored" if "stored" in storage else ""
    shards = {}
    for name, array in model.weights.items():
        sharding = kind + write_sharding(array.ndim, "data")
        shards |= {f"{name}/*": sharding} | ({name: sharding} if storage.startswith("all") else {})
    return shards


def write_sharding(rank: int, first: str = "") -> str:
    return "[" + ",".join([f"{{{first}}}"] + ["{}"] * (rank - 1)) + "]"


def split_as_zero(model, stage: int) -> dict[str, str]:
    """Weights are used whole; updates and the optimizer's memory are split. In stage 3 weights are stored in parts, too."""
    shards = {"x": write_sharding(1 + len(model.row), "data")}
    for name, array in model.weights.items():
        parts = write_sharding(array.ndim, "data")
        shards |= {name: write_sharding(array.ndim), f"{name}/*": parts}
        if stage == 3:
            shards[f"{name}*"] = "stored" + parts  # a star, because the name itself is already a key
    return shards


def read_log(path: Path) -> list[dict[str, str]]:
    """The rows of a run's log, by column."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def read_checkpoint(run: Path) -> dict[str, np.ndarray]:
    """The states of a run's latest checkpoint, read by the format's specification."""
    data = (max(run.glob("step-*")) / "states.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    types = {"F32": np.float32, "F64": np.float64, "I64": np.int64}
    states = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        states[name] = np.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return states


def draw_normal(seed: int, scale: float = 0.4):
    """A function from a shape to normal random float32."""
    random = np.random.default_rng(seed)
    return lambda *shape: (random.standard_normal(shape) * scale).astype(np.float32)
