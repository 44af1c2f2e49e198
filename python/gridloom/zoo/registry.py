"""The zoo's models by name, at their true sizes and at any other."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path

import onnx

from .gpt2 import Gpt2Config, gpt2
from .graph import ExternalFile
from .llama import LlamaConfig, llama
from .lstm import lstm
from .vision import VitConfig, resnet, unet, vit
from .weights import Random, Weights, Zeros


@dataclasses.dataclass(frozen=True)
class Model:
    """`options` are the model's options with their defaults: sizes, opset, forms."""

    description: str
    options: dict
    _make: Callable

    def make(
        self, seed: int = 0, store: ExternalFile | None = None, weights: Weights | None = None, **options
    ) -> onnx.ModelProto:
        """The model with random weights, or with `weights`; `options` replace defaults."""
        for name in options:
            if name not in self.options:
                raise ValueError(f"unknown option {name!r}; known are {', '.join(self.options)}")
        return self._make(weights or Random(seed), store, {**self.options, **options})

    def write(
        self, path: str | Path, seed: int = 0, external_data: bool = False, shapes_only: bool = False, **options
    ) -> Path:
        """Writes the model to `path`. With `external_data` weights go to `<path>.data` one by one, so that memory holds one at a time.
        With `shapes_only` they are zeros in a sparse file, which takes no space whatever its size."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        store = ExternalFile(path) if external_data or shapes_only else None
        model = self.make(seed, store, Zeros() if shapes_only else None, **options)
        onnx.save_model(model, str(path))
        return path


def _configured(description: str, build: Callable, config) -> Model:
    """A model whose options are the fields of a dataclass."""

    def make(weights, store, options):
        return build(type(config)(**options), weights, store=store)

    return Model(description, dataclasses.asdict(config), make)


def _plain(description: str, build: Callable, **defaults) -> Model:
    """A model whose options are the parameters of its function."""
    parameters = inspect.signature(build).parameters.values()
    options = {p.name: p.default for p in parameters if p.name not in ("weights", "name", "store")}

    def make(weights, store, chosen):
        return build(weights, store=store, **chosen)

    return Model(description, {**options, **defaults}, make)


MODELS = {
    "gpt2": _configured("GPT-2 small: 12 layers, hidden 768; --cache concat or static", gpt2, Gpt2Config()),
    "llama": _configured(
        "layers of Llama-3-8B: hidden 4096, 32 heads, 8 key-value heads", llama, LlamaConfig(head="hidden")
    ),
    "moe": _configured(
        "Llama-style mixture of 8 experts, 2 for each token: 4 layers, hidden 512",
        llama,
        LlamaConfig(
            layers=4, hidden=512, heads=8, kv_heads=4, intermediate=1024, vocabulary=32000, theta=1e6, experts=8
        ),
    ),
    "vit": _configured("ViT-B/16: 12 layers, hidden 768, pictures of 224", vit, VitConfig()),
    "resnet": _plain("ResNet-50, pictures of 224", resnet),
    "unet": _plain("U-Net that halves four times: width 64, pictures of 256", unet),
    "lstm": _plain("stacked LSTM language model: 2 layers, hidden 512", lstm),
}
