"""scripts/gpu-check and scripts/cluster-check: packs, verdicts, and that a fault is reported and the rest continues."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fakes
import numpy as np
import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

from hardware import folding, packs, recipes, world  # noqa: E402
from hardware.cluster import axis_groups, leave, work_folder  # noqa: E402
from hardware.programs import Reference  # noqa: E402
from hardware.report import FAIL, PASS, Missing, Problem, Report, call  # noqa: E402

from gridloom import zoo  # noqa: E402


def start(*command, env=None, timeout=240) -> subprocess.CompletedProcess:
    environment = {**os.environ, **(env or {})}
    command = [sys.executable, *map(str, command)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)


def results(path: Path) -> tuple[dict, dict]:
    """The JSON document, and its checks by name."""
    document = json.loads(path.read_text())
    assert document["schema"] == 1
    return document, {f"{c['section']}: {c['name']}": c for c in document["checks"]}


def plant_wrong_reference(pack: Path, model: str) -> None:
    path = pack / "references" / f"{model}.npz"
    reference = Reference(path)
    outputs = {
        n: reference.arrays[f"output:{n}"].reshape(reference.arrays[f"shape:{n}"]) + 1 for n in reference.outputs
    }
    Reference.write(path, reference.inputs, outputs)


# A report.


def test_a_failing_check_is_one_line_and_the_others_go_on(tmp_path, capsys):
    report = Report("test", limit=60)

    def fail(error):
        raise error

    report.check("s", "passes", 5, lambda: "well")
    report.check("s", "fails", 5, lambda: fail(Problem("two\nlines")))
    report.check("s", "crashes", 5, lambda: fail(KeyError("x")))
    report.check("s", "cannot", 5, lambda: fail(Missing("no tool")))
    begin = time.monotonic()
    report.check("s", "sleeps", 0.2, lambda: time.sleep(30))
    report.check("s", "waits", 0.2, lambda: call(["sleep", "30"]).stdout)
    assert time.monotonic() - begin < 25
    assert report.finish(tmp_path / "r.json") == 1
    document, checks = results(tmp_path / "r.json")
    found = {name: (check["result"], check["text"]) for name, check in checks.items()}
    assert found["s: passes"] == (PASS, "well")
    assert found["s: fails"] == (FAIL, "two lines")
    assert found["s: crashes"] == (FAIL, "KeyError: 'x'")
    assert found["s: cannot"] == ("none", "no tool")
    assert found["s: sleeps"] == found["s: waits"] == (FAIL, "not done after 0 s")
    assert (document["passed"], document["failed"], document["not_here"]) == (1, 4, 1)
    assert "1 passed, 0 measured, 4 failed, 1 not possible here" in capsys.readouterr().out


def test_nothing_runs_after_the_deadline():
    report = Report("test", limit=0, quiet=True)
    assert not report.check("s", "late", 5, lambda: "well")
    assert "not run: the time limit" in report.checks[0]["text"]


# Weights from recipes.


def test_weights_are_made_again_bit_for_bit(tmp_path):
    path = tmp_path / "bert.onnx"
    recorder = recipes.Recorder(zoo.Random(7), zoo.ExternalFile(path))
    config = zoo.BertConfig(layers=1, hidden=32, heads=2, intermediate=32, vocabulary=40, positions=256)
    zoo.bert(config, recorder, "bert", recorder)
    kinds = [("kept" in t, t.get("transposed")) for t in recorder.tensors]
    assert (True, None) in kinds and (False, True) in kinds and (False, False) in kinds  # positions, matrices, tables
    document = recorder.finish(7, tmp_path / "bert.recipe.json")
    data = tmp_path / document["file"]
    before = data.read_bytes()
    data.unlink()
    generator = ROOT / "python/gridloom/zoo/weights.py"
    assert recipes.make([tmp_path / "bert.recipe.json"], generator, workers=2) == len(before)
    assert data.read_bytes() == before
    assert recipes.make([tmp_path / "bert.recipe.json"], generator, workers=2) == 0  # already made

    recipe = json.loads((tmp_path / "bert.recipe.json").read_text())
    (tmp_path / "bert.recipe.json").write_text(json.dumps({**recipe, "seed": 8}))
    data.unlink()
    with pytest.raises(ValueError, match="came out different"):
        recipes.make([tmp_path / "bert.recipe.json"], generator, workers=2)
    assert not data.exists()


def test_a_reference_judges(tmp_path):
    big = np.random.default_rng(0).standard_normal((300, 100)).astype(np.float32)
    Reference.write(tmp_path / "r.npz", {"x": np.ones(3)}, {"a/b": big, "c": np.arange(4)})
    reference = Reference(tmp_path / "r.npz")
    assert reference.inputs["x"].shape == (3,)
    assert reference.compare({"a_b": big, "c": np.arange(4)}, 0) == 0
    bent = big.copy()
    bent[0, 0] += 1e-3 * np.abs(big).max()
    assert reference.compare({"a_b": bent, "c": np.arange(4)}, 2e-3) == pytest.approx(1e-3, rel=0.01)
    for outputs, message in [
        ({"a_b": bent, "c": np.arange(4)}, "output a/b differs by 1.0e-03"),
        ({"a_b": big}, "output c is missing"),
        ({"a_b": big.T, "c": np.arange(4)}, r"output a/b has shape \[100, 300\]"),
        ({"a_b": np.full_like(big, np.nan), "c": np.arange(4)}, "output a/b is NaN in 4096 places"),
    ]:
        with pytest.raises(Problem, match=message):
            reference.compare(outputs, 1e-5)


# Placing ranks.


@pytest.mark.parametrize(
    "env,expected",
    [
        ({}, None),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, (3, 8, 1, 2)),
        (
            {
                "OMPI_COMM_WORLD_RANK": "2",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "2",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
            },
            (2, 4, 2, 4),
        ),
        (
            {
                "SLURM_STEP_ID": "0",
                "SLURM_PROCID": "5",
                "SLURM_NTASKS": "6",
                "SLURM_LOCALID": "1",
                "SLURM_STEP_TASKS_PER_NODE": "2(x3)",
            },
            (5, 6, 1, 2),
        ),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "6"}, None),
        ({"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, (3, 4, 1, 2)),
    ],
    ids=["alone", "torchrun", "Open MPI", "srun", "a batch script", "MPICH"],
)
def test_launchers_are_read(env, expected):
    found = world.detect(env)
    assert (found and (found.rank, found.size, found.local_rank, found.local_size)) == expected


def test_half_a_launcher_is_refused():
    with pytest.raises(ValueError, match="RANK is set but WORLD_SIZE is not"):
        world.detect({"RANK": "1"})
    with pytest.raises(ValueError, match="RANK=4 must be below WORLD_SIZE=4"):
        world.detect({"RANK": "4", "WORLD_SIZE": "4"})


def test_members_see_their_gpus_only(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    places = [world.Place("a", rank) for rank in range(4)] + [world.Place("b", rank) for rank in range(4)]
    env = world.environment(places, [1, 3], 3, "job", 29600)
    assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_RANK"], env["CUDA_VISIBLE_DEVICES"]) == ("1", "2", "1", "5,7")
    assert "OMPI_COMM_WORLD_RANK" not in env
    env = world.environment(places, [2, 6], 6, "job", 29600)  # one rank per machine
    assert [env[name] for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")] == ["1", "0", "1", "a"]
    assert env["CUDA_VISIBLE_DEVICES"] == "6"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")  # as srun --gpus-per-task 1 does
    env = world.environment(places, [0, 1, 2], 2, "job", 29600)
    assert (env["CUDA_VISIBLE_DEVICES"], env["LOCAL_RANK"]) == ("2", "2")  # the runtime counts on from the first


def test_groups_of_an_axis():
    mesh = {"data": 2, "model": 3}
    assert axis_groups(mesh, "model") == [[0, 1, 2], [3, 4, 5]]
    assert axis_groups(mesh, "data") == [[0, 3], [1, 4], [2, 5]]


@pytest.fixture(scope="module")
def cluster_pack(tools, tmp_path_factory):
    pack = tmp_path_factory.mktemp("cluster") / "pack"
    made = start(ROOT / "scripts/cluster-check", "--pack", pack, "-n", 2, "--device", "cpu", "--bin", tools.folder)
    assert made.returncode == 0, made.stdout + made.stderr
    return pack


def test_cluster_check_on_two_ranks(cluster_pack, tmp_path):
    """Only the planted wrong reference of one model is reported; every collective, every strategy and a killed rank are checked."""
    plant_wrong_reference(cluster_pack, "cnn")
    result = start(cluster_pack / "cluster-check", "--json", tmp_path / "r.json")
    assert result.returncode == 1, result.stdout + result.stderr
    document, checks = results(tmp_path / "r.json")
    failed = {name for name, check in checks.items() if check["result"] == FAIL}
    assert failed == {"strategies against one rank: cnn, one rank"}, result.stdout
    assert document["environment"]["ranks"] == "2, started by this program"
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv"):
        rows = checks[f"collectives (busbw as in nccl-tests): {kind} over data of data=2"]["figures"]["rows"]
        assert [row["bytes"] for row in rows] == [1 << 10, 1 << 14, 1 << 18, 1 << 22]
        assert all(row["wrong"] == "0" and row["busbw"] >= 0 for row in rows)
    for model in ("transformer", "cnn", "experts", "loop"):
        for mesh in ("data=2", "model=2", "pipe=2"):
            check = checks[f"strategies against one rank: {model}, {mesh}"]
            assert check["result"] == ("none" if (model, mesh) == ("loop", "model=2") else PASS), check
    death = next(check for name, check in checks.items() if name.startswith("a death"))
    assert death["result"] == PASS and "rank 1" in death["text"] and death["figures"]["seconds"] > 0


def test_cluster_check_under_a_launcher(tools, tmp_path):
    """Two processes with Open MPI's variables; rank 0 reports, the other prints nothing."""
    options = ["-n", 2, "--model", "transformer", "--bin", tools.folder]
    assert start(ROOT / "scripts/cluster-check", "--pack", tmp_path / "pack", *options).returncode == 0
    command = [sys.executable, tmp_path / "pack/cluster-check", "--json", tmp_path / "r.json"]

    def environment(rank: int) -> dict[str, str]:
        prefix = "OMPI_COMM_WORLD_"
        values = {"RANK": rank, "SIZE": 2, "LOCAL_RANK": rank, "LOCAL_SIZE": 2}
        return {**os.environ, "PMIX_NAMESPACE": str(tmp_path), **{prefix + n: str(v) for n, v in values.items()}}

    ranks = [subprocess.Popen(command, env=environment(r), stdout=subprocess.PIPE, text=True) for r in (0, 1)]
    printed = [process.communicate(timeout=120)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], printed[0]
    document, checks = results(tmp_path / "r.json")
    assert document["environment"]["ranks"].startswith("2, started by Open MPI") and not printed[1]
    assert checks["strategies against one rank: transformer, model=2"]["result"] == PASS


