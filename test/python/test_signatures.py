"""`gridloom sign` and `--require-signature`: plans that somebody vouches for."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess

import numpy as np
import pytest
from signing_keys import FINGERPRINT, OTHER_FINGERPRINT, write_keys

import gridloom
from gridloom import zoo


@pytest.fixture(scope="module")
def compiled(tools, tmp_path_factory):
    """A folder with a perceptron, its plan for two ranks, and keys."""
    folder = write_keys(tmp_path_factory.mktemp("signatures"))
    model = zoo.save(zoo.mlp([16, 32, 8], zoo.Random(0)), folder / "mlp.onnx")
    tools.compile(model, folder / "mlp.plan", "--dim", "batch=4", "--mesh", "model=2")
    return folder


@pytest.fixture
def folder(compiled, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(compiled, tmp_path / "copy")


def sign(tools, folder, key="private.pem") -> str:
    return tools.call("sign", folder / "mlp.plan", "--key", folder / key).stdout


def run(tools, folder, *keys, check=False):
    options = [word for key in keys for word in ("--require-signature", folder / key)]
    return tools.call("run", folder / "mlp.plan", "--input", "x=ones", *options, check=check)


def refused(result) -> str:
    assert result.returncode == 1 and not result.stdout, result.stdout
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), result.stderr
    return lines[0]


def test_only_a_signed_plan_runs(tools, folder):
    plan = folder / "mlp.plan"
    run(tools, folder, check=True)
    line = refused(run(tools, folder, "public.pem"))
    assert f"{plan}: is not signed, and a signature is required; sign the plan with 'gridloom sign'" in line
    assert sign(tools, folder) == f"{plan}: signed with key {FINGERPRINT}\n"
    for keys in ([], ["public.pem"], ["other.pub", "public.pem"]):
        run(tools, folder, *keys, check=True)
    line = refused(run(tools, folder, "other.pub"))
    assert f"is signed with key {FINGERPRINT}, the required one is {OTHER_FINGERPRINT}" in line
    assert "other.pem: holds no public key" in refused(run(tools, folder, "other.pem"))
    assert "none.pem: cannot be read: No such file" in refused(run(tools, folder, "none.pem"))


def test_signing_again_is_another_signature(tools, folder):
    sign(tools, folder)
    sign(tools, folder, "other.pem")
    run(tools, folder, "other.pub", check=True)
    assert f"is signed with key {OTHER_FINGERPRINT}" in refused(run(tools, folder, "public.pem"))
    result = tools.call("sign", folder / "mlp.plan", "--key", folder / "public.pem", check=False)
    assert "public.pem: holds no private key" in refused(result)
    run(tools, folder, "other.pub", check=True)  # the signature is still there


@pytest.mark.parametrize("options", [["run", "--input", "x=ones"], ["bench", "--iters", "1"], ["train", "--data", "."],
                                     ["generate", "--tokens", "1"], ["check"]], ids=lambda options: options[0])  # fmt: skip
def test_every_verb_that_loads_kernels_can_require_it(tools, folder, options):
    verb, *others = options
    command = [verb, folder / "mlp.plan", *others, "--require-signature", folder / "public.pem"]
    result = tools.call(*command, check=False)
    assert result.returncode == 1 and "is not signed" in result.stderr, result.stdout + result.stderr
    if verb in ("run", "bench", "check"):
        sign(tools, folder)
        tools.call(*command)


def test_a_check_that_runs_nothing_requires_nothing(tools, folder):
    command = ["check", folder / "mlp.plan", "--no-run", "--require-signature", folder / "public.pem"]
    assert "excludes" in tools.call(*command, check=False).stderr
    command = ["check", *sorted((folder / "mlp.plan" / "ir").iterdir())[:2], "--require-signature", folder / "public.pem"]
    result = tools.call(*command, check=False)
    assert result.returncode == 1 and "--require-signature is for a plan" in result.stderr


def test_a_check_compiles_nothing_that_no_signature_covers(tools, folder):
    sign(tools, folder)
    command = ["check", folder / "mlp.plan", "--require-signature", folder / "public.pem"]
    line = refused(tools.call(*command, "--oracle", "1rank", check=False))
    assert "/ir', which no signature covers; take --oracle interpreter" in line
    tools.call(*command)


def replace_kernels(plan, code: bytes) -> None:
    """Other machine code, with the checksum that fits it."""
    (plan / "kernels" / "cpu.so").write_bytes(code)
    manifest = json.loads((plan / "manifest.json").read_text())
    manifest["files"]["kernels/cpu.so"] = {"bytes": len(code), "sha256": hashlib.sha256(code).hexdigest()}
    (plan / "manifest.json").write_text(json.dumps(manifest))


def test_changed_code_is_not_loaded(tools, folder):
    plan = folder / "mlp.plan"
    sign(tools, folder)
    code = (plan / "kernels" / "cpu.so").read_bytes()
    (plan / "kernels" / "cpu.so").write_bytes(code[:-1] + bytes([code[-1] ^ 1]))
    assert "cpu.so: has SHA-256" in refused(run(tools, folder, "public.pem"))
    replace_kernels(plan, b"no library")
    assert "manifest.json: was changed after the plan was signed" in refused(run(tools, folder, "public.pem"))
    shown = json.loads(tools.call("inspect", plan, "--json").stdout)
    assert shown["signature"] == "manifest.json was changed after the plan was signed" and shown["signed_by"] == FINGERPRINT


def test_changed_weights_are_refused(tools, folder):
    sign(tools, folder)
    model = bytearray((folder / "mlp.onnx").read_bytes())
    model[len(model) // 2] ^= 1
    (folder / "mlp.onnx").write_bytes(model)
    result = run(tools, folder, "public.pem")
    assert result.returncode == 1 and "mlp.onnx: has SHA-256" in result.stderr


def test_a_new_plan_has_no_signature(tools, folder):
    sign(tools, folder)
    tools.compile(folder / "mlp.onnx", folder / "mlp.plan", "--dim", "batch=4", "--mesh", "model=2")
    assert "is not signed" in refused(run(tools, folder, "public.pem"))
    assert json.loads(tools.call("inspect", folder / "mlp.plan", "--json").stdout)["signature"] == "none"


def test_inspect_shows_who_signed(tools, folder):
    plan = folder / "mlp.plan"
    assert "signed_by" not in json.loads(tools.call("inspect", plan, "--json").stdout)
    sign(tools, folder)
    shown = json.loads(tools.call("inspect", plan, "--json").stdout)
    assert (shown["signature"], shown["signed_by"]) == ("matches", FINGERPRINT)
    (plan / "signature.json").write_text("{")
    assert "signature.json: is not a signature" in json.loads(tools.call("inspect", plan, "--json").stdout)["signature"]


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl on PATH")
def test_openssl_makes_keys_and_verifies_signatures(tools, folder):
    """docs/plan-format.md: its commands, with Python for jq and xxd."""

    def call(*words):
        return subprocess.run(["openssl", *map(str, words)], cwd=folder, check=True, capture_output=True)

    call("genpkey", "-algorithm", "ed25519", "-out", "private.pem")
    call("pkey", "-in", "private.pem", "-pubout", "-out", "public.pem")
    der = call("pkey", "-pubin", "-in", "public.pem", "-outform", "DER").stdout
    assert sign(tools, folder).endswith(f"signed with key {hashlib.sha256(der).hexdigest()}\n")
    run(tools, folder, "public.pem", check=True)
    signature = json.loads((folder / "mlp.plan" / "signature.json").read_text())
    (folder / "payload").write_text(signature["payload"])
    (folder / "signature").write_bytes(bytes.fromhex(signature["signature"]))
    call("pkeyutl", "-verify", "-pubin", "-inkey", "public.pem", "-rawin", "-in", "payload", "-sigfile", "signature")
    manifest = (folder / "mlp.plan" / "manifest.json").read_bytes()
    assert json.loads(signature["payload"])["manifest"] == hashlib.sha256(manifest).hexdigest()
    call("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "rsa.pem")
    result = tools.call("sign", folder / "mlp.plan", "--key", folder / "rsa.pem", check=False)
    assert "rsa.pem: holds a key of kind RSA, not Ed25519" in refused(result)


def test_python_requires_signatures(tools, folder):
    plan, key = folder / "mlp.plan", folder / "public.pem"
    with pytest.raises(gridloom.Error, match="is not signed") as caught:
        gridloom.load(plan, require_signature=key)
    assert caught.value.code == gridloom.ErrorCode.INVALID_PLAN
    with pytest.raises(gridloom.Error, match="is not signed"):
        gridloom.load(plan, require_signature=[str(key)])
    sign(tools, folder)
    for keys in (str(key), key, [folder / "other.pub", key]):
        with gridloom.load(plan, require_signature=keys) as session:
            assert session.run({"x": np.ones((4, 16), np.float32)})
    with pytest.raises(gridloom.Error, match="is signed with key"):
        gridloom.load(plan, require_signature=folder / "other.pub")
    with pytest.raises(ValueError, match="require_signature is empty"):
        gridloom.load(plan, require_signature=[])


def test_a_trainer_requires_signatures(tools, folder):
    train = {"train": True, "loss": "cross_entropy(y, labels)", "optimizer": "sgd(lr=0.1)", "tools": tools.folder}
    plan = gridloom.compile(folder / "mlp.onnx", folder / "mlp.plan", dims={"batch": 4}, **train)
    with pytest.raises(gridloom.Error, match="is not signed"):
        gridloom.Trainer(plan, require_signature=folder / "public.pem")
    sign(tools, folder)
    with gridloom.Trainer(plan, require_signature=folder / "public.pem") as trainer:
        assert trainer.step({"x": np.ones((4, 16), np.float32), "labels": np.arange(4)})["committed"]


def test_measurements_are_not_used(tools, folder, fake_gpus):
    """Nobody has signed what --autotune keeps in the plan's folder."""
    plan = folder / "mlp.plan"
    tools.compile(folder / "mlp.onnx", plan, "--dim", "batch=64", "--target", "cuda:sm_90")
    sign(tools, folder)
    fake_gpus(1, 1)
    command = ["run", plan, "--input", "x=ones", "--verbose"]
    tools.call(*command, "--autotune")
    (file,) = (plan / "autotune").glob("*.json")
    assert "are not used" not in tools.call(*command).stderr
    result = tools.call(*command, "--require-signature", folder / "public.pem")
    assert "note: measured algorithms are not used: a signature is required, and they have none" in result.stderr
    written = file.stat().st_mtime_ns
    tools.call(*command, "--autotune", "--require-signature", folder / "public.pem")
    assert file.stat().st_mtime_ns != written  # measured again
