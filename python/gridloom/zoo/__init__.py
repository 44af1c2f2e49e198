"""Real architectures as ONNX models of any size, in the form that exporters write.

`build("minilm")` gives the trained sentence encoder; other sizes get weights from a counter-based generator and a seed, so that a model
can be made again elsewhere instead of being copied. Needs only numpy and onnx."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import onnx

from .bert import MINILM, BertConfig, bert
from .gpt2 import Gpt2Config, gpt2
from .graph import ExternalFile
from .inputs import SMALL, random_inputs
from .llama import LlamaConfig, llama
from .lstm import lstm
from .mlp import mlp
from .registry import MODELS, Model
from .text import SENTENCES, encode, minilm_folder
from .vision import VitConfig, resnet, unet, vit
from .weights import Random, Safetensors, Weights, Zeros

__all__ = [
    "BERTS", "BertConfig", "ExternalFile", "Gpt2Config", "LlamaConfig", "MINILM", "MODELS", "Model", "Random", "SENTENCES",
    "SMALL", "Safetensors", "VitConfig", "Weights", "Zeros", "bert", "encode", "gpt2", "llama", "lstm", "minilm", "minilm_file",
    "minilm_folder", "mlp", "random_inputs", "resnet", "save", "unet", "vit",
]  # fmt: skip

# Encoders by name. All but `minilm` have random weights.
BERTS = {
    "minilm": MINILM,
    "bert-tiny": BertConfig(layers=2, hidden=128, heads=2, intermediate=512),
    "bert-base": BertConfig(),
    "bert-large": BertConfig(layers=24, hidden=1024, heads=16, intermediate=4096),
}


def minilm(*, weights: Weights | None = None, **options) -> onnx.ModelProto:
    """all-MiniLM-L6-v2: 6 layers, hidden 384, 12 heads; int64 inputs [batch, sequence], output
    `embedding` [batch, 384]. Trained weights unless others are given; `options` are BertConfig's."""
    weights = weights or Safetensors(minilm_folder() / "model.safetensors")
    return bert(dataclasses.replace(MINILM, **options), weights, "minilm")


def minilm_file(path: str | Path) -> Path:
    """Writes MiniLM with its trained weights to `path`, unless a file newer than this code exists there: 90 MB that tests and
    demonstrations share. Returns `path`."""
    path = Path(path)
    newest = max(source.stat().st_mtime for source in Path(__file__).parent.glob("*.py"))
    if not path.exists() or path.stat().st_mtime < newest:
        part = path.with_name(f"{path.name}.{os.getpid()}")  # others may read or write it meanwhile
        os.replace(save(minilm(), part), path)
    return path


def save(model: onnx.ModelProto, path: str | Path, external_data: bool = False) -> Path:
    """Writes `model`; with `external_data` the weights go to `<name>.data` beside it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if external_data:
        data = path.with_name(path.name + ".data")
        data.unlink(missing_ok=True)  # onnx appends to a file that exists
        onnx.save_model(
            model, str(path), save_as_external_data=True, location=data.name, size_threshold=1024
        )
        data.chmod(path.stat().st_mode & 0o777)  # onnx makes it private
    else:
        onnx.save_model(model, str(path))
    return path
