"""A CNN and a transformer for 8 by 8 images, in the form that PyTorch's tracing exporter writes in training mode without constant
folding: its names, sizes computed from shapes, transposed weights, and the training forms of norms and Dropout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE, CLASSES = 8, 10


class Export:
    """Nodes are named /SCOPE/OPERATOR, numbered from the second on, and values NODE_output_NUMBER."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.used: dict[str, int] = {}

    def op(self, scope: str, kind: str, *inputs: str, outputs: int = 1, **attributes) -> str:
        """Returns the first output's name."""
        name = "/".join(["", *scope.split("/"), kind] if scope else ["", kind])
        number = self.used[name] = self.used.get(name, -1) + 1
        name += f"_{number}" if number else ""
        self.nodes.append(helper.make_node(kind, inputs, [f"{name}_output_{i}" for i in range(outputs)], name=name, **attributes))
        return f"{name}_output_0"

    def constant(self, scope: str, value) -> str:
        return self.op(scope, "Constant", value=numpy_helper.from_array(np.asarray(value)))

    def weight(self, name: str, *shape: int, fan_in: int = 0) -> str:
        """PyTorch's initial values: uniform within 1 / sqrt(fan_in)."""
        limit = (fan_in or int(np.prod(shape[1:]))) ** -0.5
        return self.keep(name, self.random.uniform(-limit, limit, shape))

    def keep(self, name: str, array) -> str:
        self.weights[name] = np.asarray(array, np.float32)
        return name

    def dropout(self, scope: str, x: str, ratio: float) -> str:
        return self.op(scope, "Dropout", x, self.constant(scope, np.float32(ratio)), self.constant(scope, np.bool_(True)), outputs=2)

    def gemm(self, scope: str, x: str, name: str, inputs: int, outputs: int) -> str:
        weight, bias = self.weight(f"{name}.weight", outputs, inputs), self.weight(f"{name}.bias", outputs, fan_in=inputs)
        return self.op(scope, "Gemm", x, weight, bias, alpha=1.0, beta=1.0, transB=1)

    def linear(self, scope: str, x: str, name: str, inputs: int, outputs: int) -> str:
        """A layer over three-dimensional values; `name` is the prefix of `weight` and `bias`."""
        matrix = self.op(scope, "Transpose", self.weight(f"{name}weight", outputs, inputs), perm=[1, 0])
        product = self.op(scope, "MatMul", x, matrix)
        return self.op(scope, "Add", self.weight(f"{name}bias", outputs, fan_in=inputs), product)

    def save(self, path: Path, result: str) -> Path:
        """Input `x`, f32 [batch, 1, 8, 8]; output `logits`, f32 [batch, 10]."""
        for node in self.nodes:
            node.output[:] = ["logits" if name == result else name for name in node.output]
        graph = helper.make_graph(
            self.nodes,
            "main_graph",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, SIDE, SIDE])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="pytorch")
        onnx.checker.check_model(model)
        onnx.save(model, path)
        return path