def test_cluster_check_refuses_what_cannot_be(cluster_pack):
    for options, env, message in [
        (["-n", 3], {}, "the pack is for 2 ranks, not 3; make another with --pack OUT -n 3"),
        (["--device", "cuda:sm_90"], {}, "the pack is for cpu, not cuda:sm_90"),
        (["--device", "tpu"], {}, "--device tpu is none of cpu, cuda:sm_80"),
        ([], {"RANK": "0"}, "RANK is set but WORLD_SIZE is not"),
    ]:
        result = start(cluster_pack / "cluster-check", *options, env=env)
        assert result.returncode == 2 and message in result.stderr, result.stderr


def test_the_folder_of_a_job_is_the_users_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    folder = work_folder("job", None)
    assert folder.stat().st_mode & 0o777 == 0o700 and work_folder("job", None) == folder
    folder.chmod(0o777)
    with pytest.raises(Problem, match="is not a folder of this user's alone"):
        work_folder("job", None)
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Problem, match="is not a folder of this user's alone"):
        work_folder("job", None)


def test_a_planted_link_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "place-0.part").symlink_to(tmp_path / "precious")
    leave(tmp_path / "place-0.json", {"rank": 0})
    assert (tmp_path / "precious").read_text() == "kept"
    assert json.loads((tmp_path / "place-0.json").read_text()) == {"rank": 0}


