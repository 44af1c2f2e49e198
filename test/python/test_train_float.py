"""Training on random data: each optimizer over many steps against float64 formulas, and meshes against one rank."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from training_models import Cnn, Mlp, cross_entropy, draw_normal, split

import gridloom
from gridloom import zoo

MESHES = [("data=2", 8), ("data=3", 8), ("data=4", 9), ("model=2", 8), ("model=3", 8), ("data=2,model=2", 9)]


def draw_batches(model, batch: int, steps: int) -> list[dict[str, np.ndarray]]:
    """Noisy patterns, with the pattern's number as label."""
    random = np.random.default_rng(7)
    patterns = random.standard_normal((model.classes, *model.row))
    batches = []
    for _ in range(steps):
        labels = random.integers(0, model.classes, batch)
        x = patterns[labels] + 0.7 * random.standard_normal((batch, *model.row))
        batches.append({"x": x.astype(np.float32), "labels": labels})
    return batches


def compile_training(tools, model: onnx.ModelProto | Mlp | Cnn, folder, optimizer: str, dims, mesh: str = "", **options):
    path = folder / "m.onnx"
    if not path.exists():
        zoo.save(model, path) if isinstance(model, onnx.ModelProto) else model.save(path)
    options = {"train": True, "loss": "cross_entropy(y, labels)", "optimizer": optimizer, "dims": dims, **options}
    plan = gridloom.compile(path, folder / f"{mesh}.plan", mesh=mesh or None, tools=tools.folder, **options)
    return gridloom.load(plan, threads=1)


def train(session: gridloom.Session, batches, rate: float) -> tuple[list[dict[str, float]], dict[str, np.ndarray]]:
    """Each step's results, and the final states."""
    results = []
    for batch in batches:
        outputs = session.run(batch | {"learning_rate": np.array(rate, np.float32)}, entry="train_step")
        assert outputs["committed"] == 1
        results.append({name: float(outputs[name]) for name in ("loss", "gradient_norm")})
    return results, {name: session.get_state(name) for name in session.states}


# The recurrences of torch.optim's and optax's documentation. Each takes the parameter p, its gradient g, its memory s, the step number t
# from 1 and the learning rate, and returns the next parameter; the settings are those of the texts below.


def memory(s, name, p):
    return s.setdefault(name, np.zeros_like(p))


def average(s, name, value, decay):
    s[name] = decay * memory(s, name, value) + (1 - decay) * value
    return s[name]


def sgd(p, g, s, t, lr, momentum=0.0, dampening=0.0, nesterov=False, decay=0.0):
    g = g + decay * p
    if momentum:
        s["b"] = g if t == 1 else momentum * s["b"] + (1 - dampening) * g
        g = g + momentum * s["b"] if nesterov else s["b"]
    return p - lr * g


def adam(p, g, s, t, lr, decay=0.0, decoupled=False, eps=1e-8):
    if decoupled:
        p = p * (1 - lr * decay)
    else:
        g = g + decay * p
    m = average(s, "m", g, 0.9) / (1 - 0.9**t)
    v = average(s, "v", g * g, 0.999) / (1 - 0.999**t)
    return p - lr * m / (np.sqrt(v) + eps)


def nadam(p, g, s, t, lr):
    mu, following = (0.9 * (1 - 0.5 * 0.96 ** (n * 0.004)) for n in (t, t + 1))
    s["product"] = s.get("product", 1.0) * mu
    m, v = average(s, "m", g, 0.9), average(s, "v", g * g, 0.999)
    root = np.sqrt(v / (1 - 0.999**t)) + 1e-8
    p = p - lr * (1 - mu) / (1 - s["product"]) * g / root
    return p - lr * following / (1 - s["product"] * following) * m / root


def adagrad(p, g, s, t, lr, lr_decay=0.01, initial=0.1):
    s["v"] = s.get("v", initial) + g * g
    return p - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(s["v"]) + 1e-10)


