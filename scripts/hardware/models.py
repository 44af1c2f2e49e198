"""The models that gpu-check and cluster-check run, as data. pack.py resolves the names of sources."""

from __future__ import annotations

import dataclasses

CHIPS = ("sm_80", "sm_90", "sm_100")

# Relative to an output's largest value. Inputs of matrix products have 10 bits of mantissa in tf32 and f16, 7 in bf16.
TOLERANCES = {"f32": 1e-4, "tf32": 5e-3, "f16": 1e-2, "bf16": 5e-2}


@dataclasses.dataclass(frozen=True)
class Model:
    """`source` is "zoo:NAME", "real:NAME" (trained, from an installed package) or "made:NAME" (pack.py writes it). `dims` are the sizes
    of the specialisations; `checked` are the sizes at which outputs are compared, and `timed` maps names to the sizes that are timed.
    With a `loss` its plans train with `optimizer`, and `labels` is the number of classes."""

    name: str
    source: str
    options: dict = dataclasses.field(default_factory=dict)
    dims: dict = dataclasses.field(default_factory=dict)
    checked: dict = dataclasses.field(default_factory=dict)
    timed: dict = dataclasses.field(default_factory=dict)
    state: str = ""
    vocabulary: int = 2
    precisions: tuple[str, ...] = ("f32", "bf16")
    timed_in: tuple[str, ...] = ("bf16",)
    generated: bool = False  # weights are generated again on the machine under test
    check: bool = True
    loss: str = ""
    optimizer: str = ""
    labels: int = 0


def dims_text(dims: dict) -> str:
    return ",".join(f"{name}={size}" for name, size in dims.items())


_ENCODER = {
    "layers": 4,
    "hidden": 64,
    "heads": 8,
    "intermediate": 128,
    "vocabulary": 100,
    "positions": 64,
    "head": "embedding",
}
_EXPERTS = {
    "layers": 4,
    "hidden": 64,
    "heads": 8,
    "kv_heads": 8,
    "intermediate": 64,
    "vocabulary": 64,
    "positions": 32,
    "experts": 8,
    "head": "logits",
}
_PICTURES = {"blocks": (1, 2, 1, 1), "width": 16, "image": 64, "classes": 16}

# Split over ranks: one of each kind of network, with eight heads, experts and pictures, so that eight ranks have work.
SPLIT = (
    Model("transformer", "zoo:bert", _ENCODER, {"batch": (8,), "sequence": (16,)}, vocabulary=2, precisions=("f32",)),
    Model("cnn", "zoo:resnet", _PICTURES, {"batch": (8,)}, precisions=("f32",)),
    Model("experts", "zoo:moe", _EXPERTS, {"batch": (8,), "sequence": (8,)}, vocabulary=64, precisions=("f32",)),
    Model(
        "loop",
        "zoo:lstm",
        {"layers": 2, "hidden": 32, "vocabulary": 64},
        {"batch": (8,), "sequence": (12,)},
        vocabulary=64,
        precisions=("f32",),
    ),
)


# Trained on one rank and on two. Plain descent, because Adam would turn a gradient that is only rounding into a full step.
TRAINED = (
    Model(
        "train-transformer",
        "zoo:gpt2",
        {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 96, "positions": 32, "dropout": 0.1},
        {"batch": (8,), "sequence": (16,)},
        vocabulary=96,
        check=False,
        loss="cross_entropy(logits, labels)",
        optimizer="sgd(lr=0.1, momentum=0.9)",
        labels=96,
    ),
    Model(
        "train-cnn",
        "zoo:resnet",
        {"blocks": (1, 1), "width": 16, "image": 32, "classes": 10, "training": True},
        {"batch": (8,)},
        check=False,
        loss="cross_entropy(logits, labels)",
        optimizer="sgd(lr=0.05, momentum=0.9)",
        labels=10,
    ),
)
TRAINING_STEPS = 10


def small_models(small: dict) -> list[Model]:
    """The zoo's architectures at the small sizes `small`, which maps names to (model of the zoo, options)."""
    sizes = {"batch": (2,), "sequence": (6,), "past": (3,)}
    precisions = ("f32", "tf32", "bf16", "f16")
    return [
        Model(f"small-{name}", f"zoo:{model}", options, sizes, vocabulary=50, precisions=precisions)
        for name, (model, options) in small.items()
    ]


REAL = tuple(
    Model(name, f"real:{name}", precisions=("f32",))
    for name in ("ocr-detector", "ocr-recogniser", "file-types", "notes", "voice")
)