def save_cnn(path: Path, seed: int) -> Path:
    """A convolution, a residual block, and a layer over the channels' means."""
    export = Export(seed)

    def convolve(scope: str, x: str, inputs: int, outputs: int, side: int, stride: int = 1) -> str:
        weight = export.weight(f"{scope.replace('/', '.')}.weight", outputs, inputs, side, side)
        return export.op(
            scope, "Conv", x, weight, dilations=[1, 1], group=1, kernel_shape=[side] * 2, pads=[side // 2] * 4, strides=[stride] * 2
        )  # fmt: skip

    def norm(scope: str, x: str, channels: int) -> str:
        first = {"weight": 1, "bias": 0, "running_mean": 0, "running_var": 1}
        parts = [export.keep(f"{scope.replace('/', '.')}.{part}", np.full(channels, value)) for part, value in first.items()]
        return export.op(
            scope, "BatchNormalization", x, *parts, outputs=3, epsilon=9.999999747378752e-06, momentum=0.8999999761581421, training_mode=1
        )  # fmt: skip

    x = export.op("relu", "Relu", norm("bn1", convolve("conv1", "x", 1, 16, 3), 16))
    y = export.op("block/relu", "Relu", norm("block/bn1", convolve("block/conv1", x, 16, 32, 3, stride=2), 32))
    y = norm("block/bn2", convolve("block/conv2", y, 32, 32, 3), 32)
    short = norm("block/downsample.1", convolve("block/downsample.0", x, 16, 32, 1, stride=2), 32)
    y = export.op("block/relu", "Relu", export.op("block", "Add", y, short))
    y = export.op("", "Flatten", export.op("avgpool", "GlobalAveragePool", y), axis=1)
    return export.save(path, export.gemm("fc", export.dropout("dropout", y, 0.1), "fc", 32, CLASSES))


def save_transformer(path: Path, seed: int, width: int = 32, heads: int = 4, layers: int = 2) -> Path:
    """Each row of an image is a token; layers as in torch.nn.TransformerEncoderLayer with batch_first."""
    export = Export(seed)
    op, constant = export.op, export.constant

    def size(scope: str, x: str, dimension: int) -> str:
        return op(scope, "Gather", op(scope, "Shape", x), constant(scope, np.int64(dimension)), axis=0)

    def reshape(scope: str, x: str, *sizes: int | str) -> str:
        """Reshapes to sizes, some of which are values without dimensions."""
        parts = [
            op(scope, "Unsqueeze", part, constant(scope, np.array([0]))) if isinstance(part, str) else constant(scope, np.array([part]))
            for part in sizes
        ]
        return op(scope, "Reshape", x, op(scope, "Concat", *parts, axis=0), allowzero=0)

    def norm(scope: str, x: str) -> str:
        name = scope.replace("/", ".")
        weight, bias = export.keep(f"{name}.weight", np.ones(width)), export.keep(f"{name}.bias", np.zeros(width))
        return op(scope, "LayerNormalization", x, weight, bias, axis=-1, epsilon=9.999999747378752e-06)

    def attention(scope: str, x: str) -> str:
        name = scope.replace("/", ".")
        y = op(scope, "Transpose", x, perm=[1, 0, 2])
        tokens, batch = size(scope, y, 0), size(scope, y, 1)
        y = export.linear(scope, y, f"{name}.in_proj_", width, 3 * width)
        y = op(scope, "Unsqueeze", reshape(scope, y, tokens, batch, 3, width), constant(scope, np.array([0])))
        y = op(scope, "Squeeze", op(scope, "Transpose", y, perm=[3, 1, 2, 0, 4]), constant(scope, np.array([3])))
        rows = op(scope, "Mul", batch, constant(scope, np.int64(heads)))
        parts = []
        for part in range(3):
            taken = op(scope, "Gather", y, constant(scope, np.int64(part)), axis=0)
            taken = op(scope, "Transpose", reshape(scope, taken, tokens, rows, width // heads), perm=[1, 0, 2])
            parts.append(reshape(scope, taken, batch, heads, tokens, width // heads))
        query, key, value = parts
        last, end = constant(scope, np.array([-1])), constant(scope, np.array([2**63 - 1]))
        root = op(scope, "Sqrt", op(scope, "Cast", op(scope, "Slice", op(scope, "Shape", query), last, end), to=TensorProto.FLOAT))
        scale = op(scope, "Cast", op(scope, "Div", constant(scope, np.array([1], np.float32)), root), to=TensorProto.FLOAT)
        key = op(scope, "Transpose", key, perm=[0, 1, 3, 2])
        query = op(scope, "Mul", query, op(scope, "Sqrt", scale))
        key = op(scope, "Mul", key, op(scope, "Sqrt", scale))
        shares = export.dropout(scope, op(scope, "Softmax", op(scope, "MatMul", query, key), axis=-1), 0.1)
        y = op(scope, "Transpose", op(scope, "MatMul", shares, value), perm=[2, 0, 1, 3])
        y = reshape(scope, y, op(scope, "Mul", tokens, batch), width)
        y = reshape(scope, export.gemm(scope, y, f"{name}.out_proj", width, width), tokens, batch, width)
        return op(scope, "Transpose", y, perm=[1, 0, 2])

    x = reshape("", "x", size("", "x", 0), SIDE, SIDE)
    x = op("", "Add", export.linear("embed", x, "embed.", SIDE, width), export.weight("positions", 1, SIDE, width, fan_in=width))
    for layer in range(layers):
        scope = f"encoder/layers.{layer}"
        name = scope.replace("/", ".")
        y = export.dropout(f"{scope}/dropout1", attention(f"{scope}/self_attn", x), 0.1)
        x = norm(f"{scope}/norm1", op(scope, "Add", x, y))
        y = op(scope, "Relu", export.linear(f"{scope}/linear1", x, f"{name}.linear1.", width, 4 * width))
        y = export.linear(f"{scope}/linear2", export.dropout(f"{scope}/dropout", y, 0.1), f"{name}.linear2.", 4 * width, width)
        x = norm(f"{scope}/norm2", op(scope, "Add", x, export.dropout(f"{scope}/dropout2", y, 0.1)))
    return export.save(path, export.gemm("fc", op("", "ReduceMean", x, axes=[1], keepdims=0), "fc", width, CLASSES))


def evaluation_of(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with running statistics and without Dropout, as exported for inference."""
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            del node.output[1:]
            kept = [attribute for attribute in node.attribute if attribute.name != "training_mode"]
            del node.attribute[:]
            node.attribute.extend(kept)
        if node.op_type == "Dropout":
            del node.input[1:]
    return model