def test_cluster_check_on_fake_gpus(tools, tmp_path):
    """Two processes with a fake GPU each, and a fake NCCL between them; their times are not reported."""
    options = ["-n", 2, "--device", "cuda:sm_90", "--bin", tools.folder, "--model", "transformer"]
    made = start(ROOT / "scripts/cluster-check", "--pack", tmp_path / "pack", *options)
    assert made.returncode == 0, made.stdout + made.stderr
    env = {**fakes.environment(2, 0, tools.folder.parent / "lib"), "GRIDLOOM_FAKE_NCCL_FOLDER": str(tmp_path / "nccl")}
    result = start(tmp_path / "pack/cluster-check", "--json", tmp_path / "r.json", env=env)
    assert result.returncode == 0, result.stdout + result.stderr
    document, checks = results(tmp_path / "r.json")
    assert document["measured"] == 0 and "GB/s" not in result.stdout
    for mesh in ("data=2", "model=2", "pipe=2"):
        assert checks[f"strategies against one rank: transformer, {mesh}"]["result"] == PASS
        assert checks[f"overlap: transformer, {mesh}"]["text"] == "fake GPUs: ran; their times mean nothing"
    assert checks["a death: rank 1 of transformer, model=2, is killed"]["result"] == PASS


def test_cluster_check_without_gpus_says_so(cluster_pack, tmp_path):
    for entry in cluster_pack.iterdir():
        if entry.name not in ("pack.json", "cluster-check", "hardware"):
            (tmp_path / entry.name).symlink_to(entry)
    shutil.copytree(cluster_pack / "hardware", tmp_path / "hardware")
    shutil.copy(cluster_pack / "cluster-check", tmp_path)
    document = json.loads((cluster_pack / "pack.json").read_text())
    (tmp_path / "pack.json").write_text(json.dumps({**document, "target": "cuda:sm_90"}))
    result = start(tmp_path / "cluster-check", env={"GRIDLOOM_CUDA_DRIVER": "libcuda_missing.so.1"})
    assert result.returncode == 77
    assert result.stdout.startswith("no GPU: ") and len(result.stdout.splitlines()) == 1 and not result.stderr