_BATCH = {"batch": 1, "sequence": 128}
TRUE = (
    Model(
        "bert-base",
        "zoo:bert",
        {},
        {"batch": (1, 8, 32), "sequence": (128,)},
        _BATCH,
        {f"batch {b}, 128 tokens": {"batch": b} for b in (1, 8, 32)},
        precisions=("f32", "tf32", "bf16", "f16"),
        timed_in=("f32", "bf16"),
        generated=True,
    ),
    Model(
        "gpt2",
        "zoo:gpt2",
        {"cache": "static"},
        {"batch": (1,), "sequence": (1, 512)},
        {"batch": 1, "sequence": 512},
        {"prefill of 512": {"sequence": 512}, "decode": {"sequence": 1}},
        state="past_*=present_*",
        vocabulary=50257,
        generated=True,
    ),
    Model(
        "llama-8b-layer",
        "zoo:llama",
        {},
        {"batch": (1,), "sequence": (16, 512)},
        {"batch": 1, "sequence": 16},
        {"512 tokens": {"sequence": 512}},
        generated=True,
    ),
    Model(
        "vit-b-16",
        "zoo:vit",
        {},
        {"batch": (1, 8)},
        {"batch": 1},
        {f"batch {b}": {"batch": b} for b in (1, 8)},
        generated=True,
    ),
    Model(
        "resnet-50",
        "zoo:resnet",
        {},
        {"batch": (1, 8)},
        {"batch": 1},
        {f"batch {b}": {"batch": b} for b in (1, 8)},
        timed_in=("f32", "bf16"),
        generated=True,
    ),
    Model(
        "moe",
        "zoo:moe",
        {},
        {"batch": (1,), "sequence": (64,)},
        {"batch": 1, "sequence": 64},
        vocabulary=32000,
        precisions=("f32",),
        generated=True,
    ),
    Model("unet", "zoo:unet", {}, {"batch": (1,)}, {"batch": 1}, precisions=("f32",), generated=True),
    Model(
        "lstm",
        "zoo:lstm",
        {},
        {"batch": (1,), "sequence": (16,)},
        {"batch": 1, "sequence": 16},
        vocabulary=10000,
        precisions=("f32",),
        generated=True,
    ),
)

# The machine's ceilings: a chain of square matrix products, and a kernel that reads and writes a large state.
CEILINGS = (
    Model(
        "ceiling-matmul",
        "made:matmul",
        {"size": 8192},
        precisions=("f32", "tf32", "bf16", "f16"),
        generated=True,
        check=False,
    ),
    Model("ceiling-copy", "made:copy", {"size": 1 << 27}, state="state=next_state", precisions=("f32",), check=False),
)

# For trying every section on an interpreted GPU.
TINY = (
    Model(
        "bert-tiny",
        "zoo:bert",
        {"layers": 1, "hidden": 32, "heads": 2, "intermediate": 64, "vocabulary": 40, "positions": 16},
        {"batch": (1, 2), "sequence": (8,)},
        {"batch": 1},
        {"batch 2": {"batch": 2}},
        timed_in=("f32", "bf16"),
        generated=True,
    ),
    Model("mlp", "zoo:mlp", {"sizes": (16, 32, 8)}, {"batch": (4,)}, {}, {"batch 4": {}}, timed_in=("f32",)),
)
TINY_TRAINED = (
    dataclasses.replace(
        TRAINED[0],
        options={"layers": 1, "hidden": 16, "heads": 2, "vocabulary": 24, "positions": 8, "dropout": 0.1},
        dims={"batch": (4,), "sequence": (6,)},
        vocabulary=24,
        labels=24,
    ),
)
TINY_CEILINGS = (
    dataclasses.replace(CEILINGS[0], options={"size": 32}, precisions=("f32", "bf16")),
    dataclasses.replace(CEILINGS[1], options={"size": 1 << 12}),
)


def meshes(ranks: int) -> list[dict[str, int]]:
    """Every split that the check tests over `ranks`: each kind of parallelism alone, and mixed if the number allows."""
    found = [{"data": ranks}, {"model": ranks}, {"pipe": ranks}]
    if ranks % 2 == 0 and ranks > 2:
        half = ranks // 2
        found += [{"data": half, "model": 2}, {"data": half, "pipe": 2}, {"model": half, "pipe": 2}]
        if half % 2 == 0 and half > 2:
            found += [{"data": half // 2, "model": 2, "pipe": 2}]
    return found
