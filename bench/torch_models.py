"""The timed models of gpu-check as PyTorch modules of the same sizes, for comparison. Weights are random, because only time is compared.
Each function returns a module and its inputs."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, kv_heads: int | None = None, bias: bool = True, causal: bool = False):
        super().__init__()
        self.heads, self.kv_heads, self.size, self.causal = heads, kv_heads or heads, hidden // heads, causal
        self.query = nn.Linear(hidden, hidden, bias=bias)
        self.key = nn.Linear(hidden, self.kv_heads * self.size, bias=bias)
        self.value = nn.Linear(hidden, self.kv_heads * self.size, bias=bias)
        self.out = nn.Linear(hidden, hidden, bias=bias)

    def forward(self, x, mask=None, rotate=None, past=None, position=None):
        def split(y, heads):
            return y.unflatten(-1, (heads, self.size)).transpose(1, 2)

        query, key, value = (
            split(self.query(x), self.heads),
            split(self.key(x), self.kv_heads),
            split(self.value(x), self.kv_heads),
        )
        if rotate:
            query, key = rotate(query), rotate(key)
        if past is not None:
            past[0].index_copy_(2, position, key)
            past[1].index_copy_(2, position, value)
            key, value = past
        groups = self.heads // self.kv_heads
        if groups > 1:
            key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        y = F.scaled_dot_product_attention(query, key, value, mask, is_causal=self.causal and mask is None)
        return self.out(y.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    """A transformer layer; with `before`, norms come first, as in GPT-2 and ViT."""

    def __init__(self, hidden: int, heads: int, wide: int, before: bool, causal: bool = False, tanh: bool = False):
        super().__init__()
        self.attention, self.before = Attention(hidden, heads, causal=causal), before
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.up, self.down, self.form = nn.Linear(hidden, wide), nn.Linear(wide, hidden), "tanh" if tanh else "none"

    def mlp(self, x):
        return self.down(F.gelu(self.up(x), approximate=self.form))

    def forward(self, x, mask=None, past=None, position=None):
        if self.before:
            x = x + self.attention(self.norm1(x), mask, past=past, position=position)
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.mlp(x))


class Bert(nn.Module):
    def __init__(self, layers=12, hidden=768, heads=12, intermediate=3072, vocabulary=30522, positions=512):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(positions, hidden)
        self.types, self.norm = nn.Embedding(2, hidden), nn.LayerNorm(hidden)
        self.layers = nn.ModuleList(Block(hidden, heads, intermediate, before=False) for _ in range(layers))

    def forward(self, ids, mask, types):
        x = self.words(ids) + self.types(types) + self.places.weight[: ids.shape[1]]
        x, additive = self.norm(x), (1.0 - mask[:, None, None].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, additive)
        return x


class Gpt2(nn.Module):
    """GPT-2 with a static cache of all positions, into which `ids` are written at `position`."""

    def __init__(self, layers=12, hidden=768, heads=12, vocabulary=50257, positions=1024, batch=1):
        super().__init__()
        self.words, self.places, self.norm = (
            nn.Embedding(vocabulary, hidden),
            nn.Embedding(positions, hidden),
            nn.LayerNorm(hidden),
        )
        self.layers = nn.ModuleList(Block(hidden, heads, 4 * hidden, before=True, tanh=True) for _ in range(layers))
        self.register_buffer("cache", torch.zeros(layers, 2, batch, heads, positions, hidden // heads))

    def forward(self, ids, position):
        at = position + torch.arange(ids.shape[1], device=ids.device)
        x = self.words(ids) + self.places(at)
        mask = torch.arange(self.cache.shape[4], device=ids.device)[None] <= at[:, None]
        for number, layer in enumerate(self.layers):
            x = layer(x, mask, past=tuple(self.cache[number]), position=at)
        return self.norm(x) @ self.words.weight.T


class RmsNorm(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


class LlamaLayer(nn.Module):
    def __init__(self, hidden=4096, heads=32, kv_heads=8, intermediate=14336, theta=500000.0):
        super().__init__()
        self.attention = Attention(hidden, heads, kv_heads, bias=False, causal=True)
        self.norm1, self.norm2, self.size = RmsNorm(hidden), RmsNorm(hidden), hidden // heads
        self.gate, self.up = nn.Linear(hidden, intermediate, bias=False), nn.Linear(hidden, intermediate, bias=False)
        self.down, self.theta = nn.Linear(intermediate, hidden, bias=False), theta

    def forward(self, x):
        frequencies = self.theta ** (-torch.arange(0, self.size, 2, device=x.device) / self.size)
        angles = torch.arange(x.shape[1], device=x.device)[:, None] * frequencies.repeat(2)[None]
        cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)

        def rotate(y):
            a, b = y.chunk(2, -1)
            return y * cosine + torch.cat((-b, a), -1) * sine

        x = x + self.attention(self.norm1(x), rotate=rotate)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Vit(nn.Module):
    def __init__(self, layers=12, hidden=768, heads=12, intermediate=3072, image=224, patch=16, classes=1000):
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, hidden))
        self.places = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, hidden))
        self.layers = nn.ModuleList(Block(hidden, heads, intermediate, before=True) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, classes)

    def forward(self, pixels):
        x = self.patches(pixels).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()

        def conv(a, b, kernel, step=1):
            return nn.Sequential(nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False), nn.BatchNorm2d(b))

        self.body = nn.Sequential(
            conv(inputs, width, 1), nn.ReLU(), conv(width, width, 3, stride), nn.ReLU(), conv(width, 4 * width, 1)
        )
        self.short = conv(inputs, 4 * width, 1, stride) if stride != 1 or inputs != 4 * width else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


def resnet(blocks=(3, 4, 6, 3), width=64, classes=1000) -> nn.Module:
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            layers.append(Bottleneck(channels, width << stage, 2 if stage and not block else 1))
            channels = 4 * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def load_in_order(module: nn.Module, arrays: list) -> None:
    """Copies a model's arrays into a module that has the same parameters and running statistics in the same order."""
    states = [value for name, value in module.state_dict().items() if not name.endswith("num_batches_tracked")]
    if [tuple(state.shape) for state in states] != [array.shape for array in arrays]:
        raise ValueError("the module's parameters are not the model's")
    with torch.no_grad():
        for state, array in zip(states, arrays):
            state.copy_(torch.from_numpy(array.copy()))


def make(source: str, options: dict, dims: dict[str, int]) -> tuple[nn.Module, tuple[torch.Tensor, ...]] | None:
    """The module for a model of the zoo ("zoo:bert") and inputs for it; None for models without a PyTorch version here."""
    batch, length = dims.get("batch", 1), dims.get("sequence", 1)
    name = source.split(":")[1]
    if name == "bert":
        options = {key: value for key, value in options.items() if key != "head"}
        model = Bert(**options)
        ids = torch.randint(0, model.words.num_embeddings, (batch, length))
        return model, (ids, torch.ones_like(ids), torch.zeros_like(ids))
    if name == "gpt2":
        model = Gpt2(**{key: value for key, value in options.items() if key != "cache"}, batch=batch)
        return model, (torch.randint(0, model.words.num_embeddings, (batch, length)), torch.tensor([1]))
    if name == "llama":
        model = LlamaLayer(**options)
        return model, (torch.randn(batch, length, model.attention.heads * model.size),)
    if name == "vit":
        return Vit(**options), (torch.randn(batch, 3, options.get("image", 224), options.get("image", 224)),)
    if name == "resnet":
        image = options.get("image", 224)
        return resnet(**{key: value for key, value in options.items() if key != "image"}), (
            torch.randn(batch, 3, image, image),
        )
    return None
