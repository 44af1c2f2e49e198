"""Networks for pictures: vision transformers, residual networks and U-Nets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx

from .graph import FLOAT, ExternalFile, gelu
from .network import Network
from .weights import Weights


@dataclasses.dataclass(frozen=True)
class VitConfig:
    """ViT-B/16 on pictures of 224 by 224 by default."""

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    intermediate: int = 3072
    image: int = 224
    patch: int = 16
    classes: int = 1000
    epsilon: float = 1e-6
    opset: int = 17

    def __post_init__(self):
        if self.hidden % self.heads:
            raise ValueError(f"hidden size {self.hidden} is not a multiple of {self.heads} heads")
        if self.image % self.patch:
            raise ValueError(f"a picture of {self.image} is not a multiple of patches of {self.patch}")


def vit(config: VitConfig, weights: Weights, name: str = "vit", store: ExternalFile | None = None) -> onnx.ModelProto:
    """`pixels` float32 [batch, 3, image, image] to `logits` float32 [batch, classes]."""
    c, net = config, _Vision(name, config.opset, weights, store)
    g, size = net.g, config.hidden // config.heads
    pixels = g.input("pixels", FLOAT, ["batch", 3, c.image, c.image])
    x = net.conv(pixels, "conv_proj", 3, c.hidden, c.patch, stride=c.patch, pad=0, bias=True)
    x = g.op("Transpose", g.reshape(x, g.dim(x, 0), c.hidden, -1), perm=[0, 2, 1])
    shape = g.op("Concat", g.unsqueeze(g.dim(x, 0), 0), g.constant([1, c.hidden], int), axis=0)
    x = g.op("Concat", g.op("Expand", net.parameter("class_token", 1, 1, c.hidden), shape), x, axis=1)
    tokens = (c.image // c.patch) ** 2 + 1
    x = g.op("Add", x, net.parameter("encoder.pos_embedding", 1, tokens, c.hidden))
    for number in range(c.layers):
        prefix = f"encoder.layers.{number}"
        with g.scope(prefix):
            y = net.layer_norm(x, f"{prefix}.ln_1", c.hidden, c.epsilon)
            parts = (net.dense(y, f"{prefix}.self_attention.{n}", c.hidden, c.hidden) for n in "qkv")
            y = net.attend(*(net.heads(part, c.heads, size) for part in parts), size, None)
            x = g.op("Add", net.dense(y, f"{prefix}.self_attention.out_proj", c.hidden, c.hidden), x)
            y = net.layer_norm(x, f"{prefix}.ln_2", c.hidden, c.epsilon)
            y = gelu(g, net.dense(y, f"{prefix}.mlp.0", c.hidden, c.intermediate), "erf")
            x = g.op("Add", x, net.dense(y, f"{prefix}.mlp.3", c.intermediate, c.hidden))
    x = net.layer_norm(x, "encoder.ln", c.hidden, c.epsilon)
    x = g.op("Gather", x, g.constant(0, int), axis=1)
    g.output("logits", net.dense(x, "heads.head", c.hidden, c.classes), FLOAT, ["batch", c.classes])
    return net.build()


class _Vision(Network):
    training = False  # whether batch norms take the statistics of their batch

    def conv(
        self, x: str, name: str, inputs: int, outputs: int, kernel: int, stride: int = 1, pad: int | None = None,
        bias: bool = False,
    ) -> str:  # fmt: skip
        scale = (2 / (inputs * kernel * kernel)) ** 0.5
        pad = kernel // 2 if pad is None else pad
        operands = [self.parameter(f"{name}.weight", outputs, inputs, kernel, kernel, scale=scale)]
        if bias:
            operands.append(self.parameter(f"{name}.bias", outputs))
        return self.g.op(
            "Conv", x, *operands, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, dilations=[1, 1],
            group=1,
        )  # fmt: skip

    def batch_norm(self, x: str, name: str, size: int, gain: float = 1.0) -> str:
        kinds = [("weight", 0.1 * gain, gain), ("bias", 0.02, 0.0), ("running_mean", 0.02, 0.0), ("running_var", 0.1, 1.0)]
        operands = [self.parameter(f"{name}.{kind}", size, scale=scale, mean=mean) for kind, scale, mean in kinds]
        if self.training:
            return self.g.ops("BatchNormalization", x, *operands, outputs=3, epsilon=1e-5, training_mode=1)[0]
        return self.g.op("BatchNormalization", x, *operands, epsilon=1e-5)

    def bottleneck(self, x: str, name: str, inputs: int, width: int, stride: int) -> str:
        g = self.g
        with g.scope(name):
            y = g.op("Relu", self.batch_norm(self.conv(x, f"{name}.conv1", inputs, width, 1), f"{name}.bn1", width))
            y = self.batch_norm(self.conv(y, f"{name}.conv2", width, width, 3, stride), f"{name}.bn2", width)
            y = self.conv(g.op("Relu", y), f"{name}.conv3", width, 4 * width, 1)
            y = self.batch_norm(y, f"{name}.bn3", 4 * width, gain=0.3)  # sums of many blocks stay small
            if stride != 1 or inputs != 4 * width:
                x = self.conv(x, f"{name}.downsample.0", inputs, 4 * width, 1, stride)
                x = self.batch_norm(x, f"{name}.downsample.1", 4 * width)
            return g.op("Relu", g.op("Add", y, x))

    def double(self, x: str, name: str, inputs: int, outputs: int) -> str:
        for i, channels in enumerate((inputs, outputs)):
            x = self.conv(x, f"{name}.conv{i + 1}", channels, outputs, 3)
            x = self.g.op("Relu", self.batch_norm(x, f"{name}.bn{i + 1}", outputs))
        return x


def resnet(
    weights: Weights, blocks: Sequence[int] = (3, 4, 6, 3), width: int = 64, image: int = 224, classes: int = 1000,
    training: bool = False, opset: int = 17, name: str = "resnet", store: ExternalFile | None = None,
) -> onnx.ModelProto:  # fmt: skip
    """A residual network of bottlenecks, ResNet-50 by default: `pixels` float32 [batch, 3, image, image] to `logits`
    float32 [batch, classes]. In `training` mode its batch norms take the statistics of their batch."""
    net = _Vision(name, opset, weights, store)
    net.training = training
    g = net.g
    x = g.input("pixels", FLOAT, ["batch", 3, image, image])
    x = g.op("Relu", net.batch_norm(net.conv(x, "conv1", 3, width, 7, stride=2), "bn1", width))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            inner = width << stage
            stride = 2 if stage and not block else 1
            x = net.bottleneck(x, f"layer{stage + 1}.{block}", channels, inner, stride)
            channels = 4 * inner
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    matrix = net.parameter("fc.weight", classes, channels, scale=channels**-0.5)
    x = g.op("Gemm", x, matrix, net.parameter("fc.bias", classes), alpha=1.0, beta=1.0, transB=1)
    g.output("logits", x, FLOAT, ["batch", classes])
    return net.build()


def unet(
    weights: Weights, depth: int = 4, width: int = 64, image: int = 256, channels: int = 3, classes: int = 2,
    opset: int = 17, name: str = "unet", store: ExternalFile | None = None,
) -> onnx.ModelProto:  # fmt: skip
    """A U-Net that halves the picture `depth` times: `pixels` float32 [batch, channels, image, image] to `scores`
    float32 [batch, classes, image, image]."""
    if image % (1 << depth):
        raise ValueError(f"a picture of {image} cannot be halved {depth} times")
    net = _Vision(name, opset, weights, store)
    g = net.g
    x = g.input("pixels", FLOAT, ["batch", channels, image, image])
    skips, size = [], channels
    for level in range(depth):
        with g.scope(f"down.{level}"):
            x = net.double(x, f"down.{level}", size, width << level)
            size = width << level
            skips.append((x, size))
            x = g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.double(x, "middle", size, width << depth)
    size = width << depth
    for level, (skip, outputs) in reversed(list(enumerate(skips))):
        with g.scope(f"up.{level}"):
            matrix = net.parameter(f"up.{level}.up.weight", size, outputs, 2, 2, scale=size**-0.5)
            bias = net.parameter(f"up.{level}.up.bias", outputs)
            x = g.op("ConvTranspose", x, matrix, bias, kernel_shape=[2, 2], strides=[2, 2])
            x = net.double(g.op("Concat", skip, x, axis=1), f"up.{level}", 2 * outputs, outputs)
            size = outputs
    x = net.conv(x, "scores", size, classes, 1, bias=True)
    g.output("scores", x, FLOAT, ["batch", classes, image, image])
    return net.build()
