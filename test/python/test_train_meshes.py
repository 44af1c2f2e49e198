"""Training on any mesh computes what one rank computes: bit for bit where sums are exact, and as float64 formulas do."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
from training_models import SIGNS, Cnn, Mlp, Sums, read_checkpoint, split, split_as_zero, squared_error

import gridloom
from gridloom import zoo

# Batch sizes that the data axis divides, and ones that it does not.
MESHES = [("data=2", 6), ("data=3", 7), ("data=4", 7), ("model=2", 6), ("model=3", 7), ("data=2,model=2", 7)]
# States that are split over the batch's devices, in storage or in use; and those of ZeRO's first and third stages.
STORAGES = ["moments", "all", "moments stored", "all stored", "zero 1", "zero 3"]


def draw_powers(seed: int):
    random = np.random.default_rng(seed)
    return lambda *shape: random.choice([-1, -0.5, 0.5, 1], shape)


def compile_job(tools, folder, model, optimizer: str, batch: int, mesh: str = "", **options) -> gridloom.Session:
    path = model.save(folder / "m.onnx")
    options = {"train": True, "loss": "mse(y, t, reduction=sum)", "optimizer": optimizer, "dims": {"batch": batch}, **options}
    return gridloom.load(gridloom.compile(path, folder / "m.plan", mesh=mesh or None, tools=tools.folder, **options), threads=1)


def draw_batches(model, batch: int, steps: int, largest: int = 2) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(8)
    draw = lambda *shape: random.integers(-largest, largest + 1, shape).astype(np.float64)  # noqa: E731
    return [{"x": draw(batch, *model.row), "t": draw(batch, model.classes)} for _ in range(steps)]


def sign_descent(w, m, gradient, rate):
    return w - rate * np.sign(gradient), gradient


def heavy_ball(w, m, gradient, rate):
    m = 0.5 * m + gradient
    return w - rate * m, m


def run_by_hand(model, batches, update, rate: float, slot: str):
    """Losses and states in float64. Asserts that every sum is exact in any order."""
    sums, losses = Sums(), []
    weights = dict(model.weights)
    memory = {name: np.zeros_like(array) for name, array in weights.items()}
    for batch in batches:
        y, kept = model.forward(weights, batch["x"], sums)
        loss, dy = squared_error(y, batch["t"])
        losses.append(np.float32(loss))
        sums("bo,bo->", y - batch["t"], y - batch["t"])
        for name, gradient in model.backward(weights, kept, dy, sums).items():
            weights[name], memory[name] = update(weights[name], memory[name], gradient, rate)
    assert sums.most < 2**53
    return losses, weights | {f"{name}/{slot}": array for name, array in memory.items()}


def assert_exact(session: gridloom.Session, batches, rate: float, expected) -> None:
    losses, states = expected
    for step, (batch, loss) in enumerate(zip(batches, losses, strict=True), 1):
        outputs = session.run(batch | {"learning_rate": np.array(rate, np.float32)}, entry="train_step")
        assert (outputs["count"], outputs["committed"]) == (1, 1), step
        assert outputs["loss"] == loss, step
    assert session.states.keys() == {"train/step", *states}
    assert session.get_state("train/step") == len(batches)
    for name, array in states.items():
        np.testing.assert_array_equal(session.get_state(name), array, err_msg=name)
    # The other entries read the same states.
    batch = {name: batches[0][name] for name in ("x", "t")}
    y = session.run({"x": batch["x"]}, entry="main")["y"]
    assert session.run(batch, entry="eval")["loss"] == np.float32(squared_error(y, batch["t"])[0])


MODELS = {
    "mlp": lambda: Mlp(draw_powers(1)),
    "wide": lambda: Mlp(draw_powers(1), hidden=16, classes=16),  # all its gradients fill whole cache lines
    "average": lambda: Cnn(draw_powers(2)),
    "max": lambda: Cnn(draw_powers(2), "MaxPool"),
}


def check_signs(tools, folder, name: str, batch: int, mesh: str, **options):
    model, rate = MODELS[name](), 2.0**-4
    batches = draw_batches(model, batch, 20)
    expected = run_by_hand(model, batches, sign_descent, rate, "m")
    moved = [np.abs(expected[1][name] - array).max() for name, array in model.weights.items()]
    assert min(moved) >= 4 * rate and expected[0][-1] != expected[0][0]
    with compile_job(tools, folder, model, SIGNS, batch, mesh, **options) as session:
        assert_exact(session, batches, rate, expected)


# The CNNs run on all meshes only with --full.
SIGN_CASES = [
    pytest.param(name, *case, marks=[] if name == "mlp" or case[0] in few else pytest.mark.full)
    for name, few in (("mlp", ()), ("average", ("data=3", "model=2")), ("max", ("data=2,model=2",)))
    for case in [("", 7), *MESHES]
]


@pytest.mark.parametrize(("name", "mesh", "batch"), SIGN_CASES)
def test_sign_descent_is_exact(tools, tmp_path, name, mesh, batch):
    check_signs(tools, tmp_path, name, batch, mesh)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(
    ("name", "mesh", "batch"),
    [
        ("mlp", "data=3", 7),
        pytest.param("mlp", "data=2", 6, marks=pytest.mark.full),
        pytest.param("average", "data=2", 7, marks=pytest.mark.full),
        pytest.param("average", "data=3", 7, marks=pytest.mark.full),
    ],
)
def test_states_split_over_the_data_are_exact(tools, tmp_path, name, mesh, batch, storage):
    check_signs(tools, tmp_path, name, batch, mesh, shard=split(MODELS[name](), storage))


@pytest.mark.parametrize(("mesh", "batch"), [("", 7), *MESHES])
def test_momentum_is_exact(tools, tmp_path, mesh, batch):
    """Two steps, each of which needs a finer grid for the next."""
    model, rate = Mlp(draw_powers(1)), 2.0**-8
    batches = draw_batches(model, batch, 2, largest=1)
    expected = run_by_hand(model, batches, heavy_ball, rate, "momentum")
    with compile_job(tools, tmp_path, model, "sgd(lr=1, momentum=0.5)", batch, mesh) as session:
        assert_exact(session, batches, rate, expected)


@pytest.mark.parametrize("storage", ["moments", "all stored"])
def test_states_split_on_a_mesh_of_two_axes_are_exact(tools, tmp_path, storage):
    check_signs(tools, tmp_path, "mlp", 7, "data=2,model=2", shard=split(MODELS["mlp"](), storage))


@pytest.mark.parametrize(
    ("name", "mesh", "batch", "options"),
    [
        ("mlp", "data=2", 6, {"zero": 1}),
        ("mlp", "data=3", 7, {"zero": 3}),
        ("mlp", "data=2,model=2", 7, {"zero": 2}),
        ("mlp", "", 8, {"microbatches": 4}),
        ("mlp", "data=2", 8, {"microbatches": 4, "bucket_size": 256}),
        ("wide", "data=2", 8, {}),
        ("wide", "data=3", 8, {"microbatches": 4}),
        ("mlp", "data=3", 8, {"microbatches": 2, "bucket_size": 0}),
        ("mlp", "data=3", 8, {"microbatches": 4, "zero": 2}),
        ("mlp", "data=2,model=2", 12, {"microbatches": 3, "zero": 3}),
        ("mlp", "data=2,model=2", 8, {"microbatches": 4, "zero": 1}),
        ("wide", "data=3", 8, {"microbatches": 4, "zero": 1}),
        ("mlp", "data=4", 16, {"microbatches": 4, "zero": 1, "bucket_size": 256}),
        ("wide", "data=4", 16, {"microbatches": 4, "zero": 2}),
        ("mlp", "data=4", 16, {"microbatches": 4, "zero": 3}),
        ("average", "data=2", 8, {"microbatches": 2, "zero": 1}),
        pytest.param("max", "data=4", 8, {"microbatches": 2, "zero": 3}, marks=pytest.mark.full),
    ],
)
def test_zero_and_parts_of_a_batch_are_exact(tools, tmp_path, name, mesh, batch, options):
    check_signs(tools, tmp_path, name, batch, mesh, **options)


def count_messages(plan, entry: str) -> dict[str, int]:
    """The number of calls of collectives by kind in an entry's last dump: groups, each of which is one message."""
    text = (plan.path / "ir" / "07-fuse.mlir").read_text()
    body = re.search(rf"func.func @{entry}\w*\(.*?\n  \}}", text, re.S)[0]
    kinds = re.findall(r"= dist\.start \{\n[^\n]*= dist\.(all_reduce|all_gather|reduce_scatter) ", body)
    return {kind: kinds.count(kind) for kind in set(kinds)}