def rmsprop(p, g, s, t, lr, centered=False, momentum=0.0):
    v = average(s, "v", g * g, 0.99)
    if centered:
        v = v - average(s, "mean", g, 0.99) ** 2
    s["b"] = momentum * memory(s, "b", p) + g / (np.sqrt(v) + 1e-8)
    return p - lr * s["b"]


def adadelta(p, g, s, t, lr):
    v = average(s, "v", g * g, 0.9)
    delta = np.sqrt(memory(s, "delta", p) + 1e-6) / np.sqrt(v + 1e-6) * g
    average(s, "delta", delta * delta, 0.9)
    return p - lr * delta


def ratio(p, update, coefficient=1.0):
    size, other = np.linalg.norm(p), np.linalg.norm(update)
    return coefficient * size / other if size and other else 1.0


def lamb(p, g, s, t, lr, decay=0.1):
    m = average(s, "m", g, 0.9) / (1 - 0.9**t)
    v = average(s, "v", g * g, 0.999) / (1 - 0.999**t)
    update = m / (np.sqrt(v) + 1e-6) + decay * p
    return p - lr * ratio(p, update) * update


def lars(p, g, s, t, lr, decay=0.01):
    update = g + decay * p
    s["b"] = 0.9 * memory(s, "b", p) - lr * ratio(p, update, 0.1) * update
    return p + s["b"]


def adafactor(p, g, s, t, lr, decay=0.001):
    """Dimensions of at least 5 are factored; of two, rows belong to the smaller one."""
    share, power = t**-0.8, g * g + 1e-30
    if p.ndim == 2:
        small, large = sorted((0, 1), key=lambda dim: p.shape[dim])
        row = average(s, "row", power.mean(axis=large, keepdims=True), 1 - share)
        column = average(s, "column", power.mean(axis=small, keepdims=True), 1 - share)
        update = g / np.sqrt(row / row.mean()) / np.sqrt(column)
    else:
        update = g / np.sqrt(average(s, "v", power, 1 - share))
    size = lambda x: np.sqrt((x * x).mean())  # noqa: E731
    update = lr * update / max(1, size(update)) * max(1e-3, size(p))
    return p - update - decay * p


def lion(p, g, s, t, lr, decay=0.001):
    update = np.sign(0.9 * memory(s, "m", p) + 0.1 * g)
    average(s, "m", g, 0.99)
    return p - lr * (update + decay * p)


@dataclasses.dataclass(frozen=True)
class Case:
    text: str
    rate: float
    rule: object
    settings: dict = dataclasses.field(default_factory=dict)
    clip: float | None = None


CASES = [
    Case("sgd", 0.1, sgd),
    Case("sgd(momentum=0.9, dampening=0.3, weight_decay=0.01)", 0.03, sgd, {"momentum": 0.9, "dampening": 0.3, "decay": 0.01}),
    Case("sgd(momentum=0.9, nesterov=true)", 0.03, sgd, {"momentum": 0.9, "nesterov": True}, clip=0.5),
    Case("adam(weight_decay=0.01, eps=0.01)", 0.01, adam, {"decay": 0.01, "eps": 0.01}),
    Case("adamw(weight_decay=0.1)", 0.01, adam, {"decay": 0.1, "decoupled": True}, clip=1.0),
    Case("nadam", 0.01, nadam),
    Case("adagrad(lr_decay=0.01, initial=0.1)", 0.05, adagrad),
    Case("rmsprop", 0.003, rmsprop),
    Case("rmsprop(centered=true, momentum=0.5)", 0.002, rmsprop, {"centered": True, "momentum": 0.5}),
    Case("adadelta", 1.0, adadelta),
    Case("lamb(lr=1, weight_decay=0.1)", 0.01, lamb),
    Case("lars(lr=1, trust=0.1, weight_decay=0.01)", 0.1, lars),
    Case("adafactor(lr=1, min_factored=5, weight_decay=0.001)", 0.03, adafactor),
    Case("lion(lr=1)", 0.002, lion),
]