# GPU checks.


@pytest.fixture(scope="module")
def gpu_pack(tools, tmp_path_factory):
    pack = tmp_path_factory.mktemp("gpu") / "pack"
    options = ["--chip", "sm_90", "--models", "tiny", "--bin", tools.folder]
    made = start(ROOT / "scripts/gpu-check", "--pack", pack, *options)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "refused by the compiler" in made.stdout and "(0 refused" in made.stdout
    # The pack has each compressed file once, and nothing that only people read.
    assert not (pack / "bin").exists() and not (pack / "lib").exists()
    assert [path.name for path in (pack / "plans").iterdir()] == ["sm_90.tar.xz"]
    with tarfile.open(pack / "plans" / "sm_90.tar.xz") as tar:
        names = {Path(name).name for name in tar.getnames()}
    assert "manifest.json" in names and not names & {"ir", "report.json", "timeline.json"}
    return pack


def test_a_pack_that_is_too_large_is_refused(tools, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(packs, "LIMIT", 1 << 20)
    out = tmp_path / "pack.tar.xz"
    assert packs.build(out, "gpu-check", tools.folder, 1, lambda packer: {}, folds=True) == 1
    assert "bytes are more than 1048576, the limit" in capsys.readouterr().err


def test_a_folder_is_unfolded_once_and_whole(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    folding.fold(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["bin.tar.xz"]
    with ThreadPoolExecutor(8) as pool:  # like ranks that start together
        list(pool.map(folding.unfold, [folder] * 8))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "bin.tar.xz"]
    assert program.read_text() == "#!/bin/sh\n" and os.access(program, os.X_OK)
    program.write_text("kept")
    folding.unfold(folder)
    assert program.read_text() == "kept"


def test_gpu_check_without_a_gpu_says_so(gpu_pack, tmp_path):
    result = start(gpu_pack / "gpu-check", env={"GRIDLOOM_CUDA_DRIVER": "libcuda_missing.so.1"})
    assert result.returncode == 77
    assert result.stdout.startswith("no GPU: ") and len(result.stdout.splitlines()) == 1 and not result.stderr


def test_gpu_check_says_what_its_python_lacks(gpu_pack, tmp_path):
    bare = subprocess.run([sys.executable, "-S", gpu_pack / "gpu-check"], capture_output=True, text=True)
    assert bare.returncode == 1
    assert bare.stderr.startswith("gpu-check: this Python has no numpy; install it") and "\n" not in bare.stderr.strip()
    (tmp_path / "lzma.py").write_text("import _not_there")
    result = start(gpu_pack / "gpu-check", env={"PYTHONPATH": str(tmp_path)})
    assert result.stderr == "gpu-check: this Python has no not_there; run another python3\n"


def test_gpu_check_on_a_fake_gpu(tools, gpu_pack, tmp_path):
    """Everything runs, planted faults are found, and times of the interpreter are not reported as a GPU's."""
    plant_wrong_reference(gpu_pack, "mlp")
    losses = gpu_pack / "references" / "train-transformer-losses.npy"
    np.save(losses, 1.01 * np.load(losses))  # beyond f32's tolerance, within bf16's
    env = {**fakes.environment(2, 0, tools.folder.parent / "lib"), "GRIDLOOM_FAKE_NCCL_FOLDER": str(tmp_path / "nccl")}
    result = start(gpu_pack / "gpu-check", "--json", tmp_path / "r.json", env=env)
    assert result.returncode == 1, result.stdout + result.stderr
    document, checks = results(tmp_path / "r.json")
    failed = {name for name, check in checks.items() if check["result"] == FAIL}
    wrong = {"correctness: mlp, f32", "correctness: mlp, bf16"}
    wrong |= {f"training: train-transformer, f32{place}" for place in ("", ", data=2 (loopback)")}
    assert failed == wrong, result.stdout
    for name in wrong - {"correctness: mlp, f32", "correctness: mlp, bf16"}:
        assert checks[name]["text"].startswith("output loss differs by 9.9e-03 of its largest value"), checks[name]
    assert document["environment"]["fake"] is True
    assert document["measured"] == 0 and not any("figures" in check for check in checks.values())
    for name in (
        "correctness: bert-tiny, f32",
        "correctness: bert-tiny, bf16",
        "training: train-transformer, bf16",
        "CUDA graphs: bert-tiny",
        "NCCL: one rank",
        "NCCL: two processes on one GPU (an attempt)",
        "ranks that share this GPU (loopback) against one rank: transformer, model=2",
        "times: mlp f32, batch 4",
        "times: bert-tiny bf16, batch 2",
    ):
        assert checks[name]["result"] == PASS, (name, checks[name])
    assert "TFLOP" not in result.stdout


def test_gpu_check_needs_plans_for_the_chip(tools, gpu_pack, tmp_path):
    document = json.loads((gpu_pack / "pack.json").read_text())
    for plan in document["plans"]:
        plan["target"] = "cuda:sm_80"
    (tmp_path / "pack").mkdir()
    for entry in gpu_pack.iterdir():
        (tmp_path / "pack" / entry.name).symlink_to(entry)
    (tmp_path / "pack" / "pack.json").unlink()
    (tmp_path / "pack" / "gpu-check").unlink()
    (tmp_path / "pack" / "gpu-check").write_bytes((gpu_pack / "gpu-check").read_bytes())
    (tmp_path / "pack" / "pack.json").write_text(json.dumps(document))
    env = fakes.environment(1, 0, tools.folder.parent / "lib")
    result = start(tmp_path / "pack" / "gpu-check", "--json", tmp_path / "r.json", env=env)
    assert result.returncode == 1
    assert "none for sm_90; the pack has cuda:sm_80: pack with --chip sm_90" in result.stdout