def test_gradients_are_reduced_once_a_step(tools, tmp_path):
    """For any number of micro-batches, partial sums are added before they are sent, in one bucket with the loss."""
    path = Mlp(lambda *shape: draw_powers(1)(*shape).astype(np.float32)).save(tmp_path / "m.onnx")
    options = {"train": True, "loss": "mse(y, t)", "dims": {"batch": 8}, "mesh": "data=2", "tools": tools.folder}
    plans = {
        parts: gridloom.compile(path, tmp_path / f"{parts}.plan", microbatches=parts, **options) for parts in (1, 4)
    }
    assert count_messages(plans[1], "train_step") == count_messages(plans[4], "train_step") == {"all_reduce": 1}


def compile_wide(tools, folder, mesh: str, batch: int, **options):
    """An MLP in which four divides every split dimension, and the bytes of its weights."""
    model = Mlp(lambda *shape: draw_powers(1)(*shape).astype(np.float32), hidden=512, classes=16)
    # Large batches, so that gradients are smaller to send than the values they are computed from.
    options = {"train": True, "loss": "mse(y, t)", "optimizer": "adam", "dims": {"batch": batch}, "mesh": mesh, "tools": tools.folder, **options}
    plan = gridloom.compile(model.save(folder / "m.onnx"), folder / "m.plan", **options)
    return plan, sum(array.nbytes for array in model.weights.values())