def train_by_hand(model, batches, case: Case) -> tuple[list[float], list[float], dict[str, np.ndarray]]:
    weights = {name: array.astype(np.float64) for name, array in model.weights.items()}
    kept: dict[str, dict] = {name: {} for name in weights}
    losses, norms = [], []
    for step, batch in enumerate(batches, 1):
        y, values = model.forward(weights, batch["x"].astype(np.float64), np.einsum)
        loss, dy = cross_entropy(y, batch["labels"])
        gradients = model.backward(weights, values, dy, np.einsum)
        norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
        losses.append(loss)
        norms.append(norm)
        factor = min(1.0, case.clip / (norm + 1e-6)) if case.clip else 1.0
        for name, gradient in gradients.items():
            weights[name] = case.rule(weights[name], factor * gradient, kept[name], step, case.rate, **case.settings)
    return losses, norms, weights


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.text)
def test_a_hundred_steps_are_those_of_float64(tools, tmp_path, case):
    model = Mlp(draw_normal(1))
    batches = draw_batches(model, 16, 100)
    losses, norms, weights = train_by_hand(model, batches, case)
    assert np.mean(losses[-10:]) < 0.8 * losses[0]
    clip = f"norm({case.clip})" if case.clip else None
    assert case.clip is None or min(norms) < case.clip < max(norms)
    with compile_training(tools, model, tmp_path, case.text, {"batch": 16}, clip=clip) as session:
        results, states = train(session, batches, case.rate)
    errors = {
        "loss": np.max(np.abs([result["loss"] for result in results] / np.array(losses) - 1)),
        "norm": np.max(np.abs([result["gradient_norm"] for result in results] / np.array(norms) - 1)),
        "weights": max(np.abs(states[name] - weights[name]).max() / np.abs(weights[name] - model.weights[name]).max() for name in weights),
    }  # fmt: skip
    assert max(errors.values()) < 2e-5, errors



def compare_with_one_rank(tools, folder, model, optimizer: str, batches, rate: float, dims, mesh: str, **options):
    """Asserts that losses and gradient norms equal one rank's within 1e-5. Returns each state's difference from one rank's, beyond the
    rounding of its largest element, relative to how far it moved; states that hardly moved are left out."""
    runs, first = [], {}
    for each in ("", mesh):
        with compile_training(tools, model, folder, optimizer, dims, each, **options) as session:
            first = {name: session.get_state(name) for name in session.states}
            runs.append(train(session, batches, rate))
    (expected, whole), (actual, parts) = runs
    for one, other in zip(expected, actual, strict=True):
        assert other == pytest.approx(one, rel=1e-5)
    shares = {}
    for name, array in whole.items():
        moved, largest = (float(np.abs(each).max(initial=0)) for each in (array - first[name], array))
        if moved > 1e-4 * largest:
            rounding = len(batches) * np.finfo(np.float32).eps * largest if array.ndim else 0
            shares[name] = max(0.0, float(np.abs(parts[name] - array).max()) - rounding) / moved
    return shares


ARCHITECTURES = {"mlp": lambda: Mlp(draw_normal(1)), "cnn": lambda: Cnn(draw_normal(2), "MaxPool")}


def thin(few: set[str]) -> list:
    """All meshes; all but a few only with --full."""
    return [pytest.param(*each, marks=[] if each[0] in few else pytest.mark.full) for each in MESHES]


@pytest.mark.parametrize(("mesh", "batch"), thin({"data=3", "data=4", "data=2,model=2"}))
@pytest.mark.parametrize("name", ["mlp", pytest.param("cnn", marks=pytest.mark.full)])
def test_descent_on_a_mesh_moves_as_on_one_rank(tools, tmp_path, name, mesh, batch):
    model = ARCHITECTURES[name]()
    batches = draw_batches(model, batch, 5)
    shares = compare_with_one_rank(tools, tmp_path, model, "sgd", batches, 0.1, {"batch": batch}, mesh)
    assert shares.keys() >= model.weights.keys() and max(shares.values()) <= 1e-5, shares


OPTIMIZERS = ["adamw", "lamb(lr=1)", "adafactor(lr=1, min_factored=5)"]


