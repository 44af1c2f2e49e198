"""Training in 16 bits with a loss scale: what a step computes, when it is skipped, and how the scale changes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from training_models import Cnn, Mlp, cross_entropy, draw_normal, read_log, squared_error

import gridloom

HALF = 65504.0  # the largest f16


def compile_plan(tools, folder, model, batch: int, mesh: str = "", **options) -> gridloom.Plan:
    options = {"train": True, "loss": "mse(y, t)", "optimizer": "sgd(lr=0.1)", "dims": {"batch": batch}, "precision": "f16", **options}
    return gridloom.compile(model.save(folder / "m.onnx"), folder / "m.plan", mesh=mesh or None, tools=tools.folder, **options)


def step(session: gridloom.Session, batch: dict[str, np.ndarray], rate: float = 0.1) -> dict[str, float]:
    outputs = session.run(batch | {"learning_rate": np.array(rate, np.float32)}, entry="train_step")
    return {name: float(value) for name, value in outputs.items() if value.ndim == 0}


def get_states(session: gridloom.Session) -> dict[str, np.ndarray]:
    return {name: session.get_state(name) for name in session.states}


def draw_targets(model, batch: int, steps: int, seed: int = 3) -> list[dict[str, np.ndarray]]:
    """Inputs, and a smooth function of them as targets."""
    random = np.random.default_rng(seed)
    matrix = random.standard_normal((int(np.prod(model.row)), model.classes)) / 4
    batches = []
    for _ in range(steps):
        x = random.standard_normal((batch, *model.row))
        batches.append({"x": x.astype(np.float32), "t": np.tanh(x.reshape(batch, -1) @ matrix).astype(np.float32)})
    return batches


SCALES = ["dynamic", "1024", "dynamic(init=3000)"]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_a_step_is_that_of_float64(tools, tmp_path, kind, scale):
    """Rounded to f16, each time by at most 2^-11 of the number: inputs, weights, each layer's values, their derivatives. A gradient is a
    sum of products of such numbers, each after at most eight roundings here: together at most 8 * 2^-11 of its largest element, if all
    had one sign. They have not: errors are 1 to 4.5 times 2^-11. The loss and the f32 values add 1e-6."""
    model = Mlp(draw_normal(1)) if kind == "mlp" else Cnn(draw_normal(2), "AveragePool")
    random = np.random.default_rng(5)
    batch = {"x": random.standard_normal((8, *model.row)).astype(np.float32), "labels": random.integers(0, model.classes, 8)}
    weights = {name: array.astype(np.float64) for name, array in model.weights.items()}
    y, kept = model.forward(weights, batch["x"].astype(np.float64), np.einsum)
    loss, dy = cross_entropy(y, batch["labels"])
    gradients = model.backward(weights, kept, dy, np.einsum)
    plan = compile_plan(tools, tmp_path, model, 8, loss="cross_entropy(y, labels)", loss_scale=scale)
    with gridloom.load(plan, threads=1) as session:
        results = step(session, batch)
        assert results["committed"] == 1 and results["loss_scale"] == float(re.search(r"\d+", scale)[0] if scale != "dynamic" else 65536)
        assert results["loss"] == pytest.approx(loss, rel=8 * 2**-11)
        assert results["gradient_norm"] == pytest.approx(np.sqrt(sum((g**2).sum() for g in gradients.values())), rel=8 * 2**-11)
        for name, gradient in gradients.items():
            moved = (weights[name] - session.get_state(name)) / 0.1
            error = np.abs(moved - gradient).max() / np.abs(gradient).max()
            # The weight itself is f32: a step of a tenth is rounded to 2^-24 of the weight.
            rounding = 10 * 2**-24 * np.abs(weights[name]).max() / np.abs(gradient).max()
            assert error < 8 * 2**-11 + rounding, (name, error)


def test_a_power_of_two_changes_no_bit_in_f32(tools, tmp_path):
    """Even the largest scale does not make the norm of the gradients overflow: they are divided first."""
    model = Mlp(draw_normal(1))
    batches = draw_targets(model, 6, 4)
    found = []
    for scale in ("off", "0.125", str(2**60)):
        with gridloom.load(compile_plan(tools, tmp_path, model, 6, precision="f32", loss_scale=scale, clip="norm(0.1)"), threads=1) as session:
            results = [step(session, batch) for batch in batches]
            assert all(result.pop("loss_scale", None) == (None if scale == "off" else float(scale)) for result in results)
            assert all(result["committed"] == 1 for result in results)
            found.append((results, {name: array for name, array in get_states(session).items() if name != "train/loss_scale"}))
    for results, states in found[1:]:
        assert results == found[0][0] and states.keys() == found[0][1].keys()
        for name, array in states.items():
            assert array.tobytes() == found[0][1][name].tobytes(), name


def follow_scale(taken: list[bool], init: float, growth: float, backoff: float, interval: int, least: float) -> list[float]:
    """Each step's scale by the rules of PyTorch's GradScaler: growth after `interval` steps in a row, backoff after each skipped step."""
    scale, good, scales = init, 0, []
    for each in taken:
        scales.append(scale)
        good = good + 1 if each else 0
        if not each:
            scale = max(scale * backoff, least)
        elif good == interval:
            scale, good = scale * growth, 0
    return scales


SETTINGS = {"init": 4096.0, "growth": 2.0, "backoff": 0.5, "interval": 4, "least": 1.0}
DYNAMIC = "dynamic(init=4096, growth=2, backoff=0.5, interval=4)"
PLANTED = (3, 8, 9, 10, 21)


@pytest.mark.parametrize(
    ("mesh", "options"),
    [
        ("", {}),
        ("data=2", {}),
        ("data=2", {"clip": "norm(1)", "zero": 1}),
        ("data=2", {"clip": "value(0.5)", "optimizer": "adamw(lr=0.01)"}),
        ("data=3", {"zero": 3}),
        ("data=2,model=2", {}),
        ("", {"microbatches": 4}),
    ],
)
def test_an_overflow_of_one_rank_is_skipped_by_all(tools, tmp_path, mesh, options):
    """The last row of a batch is on one rank. Its target of 1e4 gives a derivative that overflows f16 at any scale from 128 on, and a
    finite loss. The other targets are below 1: no scale here is too large for them."""
    model = Mlp(draw_normal(1, scale=0.2))
    batches = draw_targets(model, 8, 30)
    for number in PLANTED:
        batches[number]["t"][-1, 0] = 1e4
    taken = [number not in PLANTED for number in range(len(batches))]
    scales = follow_scale(taken, **SETTINGS)
    assert min(scales) >= 128 and max(scales) <= 2**15
    plan = compile_plan(tools, tmp_path, model, 8, mesh, loss_scale=DYNAMIC, **options)
    losses = []
    with gridloom.load(plan, threads=1) as session:
        for number, batch in enumerate(batches):
            before = get_states(session)
            results = step(session, batch, 0.1 if "optimizer" not in options else 0.01)
            after = get_states(session)
            assert (results["committed"], results["loss_scale"]) == (taken[number], scales[number]), number
            assert np.isfinite(results["loss"]) and np.isfinite(results["gradient_norm"]) == taken[number]
            changed = {name for name in before if before[name].tobytes() != after[name].tobytes()}
            if not taken[number]:
                assert "train/loss_scale" in changed and changed <= {"train/loss_scale", "train/good_steps"}, number
                continue
            assert {*model.weights, "train/step"} <= changed
            losses.append(results["loss"])
        assert session.get_state("train/step") == sum(taken)
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])


def test_sums_of_ranks_that_overflow_are_found(tools, tmp_path):
    """A convolution's gradient is f16, also while ranks add theirs: both halves of a batch are equal, so the sum is twice each part. If
    the parts are finite but the sum is not, no rank takes the step."""
    model = Cnn(draw_normal(2), "AveragePool")
    half = draw_targets(model, 4, 1)[0]
    batch = {name: np.concatenate([array, array]) for name, array in half.items()}
    weights = {name: array.astype(np.float64) for name, array in model.weights.items()}
    y, kept = model.forward(weights, half["x"].astype(np.float64), np.einsum)
    gradients = model.backward(weights, kept, squared_error(y, half["t"])[1], np.einsum)
    largest = max(np.abs(gradients[name]).max() for name in ("c1", "c2"))
    # The mean is over 40 elements, and 32 is the power of two below: gradients of sums are multiplied by scale / 32.
    for target, taken in ((0.4 * HALF, 1), (0.75 * HALF, 0)):
        scale = f"{32 * target / largest:.6g}"
        with gridloom.load(compile_plan(tools, tmp_path, model, 8, "data=2", loss_scale=scale), threads=1) as session:
            results = step(session, batch)
        assert results["committed"] == taken and np.isfinite(results["loss"]), scale
    with gridloom.load(compile_plan(tools, tmp_path, model, 4, loss_scale=f"{16 * 0.75 * HALF / largest:.6g}"), threads=1) as session:
        assert step(session, half)["committed"] == 1  # one rank's half alone


@pytest.mark.parametrize(("precision", "mesh"), [("f16", "data=2"), ("f16", ""), ("bf16", "data=2")])
def test_plans_are_what_their_programs_say(tools, tmp_path, precision, mesh):
    scale = {} if precision == "f16" else {"loss_scale": "dynamic"}
    plan = compile_plan(tools, tmp_path, Mlp(draw_normal(1)), 6, mesh, precision=precision, metric="accuracy(y, l)", loss="cross_entropy(y, l)", **scale)
    text = tools.call("check", plan.path, "--exact", "--input", "l=randint(0,5)").stdout
    assert "PASS" in text and "5 calls of one session" in text
    assert "output 'loss_scale'" in text and "output 'train/loss_scale'" in text


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_losses_are_computed_in_f32(tools, tmp_path, precision):
    """From logits, which a product gives as f32 sums, to their derivatives."""
    dump = tmp_path / "ir"
    compile_plan(tools, tmp_path, Mlp(draw_normal(1)), 32, precision=precision, loss="cross_entropy(y, l)", dump_ir=dump)
    text = next(dump.glob("*simplify.mlir")).read_text()
    body = re.search(r"func\.func @train_step.*?\n  }", text, re.DOTALL)[0]
    assert "loom.full_precision" not in text
    for op in ("loom.exp", "loom.log"):
        found = re.findall(rf"{re.escape(op)} .*", body)
        assert found and all("xf32>" in each and "f16" not in each for each in found), found
    products = re.findall(r"loom\.dot_general .*", body)
    assert sum(f"{precision}>, " in each for each in products) == len(products) == 5
    # Of five products, the logits and the gradients of both layers are f32; the values between the layers, and their derivative, are not.
    assert sum(each.rstrip().split(" loc")[0].endswith("f32>") for each in products) == 3


def save_data(folder, model, samples: int, planted: int | None = None) -> None:
    data = draw_targets(model, samples, 1)[0]
    if planted is not None:
        data["t"][planted, 0] = 1e4
    np.savez(folder / "data.npz", **data)


def test_a_run_goes_on_past_overflows(tools, tmp_path):
    """Each epoch has one; a run in two parts continues with the scale, and equals the run in one part bit for bit."""
    model = Mlp(draw_normal(1, scale=0.2))
    save_data(tmp_path, model, 40, planted=17)
    plan = compile_plan(tools, tmp_path, model, 8, "data=2", loss_scale=DYNAMIC).path
    run = ["train", plan, "--data", tmp_path / "data.npz", "--lr", 0.1]
    whole = tools.call(*run, "--steps", 20, "--log", tmp_path / "whole.csv", "--checkpoint-dir", tmp_path / "whole")
    assert re.search(r"step 1/20  loss \S+  lr 0.1  scale 4096  ", whole.stdout)
    assert "4 steps not taken, 4 for the loss's scale" in whole.stdout and "is not taken" not in whole.stderr
    for steps in (7, 20):
        tools.call(*run, "--steps", steps, "--log", tmp_path / "parts.csv", "--checkpoint-dir", tmp_path / "parts", "--resume")
    rows = read_log(tmp_path / "whole.csv")
    taken = [row["committed"] == "1" for row in rows]
    assert [float(row["loss_scale"]) for row in rows] == follow_scale(taken, **SETTINGS) and taken.count(False) == 4
    columns = lambda each: [{k: v for k, v in row.items() if k != "ms"} for row in each]  # noqa: E731
    assert columns(read_log(tmp_path / "parts.csv")) == columns(rows)
    files = [max((tmp_path / name).glob("step-*")) / "states.safetensors" for name in ("whole", "parts")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert b"train/loss_scale" in files[0].read_bytes()
    assert re.search(r"train/loss_scale\s.*run", tools.call("checkpoint", "inspect", tmp_path / "whole").stdout)


def test_a_run_stops_where_the_scale_cannot_help(tools, tmp_path):
    """An overflow at the least scale, which a fixed scale always is; and a loss that is infinite or NaN at any scale."""
    model = Mlp(draw_normal(1, scale=0.2))
    save_data(tmp_path, model, 8, planted=5)
    run = ["--data", tmp_path / "data.npz", "--steps", 30, "--log"]
    for scale, steps in (("1024", 1), ("dynamic(init=1024, min=256)", 3)):
        plan = compile_plan(tools, tmp_path, model, 8, loss_scale=scale).path
        log = tmp_path / f"{steps}.csv"
        result = tools.call("train", plan, *run, log, check=False)
        assert result.returncode == 1 and len(read_log(log)) == steps
        last = 1024 // 2 ** (steps - 1)
        assert re.search(rf"step {steps} .* is not taken: the loss is \S+, the gradient norm -?\w+, the scale of the loss {last};", result.stderr)
    data = dict(np.load(tmp_path / "data.npz"))
    data["t"][5, 0] = np.inf
    np.savez(tmp_path / "data.npz", **data)
    plan = compile_plan(tools, tmp_path, model, 8, loss_scale="dynamic").path
    result = tools.call("train", plan, *run, tmp_path / "inf.csv", check=False)
    assert result.returncode == 1 and "step 1 (" in result.stderr and "data.npz: t holds inf in sample 5" in result.stderr.replace("t.npy", "data.npz: t")
    again = [*run[:-1], "--checkpoint-dir", tmp_path / "run", "--resume"]
    for _ in range(2):  # the checkpoint has the scale before the step
        assert "the scale of the loss 65536;" in tools.call("train", plan, *again, check=False).stderr


def test_python_goes_on_past_overflows(tools, tmp_path):
    model = Mlp(draw_normal(1, scale=0.2))
    batches = draw_targets(model, 8, 12)
    batches[4]["t"][-1, 0] = 1e4
    plan = compile_plan(tools, tmp_path, model, 8, loss_scale=DYNAMIC)
    with gridloom.Trainer(plan, lr=0.1, threads=1) as trainer:
        history = trainer.fit(batches, epochs=1)
        assert [each["committed"] for each in history] == [number != 4 for number in range(12)]
        assert [each["loss_scale"] for each in history] == follow_scale([each["committed"] for each in history], **SETTINGS)
        batches[4]["t"][-1, 0] = np.nan
        scales = []
        trainer.callbacks.append(lambda _, step, results: scales.append(results["loss_scale"]))
        with pytest.raises(FloatingPointError, match="its loss is nan"):
            trainer.fit(batches, epochs=1)
        assert len(scales) == 5 and trainer.session.get_state("train/loss_scale") == scales[-1]  # it was not halved
    with gridloom.Trainer(compile_plan(tools, tmp_path, model, 8, loss_scale=1024), threads=1) as trainer:
        batches[0]["t"][-1, 0] = 1e4
        with pytest.raises(FloatingPointError, match="the norm of its gradients"):
            trainer.fit(batches, epochs=1)


REFUSED = {
    "dynamic(init=0)": "has init=0, which is not a number from 2^-60 to 2^60",
    "dynamic(growth=0.5)": "has growth=0.5, which is not a number from 1",
    "dynamic(backoff=1)": "has backoff=1, which is not a number from 2^-60 to below 1",
    "dynamic(interval=0)": "has interval=0, which is not a whole number from 1",
    "dynamic(init=1, min=2)": "begins below its min",
    "dynamic(decay=1)": "has no setting decay",
    "-1": "is not a number from 2^-60 to 2^60",
    "static": "is neither dynamic, a number nor off",
}


def test_scales_that_are_none_are_refused(tools, tmp_path):
    path = Mlp(draw_normal(1)).save(tmp_path / "m.onnx")
    run = ["compile", path, "-o", tmp_path / "m.plan", "--dim", "batch=8"]
    for text, error in REFUSED.items():
        result = tools.call(*run, "--train", "--loss", "mse(y, t)", f"--loss-scale={text}", check=False)
        assert result.returncode == 1 and f"loss scale '{text}' {error}" in result.stderr, result.stderr
    assert "--loss-scale 8 goes with --train" in tools.call(*run, "--loss-scale", "8", check=False).stderr