def measure_sent(plan, devices: int) -> dict[str, int]:
    """Bytes that each device of a ring sends in a step, by kind of collective."""
    shares = {"all_reduce": 2 * (devices - 1) / devices, "reduce_scatter": (devices - 1) / devices, "all_gather": devices - 1}
    sent = dict.fromkeys(shares, 0)
    for each in plan.report["collectives"]:
        if each["entry"] == "train_step":
            sent[each["kind"]] += each["bytes"] * each["times"] * shares[each["kind"]]
    return sent


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("mesh", ["data=2", pytest.param("data=4", marks=pytest.mark.full)])
def test_sums_of_parts_are_split_as_the_states(tools, tmp_path, mesh, level, parts):
    """From stage 2 on each micro-batch's gradients are scattered before they are added; in stage 1 they are added first and scattered
    once."""
    plan, size = compile_wide(tools, tmp_path, mesh, 1024, zero=level, microbatches=parts, bucket_size=0)
    rounds, devices = 1 if level == 1 else parts, int(mesh[-1])
    assert count_messages(plan, "train_step") == {"reduce_scatter": 4 * rounds, "all_gather": 4, "all_reduce": 2}
    lines = [line for line in (plan.path / "ir" / "03-shard.mlir").read_text().splitlines() if "loom.accumulates" in line]
    assert len(lines) == 4 * (parts - 1)
    lies = r'dist\.splits = .*unreduced = \{"data"\}>' if level == 1 else r'dist\.shardings = \[[^>]*\{"data"\}'
    assert all(f"--zero {level}" in line and re.search(lies, line) for line in lines)
    sent = measure_sent(plan, devices)
    assert sent["reduce_scatter"] == rounds * size * (devices - 1) / devices
    assert sent["all_gather"] == size * (devices - 1) / devices


def test_parts_of_a_batch_come_one_after_another(tools, tmp_path):
    """With four micro-batches, the backward pass keeps three activations of a quarter of the batch, plus the sums of gradients. Of the
    whole batch it keeps two: there the order is free."""
    arenas, activation = {}, 2048 // 2 * 512 * 4
    for parts in (1, 4):
        plan, size = compile_wide(tools, tmp_path, "data=2", 2048, microbatches=parts)
        step = re.search(r"plan\.program @train_step.*?\n  \}(.*)", (plan.path / "ir" / "09-allocate.mlir").read_text(), re.S)[1]
        arenas[parts] = int(re.search(r"arena_bytes = (\d+)", step)[1])
    assert arenas[1] < 2 * activation + 4 * size
    assert arenas[4] < 3 * activation / 4 + 4 * size