@pytest.mark.parametrize(("mesh", "batch"), thin({"model=3", "data=2,model=2"}))
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["mlp", pytest.param("cnn", marks=pytest.mark.full)])
def test_optimizers_on_a_mesh_see_what_one_rank_sees(tools, tmp_path, name, optimizer, mesh, batch):
    model = ARCHITECTURES[name]()
    compare_with_one_rank(tools, tmp_path, model, optimizer, draw_batches(model, batch, 5), 0.01, {"batch": batch}, mesh)


def make_transformer(name: str) -> onnx.ModelProto:
    if name == "bert":
        config = zoo.BertConfig(layers=2, hidden=32, heads=4, vocabulary=50, positions=16, intermediate=64)
        return zoo.bert(config, zoo.Random(0))
    architecture, options = zoo.SMALL[name]
    return zoo.MODELS[architecture].make(**options)


def draw_tokens(model: onnx.ModelProto, dims: dict[str, int], steps: int) -> tuple[str, list[dict[str, np.ndarray]]]:
    """The first output's name, and inputs with a label for each of its rows."""
    output = model.graph.output[0]
    shape = [dims[d.dim_param] if d.dim_param else d.dim_value for d in output.type.tensor_type.shape.dim]
    batches = []
    for step in range(steps):
        inputs = zoo.random_inputs(model.graph, dims, 50, seed=step)
        for name in ("attention_mask", "token_type_ids"):
            if name in inputs:
                inputs[name] = np.ones_like(inputs[name])
        batches.append(inputs | {"labels": np.random.default_rng(step).integers(0, shape[-1], shape[:-1])})
    return output.name, batches


@pytest.mark.parametrize("mesh", ["data=2,model=2", pytest.param("data=3", marks=pytest.mark.full), pytest.param("model=2", marks=pytest.mark.full)])
@pytest.mark.parametrize("optimizer", ["sgd", pytest.param("adamw", marks=pytest.mark.full)])
@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "vit", "moe"])
def test_transformers_on_a_mesh_see_what_one_rank_sees(tools, tmp_path, name, optimizer, mesh):
    model = make_transformer(name)
    dims = {"batch": 4, "sequence": 6} if name != "vit" else {"batch": 4}
    output, batches = draw_tokens(model, dims, 5)
    rate = 0.1 if optimizer == "sgd" else 1e-3
    shares = compare_with_one_rank(
        tools, tmp_path, model, optimizer, batches, rate, dims, mesh, loss=f"cross_entropy({output}, labels)"
    )
    # Adam divides by gradients that are only rounding, as those of keys' biases, which softmax cancels.
    assert len(shares) > 10 and (optimizer == "adamw" or max(shares.values()) <= 1e-5), shares


PLACES = [("data=3", "none"), ("model=2", "none"), ("data=2,model=2", "none"), ("data=2", "zero 1"), ("data=2", "zero 3")]


@pytest.mark.parametrize(("mesh", "storage"), PLACES)
def test_all_devices_skip_a_step_that_one_cannot_take(tools, tmp_path, mesh, storage):
    """One sample's infinity leaves every state unchanged on all devices; later steps equal those of a run without that batch."""
    model = Mlp(draw_normal(1))
    batches = draw_batches(model, 9, 3)
    broken = {"x": batches[1]["x"].copy(), "labels": batches[1]["labels"]}
    broken["x"][8, 2] = np.inf
    shard = None if storage == "none" else split(model, storage)
    with compile_training(tools, model, tmp_path, "adamw", {"batch": 9}, mesh, shard=shard) as session:
        _, whole = train(session, batches, 0.01)
        session.reset_states()
        _, before = train(session, batches[:1], 0.01)
        outputs = session.run(broken | {"learning_rate": np.array(0.01, np.float32)}, entry="train_step")
        assert outputs["committed"] == 0 and not np.isfinite(outputs["loss"])
        for name, array in before.items():
            assert session.get_state(name).tobytes() == array.tobytes(), name
        _, after = train(session, batches[1:], 0.01)
    # The operations and their order are the same, so the bits are equal: a plan's results depend only on its inputs.
    for name, array in whole.items():
        assert after[name].tobytes() == array.tobytes(), name
