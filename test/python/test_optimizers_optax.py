"""A hundred steps of every optimizer against optax in float64, with JAX's gradients: an oracle that is independent of test_train_float.py's
recurrences.

Where optax's convention differs from the one that `compile --help` names, the case compensates: eps outside of the root and an
accumulator of 0 as in PyTorch, a penalty instead of decoupled decay, a rate that decays. Left out: NAdam, because optax's has no
momentum decay and corrects by another step; SGD's dampening, which optax lacks. optax clips by limit / norm, PyTorch and Gridloom by
limit / (norm + 1e-6), a difference of 2e-6 here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from test_train_float import compile_training, draw_batches, train
from training_models import Mlp, draw_normal

REASON = "jax and optax are not installed; extra 'oracle' of pyproject.toml has them"
jax = pytest.importorskip("jax", reason=REASON)
optax = pytest.importorskip("optax", reason=REASON)
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy

STEPS, BATCH = 100, 16


def penalized(decay: float, rule) -> optax.GradientTransformation:
    """L2 decay, added to the gradient, as for `weight_decay` of PyTorch's optimizers other than AdamW."""
    return optax.chain(optax.add_decayed_weights(decay), rule)


@dataclasses.dataclass(frozen=True)
class Case:
    """`make` builds optax's rule for a learning rate."""

    text: str
    rate: float
    make: Callable[[float], optax.GradientTransformation]
    clip: float | None = None
    ema: float | None = None


CASES = [
    Case("sgd", 0.1, optax.sgd),
    Case("sgd(momentum=0.9, weight_decay=0.01)", 0.03, lambda lr: penalized(0.01, optax.sgd(lr, momentum=0.9))),
    Case("sgd(momentum=0.9, nesterov=true)", 0.03, lambda lr: optax.sgd(lr, momentum=0.9, nesterov=True), clip=0.5),
    Case("adam(weight_decay=0.01, eps=0.01)", 0.01, lambda lr: penalized(0.01, optax.adam(lr, eps=0.01))),
    Case("adamw(weight_decay=0.1)", 0.01, lambda lr: optax.adamw(lr, weight_decay=0.1), clip=1.0),
    Case("adamw(weight_decay=0.1, ema=0.9)", 0.01, lambda lr: optax.adamw(lr, weight_decay=0.1), ema=0.9),
    Case(
        "adagrad(lr_decay=0.01, initial=0.1)", 0.05,
        lambda lr: optax.adagrad(lambda step: lr / (1 + 0.01 * step), initial_accumulator_value=0.1, eps=0),
    ),
    Case("rmsprop", 0.003, lambda lr: optax.rmsprop(lr, decay=0.99, eps_in_sqrt=False)),
    Case(
        "rmsprop(centered=true, momentum=0.5)", 0.002,
        lambda lr: optax.rmsprop(lr, decay=0.99, eps_in_sqrt=False, centered=True, momentum=0.5),
    ),
    Case("adadelta", 1.0, lambda lr: optax.adadelta(lr, rho=0.9, eps=1e-6)),
    Case("lamb(lr=1, weight_decay=0.1)", 0.01, lambda lr: optax.lamb(lr, weight_decay=0.1)),
    Case("lars(lr=1, trust=0.1, weight_decay=0.01)", 0.1, lambda lr: optax.lars(lr, weight_decay=0.01, trust_coefficient=0.1)),
    Case(
        "lars(lr=1, trust=0.1, nesterov=true)", 0.03, lambda lr: optax.lars(lr, trust_coefficient=0.1, nesterov=True)
    ),
    Case(
        "adafactor(lr=1, min_factored=5, weight_decay=0.001)", 0.03,
        lambda lr: optax.adafactor(lr, min_dim_size_to_factor=5, weight_decay_rate=0.001),
    ),
    Case(
        "adafactor(lr=1, min_factored=5, momentum=0.9)", 0.01,
        lambda lr: optax.adafactor(lr, min_dim_size_to_factor=5, momentum=0.9),
    ),
    Case("lion(lr=1)", 0.002, lambda lr: optax.lion(lr, weight_decay=0.001)),
]  # fmt: skip


def measure_loss(weights, x, labels):
    hidden = jax.nn.relu(x @ weights["w1"] + weights["b1"])
    logits = hidden @ weights["w2"] + weights["b2"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def train_by_optax(model, batches, case: Case):
    """Losses and norms of the unclipped gradients, the weights, and their running averages."""
    rule = case.make(case.rate)
    if case.clip:
        rule = optax.chain(optax.clip_by_global_norm(case.clip), rule)

    @jax.jit
    def step(weights, states, averages, x, labels):
        loss, gradients = jax.value_and_grad(measure_loss)(weights, x, labels)
        updates, states = rule.update(gradients, states, weights)
        weights = optax.apply_updates(weights, updates)
        averages = optax.incremental_update(weights, averages, 1 - (case.ema or 0.0))
        return weights, states, averages, loss, optax.global_norm(gradients)

    weights = {name: jnp.asarray(array, jnp.float64) for name, array in model.weights.items()}
    averages, states, losses, norms = weights, rule.init(weights), [], []
    for batch in batches:
        x = jnp.asarray(batch["x"], jnp.float64)
        weights, states, averages, loss, norm = step(weights, states, averages, x, jnp.asarray(batch["labels"]))
        losses.append(float(loss))
        norms.append(float(norm))
    as_numpy = [{name: np.asarray(array) for name, array in each.items()} for each in (weights, averages)]
    return np.array(losses), np.array(norms), *as_numpy


def test_all_rules_are_here():
    from test_train_float import CASES as BY_HAND

    rules = {each.text.partition("(")[0] for each in BY_HAND}
    assert len(rules) == 11 and {each.text.partition("(")[0] for each in CASES} == rules - {"nadam"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.text)
def test_a_hundred_steps_are_those_of_optax(tools, tmp_path, case):
    model = Mlp(draw_normal(1))
    batches = draw_batches(model, BATCH, STEPS)
    losses, norms, weights, averages = train_by_optax(model, batches, case)
    assert np.mean(losses[-10:]) < 0.8 * losses[0]
    clip = f"norm({case.clip})" if case.clip else None
    with compile_training(tools, model, tmp_path, case.text, {"batch": BATCH}, clip=clip) as session:
        results, states = train(session, batches, case.rate)
    errors = {
        "loss": np.max(np.abs([result["loss"] for result in results] / losses - 1)),
        "norm": np.max(np.abs([result["gradient_norm"] for result in results] / norms - 1)),
    }
    wanted = {**weights, **({f"{name}/ema": array for name, array in averages.items()} if case.ema else {})}
    for name, want in wanted.items():
        moved = np.abs(want - model.weights[name.removesuffix("/ema")]).max()
        errors[name] = np.abs(states[name] - want).max() / moved
    print(case.text, {name: f"{error:.1e}" for name, error in errors.items()})
    assert max(errors.values()) < 2e-5, errors