def test_zero_scatters_and_gathers(tools, tmp_path):
    """Each parameter's gradient is scattered to its moments' devices, and the weight is gathered once. Adam keeps 3 P bytes for P bytes
    of weights; each of two devices then holds 2 P, or 1.5 P if the weights are split, too."""
    path = Mlp(draw_powers(1), hidden=512).save(tmp_path / "m.onnx")
    options = {"train": True, "loss": "mse(y, t)", "dims": {"batch": 8}, "mesh": "data=2", "tools": tools.folder}
    states = {}
    for level in (0, 1, 3):
        plan = gridloom.compile(path, tmp_path / f"{level}.plan", optimizer="adam(lr=1e-3)", zero=level or None, **options)
        counts = count_messages(plan, "train_step")
        if level:
            assert (counts["reduce_scatter"], counts["all_gather"]) == (1, 2 if level == 3 else 1)
        states[level] = plan.report["memory"]["states_bytes"]
    assert states[1] / states[0] == pytest.approx(2 / 3, rel=0.02)
    assert states[3] / states[0] == pytest.approx(1 / 2, rel=0.02)


@pytest.mark.parametrize(("mesh", "batch"), MESHES[2:])
def test_replicas_are_equal(tools, tmp_path, mesh, batch):
    """`check` reads each state on each rank, and compares bit by bit here: integers need no rounding."""
    model = Mlp(draw_powers(1))
    batches = draw_batches(model, batch, 1)
    compile_job(tools, tmp_path, model, SIGNS.replace("lr=1", "lr=0.0625"), batch, mesh).close()
    inputs = []
    for name, array in batches[0].items():
        np.save(tmp_path / f"{name}.npy", array)
        inputs += ["--input", f"{name}={tmp_path / name}.npy"]
    text = tools.call("check", tmp_path / "m.plan", "--rtol", 0, "--atol", 0, *inputs).stdout
    assert re.search(r"call 5: compiled against 02-simplify: output 'w1/m' f64\[10, 14\]: max abs 0.00e\+00", text)


def make_random_case(folder, name: str, seed: int):
    """A model, its loss, the optimizer, sizes and the inputs of a check."""
    optimizers = ["sgd(lr=0.05, momentum=0.5)", "adamw(lr=1e-2)", "lamb(lr=1e-2)", "adafactor(lr=1e-2, min_factored=5)"]
    normal = lambda *shape: (np.random.default_rng(sum(shape)).standard_normal(shape) / 3).astype(np.float32)  # noqa: E731
    if name == "gpt2":
        sizes = {"layers": 1, "hidden": 32, "heads": 4, "vocabulary": 40, "positions": 16}
        path = zoo.save(zoo.gpt2(zoo.Gpt2Config(**sizes), zoo.Random(0)), folder / "m.onnx")
        return path, "cross_entropy(logits, labels)", optimizers[0], {"batch": 4, "sequence": 6}, ["--input", "labels=randint(0,40)"]
    model = Mlp(normal) if name == "mlp" else Cnn(normal, "MaxPool")
    inputs = ["--input", "labels=randint(0,5)"]
    return model.save(folder / "m.onnx"), "cross_entropy(y, labels)", optimizers[seed % 4], {"batch": 4 + seed % 3}, inputs


@pytest.mark.parametrize("seed", [seed if seed < 1 else pytest.param(seed, marks=pytest.mark.full) for seed in range(20)])
@pytest.mark.parametrize("name", ["mlp", "cnn", "gpt2"])
def test_random_splits_train_as_no_split(tools, tmp_path, name, seed):
    """Steps, an evaluation, the model and another step, in one session: bit by bit in exact arithmetic, within rounding when compiled."""
    path, loss, optimizer, dims, inputs = make_random_case(tmp_path, name, seed)
    plan = tmp_path / "m.plan"
    options = {"train": True, "loss": loss, "metric": loss.replace("cross_entropy", "accuracy"), "optimizer": optimizer, "dims": dims}
    gridloom.compile(path, plan, mesh="x=2,y=2", strategy=f"random:{seed}", tools=tools.folder, **options)
    text = tools.call("check", plan, "--exact", *inputs).stdout
    assert "5 calls of one session" in text and "PASS" in text
    assert re.search(r"call 5: 07-fuse \(exact\) against 03-shard: output 'train/step' i64\[\]: equal", text)
    assert re.search(r"compiled, 4 ranks, against 02-simplify: output 'loss'", text)


@pytest.fixture(scope="module")
def split_plan(tools, tmp_path_factory):
    """A plan that splits the batch over two devices."""
    folder = tmp_path_factory.mktemp("split")
    path, loss, _, _, _ = make_random_case(folder, "mlp", 0)
    options = {"train": True, "loss": loss, "optimizer": "sgd(lr=0.1, momentum=0.5)", "dims": {"batch": 6}}
    return gridloom.compile(path, folder / "m.plan", mesh="data=2", tools=tools.folder, **options).path


