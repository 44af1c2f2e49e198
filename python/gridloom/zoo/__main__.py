"""Writes a model of the zoo: python -m gridloom.zoo MODEL -o FILE, or `list`."""

from __future__ import annotations

import argparse
import dataclasses
import sys

import numpy as np
import onnx

from . import BERTS, MODELS, BertConfig, Random, bert, minilm, mlp, save

_SIZES = ("layers", "hidden", "heads", "intermediate", "vocabulary", "positions")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gridloom.zoo", description=__doc__)
    models = parser.add_subparsers(dest="model", required=True, metavar="MODEL")
    models.add_parser("list", help="print the models")

    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-o", "--output", required=True, metavar="FILE", help="the ONNX file to write")
    common.add_argument("--opset", type=int, default=17, help="13 or newer (default 17)")
    common.add_argument("--external-data", action="store_true", help="weights in FILE.data beside the model")

    for name, config in BERTS.items():
        trained = " with its trained weights" if name == "minilm" else ""
        p = models.add_parser(name, parents=[common], help=describe(config) + trained)
        p.add_argument("--seed", type=int, default=None if trained else 0, help="random weights from this seed")
        p.add_argument("--layer-norm", choices=["auto", "fused", "decomposed"], default="auto")
        p.add_argument("--gelu", choices=["erf", "tanh", "op"], default="erf")
        if not trained:
            p.add_argument("--head", choices=["hidden", "embedding"], default=config.head)
            for size in _SIZES:
                p.add_argument(f"--{size}", type=int, default=getattr(config, size))

    p = models.add_parser("mlp", parents=[common], help="dense layers of any size")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--sizes", default="64,256,16", help="widths from input to output (default 64,256,16)")
    p.add_argument("--activation", choices=["relu", "tanh", "sigmoid", "gelu"], default="relu")

    for name, model in MODELS.items():
        p = models.add_parser(name, parents=[common], help=model.description)
        p.add_argument("--seed", type=int, default=0)
        p.add_argument("--shapes-only", action="store_true", help="all weights zero, in a file of holes: to compile, not to run")
        for option, default in model.options.items():
            if option != "opset":
                p.add_argument(f"--{option.replace('_', '-')}", type=option_type(default), default=default)
    return parser.parse_args(arguments)


def option_type(default):
    """Parses an option by the type of its default: a number, a word, yes or no, or numbers with commas."""
    if isinstance(default, bool):
        return lambda text: {"yes": True, "no": False}[text]
    if isinstance(default, tuple):
        return lambda text: tuple(int(part) for part in text.split(","))
    return type(default)


def describe(config: BertConfig) -> str:
    return f"BERT encoder, {config.layers} layers, hidden {config.hidden}, {config.heads} heads"


def make(options: argparse.Namespace) -> onnx.ModelProto:
    if options.model == "mlp":
        # The scale of a trained layer's weights, so that signals neither vanish nor explode.
        sizes = [int(s) for s in options.sizes.split(",")]
        weights = Random(options.seed, scale=float(np.mean(sizes[:-1])) ** -0.5)
        return mlp(sizes, weights, options.activation, options.opset)
    forms = {"opset": options.opset, "layer_norm": options.layer_norm, "gelu": options.gelu}
    if options.model == "minilm":
        return minilm(weights=None if options.seed is None else Random(options.seed), **forms)
    sizes = {size: getattr(options, size) for size in _SIZES}
    config = dataclasses.replace(BERTS[options.model], head=options.head, **sizes, **forms)
    return bert(config, Random(options.seed), options.model)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.model == "list":
        for name, config in BERTS.items():
            weights = "trained" if name == "minilm" else "random"
            print(f"{name:<12}{describe(config)}, {weights} weights")
        print(f"{'mlp':<12}dense layers of any size, random weights")
        for name, entry in MODELS.items():
            print(f"{name:<12}{entry.description}, random weights")
        return 0
    try:
        if options.model in MODELS:
            chosen = {name: getattr(options, name) for name in MODELS[options.model].options}
            path = MODELS[options.model].write(
                options.output, options.seed, options.external_data, options.shapes_only, **chosen
            )
            model = onnx.load(str(path), load_external_data=False)
        else:
            model = make(options)
            path = save(model, options.output, options.external_data)
        if not getattr(options, "shapes_only", False):  # the checker reads all weights
            onnx.checker.check_model(str(path))
    except (ValueError, KeyError, ImportError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    parameters = sum(int(np.prod(t.dims)) for t in model.graph.initializer)
    count = f"{parameters / 1e6:.1f} M" if parameters >= 1e6 else f"{parameters:,}"
    nodes = len(model.graph.node)
    print(f"{path}: {nodes} node{'' if nodes == 1 else 's'}, {count} parameters, opset {options.opset}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