def check_edited(tools, plan, folder, edit, *options) -> str:
    """The output of a check of a plan whose last program before the schedule phase was edited."""
    shutil.copytree(plan, folder)
    program = folder / "ir" / "07-fuse.mlir"
    program.write_text(edit(program.read_text()))
    model = ["--model", plan.parent / "m.onnx", "--input", "labels=randint(0,5)"]
    result = tools.call("check", folder, "--no-run", *model, *options, check=False)
    assert result.returncode == 1 and "nothing could be checked" not in result.stdout, result.stderr
    return result.stdout


def compile_apart(tools, folder, **options):
    """A plan that splits the batch over two devices; each gradient has its own reduction unless `options` say otherwise."""
    path, loss, _, _, _ = make_random_case(folder, "mlp", 0)
    options = {"train": True, "loss": loss, "optimizer": "sgd(lr=0.1, momentum=0.5)", "dims": {"batch": 6}, "bucket_size": 0, **options}
    return gridloom.compile(path, folder / "m.plan", mesh="data=2", tools=tools.folder, **options).path


def test_each_reduction_of_a_step_matters(tools, tmp_path):
    """A reduction changed to a maximum is detected in exact arithmetic, which shows that steps are taken and states change."""
    split_plan = compile_apart(tools, tmp_path)

    def edit(text: str, number: int) -> str:
        parts = re.split(r"(dist\.all_reduce .*? sum )", text)
        parts[2 * number + 1] = parts[2 * number + 1].replace(" sum ", " max ")
        return "".join(parts)

    text = (split_plan / "ir" / "07-fuse.mlir").read_text()
    count = len(re.findall(r"dist\.all_reduce .*? sum ", text[: text.index("@eval")]))
    assert count == 5  # four gradients and the loss
    for number in range(count):
        printed = check_edited(tools, split_plan, tmp_path / str(number), lambda text: edit(text, number), "--exact")  # noqa: B023
        assert re.search(r"call 2: 07-fuse \(exact\) .*<-- DIFFERS", printed), number


def edit_bucket(text: str, how: str) -> str:
    """The program with one wrong gradient in a bucket."""
    found = re.search(r"(%[\w.]+):(\d) = dist\.all_reduce (.*?) over .*\n( *)dist\.yield (.*?) : (.*?) loc.*", text)
    values, types = found[3].split(", "), found[6].split(", ")
    a, b = (i for i, each in enumerate(types) if each == "tensor<5xf32>")
    if how == "dropped":
        yielded = found[5].split(", ")
        yielded[b] = values[b]
        return text[: found.start(5)] + ", ".join(yielded) + text[found.end(5) :]
    if how == "other order":
        values[a], values[b] = values[b], values[a]
        return text[: found.start(3)] + ", ".join(values) + text[found.end(3) :]
    line = re.search(r"(%[\w.]+):\d = dist\.done .*\n", text[found.end() :])
    result, end = f"{line[1]}#{b}", found.end() + line.end()
    again = f"""%again_future = dist.start {{
      %again = dist.all_reduce {result} over ["data"] sum : tensor<5xf32>
      dist.yield %again : tensor<5xf32>
    }} : <tensor<5xf32>>
    %twice = dist.done %again_future : <tensor<5xf32>> -> tensor<5xf32>
"""
    return text[:end] + again + re.sub(rf"{re.escape(result)}\b", "%twice", text[end:])


@pytest.mark.parametrize("how", ["dropped", "other order", "twice"])
def test_each_gradient_of_a_bucket_matters(tools, tmp_path, how):
    """A gradient that is not reduced is refused by the verifier of groups. Two swapped gradients, and one reduced twice, differ in
    `check --exact`: verifiers accept them, because the two biases have the same type here."""
    path = Mlp(lambda *shape: draw_powers(1)(*shape).astype(np.float32), hidden=5).save(tmp_path / "m.onnx")
    options = {"train": True, "loss": "cross_entropy(y, labels)", "optimizer": "sgd(lr=0.1, momentum=0.5)", "dims": {"batch": 6}}
    plan = gridloom.compile(path, tmp_path / "m.plan", mesh="data=2", tools=tools.folder, **options).path
    if how == "dropped":
        program = plan / "ir" / "07-fuse.mlir"
        program.write_text(edit_bucket(program.read_text(), how))
        result = tools.call("check", plan, "--no-run", "--model", path, "--input", "labels=randint(0,5)", check=False)
        assert result.returncode == 1 and "yields a value that its group does not communicate" in result.stderr
        return
    printed = check_edited(tools, plan, tmp_path / "edited", lambda text: edit_bucket(text, how), "--exact")
    differing = set(re.findall(r"call 1: 07-fuse \(exact\) .* output '(\w+)/momentum' .*DIFFERS", printed))
    assert differing in ([{"b1", "b2"}] if how == "other order" else [{"b1"}, {"b2"}])


def test_a_moment_that_is_not_kept_shows_in_the_second_step(tools, split_plan, tmp_path):
    """A step that returns the old momentum as the new one: the weights differ after the next step."""

    def edit(text: str) -> str:
        step = text[: text.index("@eval")]
        arguments, results = re.search(r"@train_step_stage0\((.*?)\) -> \((.*)", step).groups()
        former = re.findall(r"(%[\w.]+): tensor<", arguments[: arguments.index('"w1/momentum"')])[-1]
        at = re.findall(r'loom.name = "([^"]+)"', results).index("w1/momentum")
        returned = re.search(r" return (.*?) : ", step)[1]
        values = returned.split(", ")
        values[at] = former
        return text.replace(f" return {returned} : ", f" return {', '.join(values)} : ", 1)

    printed = check_edited(tools, split_plan, tmp_path / "m.plan", edit)
    differing = set(re.findall(r"(call \d): 07-fuse .* output '(w1\S*)' .*DIFFERS", printed))
    assert ("call 2", "w1") in differing and ("call 1", "w1") not in differing


def test_replicas_that_differ_are_told(tools, tmp_path):
    """A plan that reduces a gradient over the wrong axis, with the dumps of a correct one."""
    path, loss, optimizer, dims, inputs = make_random_case(tmp_path, "mlp", 0)
    options = {"train": True, "loss": loss, "optimizer": optimizer, "dims": dims, "mesh": "data=2,model=2", "bucket_size": 0}
    right = gridloom.compile(path, tmp_path / "right.plan", tools=tools.folder, **options).path
    text = (right / "ir" / "07-fuse.mlir").read_text()
    found = re.search(r"dist\.all_reduce %[\w.]+ over (\[\"data\"\]) sum \{[^}]*'b2.update' needs the whole", text)
    (tmp_path / "07-fuse.mlir").write_text(text[: found.start(1)] + '["model"]' + text[found.end(1) :])
    wrong = tmp_path / "wrong.plan"
    tools.compile(tmp_path / "07-fuse.mlir", wrong, "--start-from", "schedule")
    for dump in (right / "ir").iterdir():
        shutil.copy(dump, wrong / "ir" / dump.name)
    result = tools.call("check", wrong, "--model", path, *inputs, check=False)
    assert result.returncode == 1
    assert "the plan does not run: state 'b2' differs between its replicas: rank " in result.stderr


def list_collectives(tools, folder, optimizer: str, mesh: str, shard=None, **options) -> list[tuple[str, int]]:
    """The kind and the bytes of the whole value, for each collective of a step."""
    model = Mlp(draw_powers(1))
    compile_job(tools, folder, model, optimizer, 12, mesh, shard=shard, **options).close()
    listed = json.loads(tools.call("inspect", folder / "m.plan", "collectives", "--format", "json").stdout)["collectives"]
    assert {each["over"] for each in listed} == {"data"} and {each["times"] for each in listed} == {1}
    return sorted((each["kind"], each["bytes"]) for each in listed if each["entry"] == "train_step")


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "lamb(lr=1)"])
@pytest.mark.parametrize("mesh", [pytest.param("data=2", marks=pytest.mark.full), "data=4"])
def test_a_step_reduces_each_gradient_once(tools, tmp_path, mesh, optimizer):
    """And otherwise only the sum of the losses: norms are of gradients that every device has whole."""
    gradients = [array.nbytes for array in Mlp(draw_powers(1)).weights.values()]
    found = list_collectives(tools, tmp_path, optimizer, mesh, clip="norm(1)", bucket_size=0)
    assert found == sorted(("all_reduce", size) for size in [*gradients, 8])


@pytest.mark.parametrize("microbatches", [1, 4])
@pytest.mark.parametrize("mesh", ["data=2", pytest.param("data=3", marks=pytest.mark.full), "data=4"])
def test_gradients_travel_in_buckets(tools, tmp_path, mesh, microbatches):
    """As few buckets as their size allows: a gradient as large as a bucket is alone, the others fill buckets in the order in which they
    are computed."""
    model = Mlp(lambda *shape: draw_powers(1)(*shape).astype(np.float32), hidden=512)
    path, sizes = model.save(tmp_path / "m.onnx"), [*(array.nbytes for array in model.weights.values()), 4]  # and the loss
    # Batches large enough that gradients are less to send than what they are computed from.
    options = {"train": True, "loss": "mse(y, t)", "dims": {"batch": 768}, "mesh": mesh, "microbatches": microbatches, "tools": tools.folder}
    found = {}
    for size in (25 << 20, 4096, 1):
        plan = gridloom.compile(path, tmp_path / f"{size}.plan", bucket_size=size, **options)
        calls = [each for each in plan.report["collectives"] if each["entry"] == "train_step"]
        assert {(each["kind"], each["times"]) for each in calls} == {("all_reduce", 1)}
        found[size] = [each["bytes"] for each in calls]
        large = [each for each in sizes if each >= size]
        assert len(calls) <= -(-sum(sizes) // size) + 1 + len(large)
        assert all(each in found[size] for each in large)
        # 60 bytes of zeros align values that fill no cache line: the loss, which comes first, and the last bias.
        assert sum(found[size]) == sum(sizes) + (60 if size > 1 else 0)
    assert [len(found[size]) for size in (25 << 20, 4096, 1)] == [1, 3, 5]


def test_a_bucket_says_what_it_holds(tools, tmp_path):
    """Parameters by name, the last layer's first. If all values but the loss fill cache lines, sums replace the gradients in place:
    nothing is copied, and a step takes less memory."""
    path = Mlp(lambda *shape: draw_powers(1)(*shape).astype(np.float32), hidden=512, classes=16).save(tmp_path / "m.onnx")
    options = {"train": True, "loss": "mse(y, t)", "dims": {"batch": 8}, "mesh": "data=2", "tools": tools.folder}
    memory = {}
    for size in (0, None):
        plan = gridloom.compile(path, tmp_path / f"{size}.plan", bucket_size=size, **options)
        memory[size] = plan.report["memory"]["arena_bytes"] + plan.report["memory"]["registered_bytes"]
    [one] = [each for each in plan.report["collectives"] if each["entry"] == "train_step"]
    assert one["because"].startswith("a bucket of 5: ")
    assert re.findall(r"'(\w+)\.update'", one["because"]) in (["b2", "w2", "b1", "w1"], ["b2", "b1", "w2", "w1"])
    text = (plan.path / "ir" / "08-schedule.mlir").read_text()
    step = re.search(r"plan\.program @train_step.*?\n  \}", text, re.S)[0]
    [bucket] = re.findall(r"plan\.group all_reduce .* ins\((%[\w.]+) : .*\) outs\((%[\w.]+) : ", step)
    assert bucket[0] == bucket[1]
    assert set(re.findall(r"plan\.copy ins\(\S+ : !plan\.buffer<(.*?)>\)", step)) <= {"tensor<f32>"}  # of outputs
    assert memory[None] < memory[0]


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("mesh", [pytest.param("data=2", marks=pytest.mark.full), "data=4"])
def test_shards_travel_in_buckets(tools, tmp_path, mesh, level, parts):
    """Reduce_scatters of gradients, from stage 2 on for each micro-batch, and all_gathers of updated weights. The bytes are those of the
    values."""
    devices, rounds, found = int(mesh[-1]), 1 if level == 1 else parts, {}
    for size in (25 << 20, 4096, 1):
        plan, total = compile_wide(tools, tmp_path, mesh, 2048, zero=level, microbatches=parts, bucket_size=size)
        messages = count_messages(plan, "train_step")
        found[size] = messages["reduce_scatter"], messages["all_gather"]
        sent = measure_sent(plan, devices)
        assert sent["reduce_scatter"] == rounds * total * (devices - 1) / devices
        assert sent["all_gather"] == total * (devices - 1) / devices
    # Two weights are larger than 4096 bytes, the two biases smaller.
    assert [found[size] for size in found] == [(rounds, 1), (3 * rounds, 3), (4 * rounds, 4)]


@pytest.mark.parametrize("stage", [1, 3])
def test_split_states_reduce_and_gather_each_weight_once(tools, tmp_path, stage):
    """A gradient is reduced to the device that updates the part; the weight is gathered where it is read whole, or after the update."""
    # Padded if the first dimension is odd.
    parts = [-(-len(array) // 2) * array[:1].nbytes for array in Mlp(draw_powers(1)).weights.values()]
    found = list_collectives(tools, tmp_path, "adamw", "data=2", split_as_zero(Mlp(draw_powers(1)), stage), bucket_size=0)
    sizes = lambda kind: sorted(size for each, size in found if each == kind)  # noqa: E731
    assert sizes("reduce_scatter") == sorted(2 * size for size in parts)
    assert sizes("all_gather") == sorted(parts)
    assert sizes("all_reduce") == [8, 8]  # the losses, and the gradients' norm


def test_weights_are_split_that_are_computed_with_in_16_bits(tools, tmp_path):
    """A 32-bit state is rounded before the product: the columns of the rounded weight have the state's sharding."""
    path, loss, optimizer, dims, inputs = make_random_case(tmp_path, "mlp", 0)
    options = {"train": True, "loss": loss, "optimizer": optimizer, "dims": dims, "precision": "bf16"}
    plan = gridloom.compile(path, tmp_path / "m.plan", mesh="data=2,model=2", tools=tools.folder, **options)
    assert "tp over model" in plan.log
    assert "PASS" in tools.call("check", plan.path, *inputs).stdout


def test_the_sharding_of_a_state_is_of_nothing_else(tools, tmp_path):
    """LAMB computes a norm, a scalar, from its moments."""
    path, loss, _, dims, inputs = make_random_case(tmp_path, "mlp", 0)
    options = {"train": True, "loss": loss, "optimizer": "lamb(lr=0.01)", "dims": dims, "shard": {"w1/m": "[{data},{}]"}}
    plan = gridloom.compile(path, tmp_path / "m.plan", mesh="data=2", tools=tools.folder, **options)
    assert "PASS" in tools.call("check", plan.path, "--exact", *inputs).stdout


def test_sizes_share_their_states(tools, tmp_path):
    """Two batch sizes, each with its own training step, evaluation and model."""
    path, loss, optimizer, _, inputs = make_random_case(tmp_path, "mlp", 0)
    options = {"train": True, "loss": loss, "optimizer": optimizer, "dims": {"batch": (3, 8)}}
    plan = gridloom.compile(path, tmp_path / "m.plan", mesh="data=3", tools=tools.folder, **options)
    text = tools.call("check", plan.path, "--exact", *inputs).stdout
    assert "8 calls of one session" in text and "PASS" in text


def test_inputs_of_a_check_are_of_some_entry(tools, split_plan):
    """Labels are an input of another entry; a name that no entry has is refused."""
    text = tools.call("check", split_plan, "--input", "labels=4", "--input", "learning_rate=0.5").stdout
    assert "entry 'main'" in text and "PASS" in text
    result = tools.call("check", split_plan, "--input", "lables=4", check=False)
    assert result.returncode == 1 and result.stderr == "error: the program has no input 'lables'\n"


@pytest.mark.parametrize(("oracle", "line"), [("1rank", "call 5: compiled against 1 rank"), ("ort", "ONNX Runtime does not train")])
def test_other_oracles_of_a_check(tools, split_plan, oracle, line):
    text = tools.call("check", split_plan, "--oracle", oracle).stdout
    assert line in text and "PASS" in text


@pytest.mark.parametrize("mesh", ["", "data=3", pytest.param("model=2", marks=pytest.mark.full)])
def test_a_run_goes_to_another_mesh_exactly(tools, tmp_path, mesh):
    """One process per rank: half of the steps on four ranks that each keep a part of every state, the rest on others. All samples are
    one batch, so that their order changes no bit."""
    model, rate, batch = MODELS["mlp"](), 2.0**-4, 7
    batches = draw_batches(model, batch, 1) * 20
    states = run_by_hand(model, batches, sign_descent, rate, "m")[1] | {"train/step": np.array(20)}
    np.savez(tmp_path / "data.npz", **batches[0])
    places = [("data=4", split_as_zero(model, 3)), (mesh, {})]
    for number, (place, shard) in enumerate(places, 1):
        compile_job(tools, tmp_path, model, SIGNS, batch, place, shard=shard).close()
        run = ["--checkpoint-dir", tmp_path / "run", "--resume", "--lr", rate, "--steps", 10 * number]
        tools.call("train", tmp_path / "m.plan", "--data", tmp_path / "data.npz", *run)
    found = read_checkpoint(tmp_path / "run")
    assert found.keys() == states.keys()
    for name, array in states.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
