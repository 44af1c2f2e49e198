"""Patches that extend Gridloom, one by an operation, one by a transport: they touch no more files than the guides promise
(docs/adding-an-op.md, docs/adding-a-transport.md). With --full, a patched copy of the tree is built and tested.

The copy is build/extensions; what an earlier run built there is reused where the tree has not changed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
COPY = ROOT / "build" / "extensions"
OPERATION, TRANSPORT = HERE / "unary-op.patch", HERE / "transport.patch"
TARGETS = [
    "InterpreterOpsTest",
    "FactorAssignmentTest",
    "CodegenElementwiseTest",
    "SkeletonMatrixTest",
    "evaluate-onnx",
    "TransportConformanceTest",
]


def call(*command, cwd: Path = ROOT, **environment: str) -> str:
    """What a command prints; a command that fails fails the test."""
    result = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment}
    )
    if result.returncode:
        pytest.fail(f"{' '.join(map(str, command))}\n{result.stdout[-6000:]}{result.stderr[-6000:]}")
    return result.stdout


def git_apply(patch: Path, folder: Path, *options: str) -> str:
    """Applies a patch to `folder`. The folder is no checkout but is inside one, and git would ignore files outside of that."""
    return call("git", "apply", *options, patch, cwd=folder, GIT_CEILING_DIRECTORIES=str(folder.parent))


def touched(patch: Path) -> dict[str, int]:
    """The files of a patch, with the number of lines that it adds to each."""
    lines = call("git", "apply", "--numstat", patch).splitlines()
    return {name: int(added) for added, _, name in (line.split("\t") for line in lines)}


def tracked() -> list[str]:
    """The files of the checkout, committed or not."""
    names = call("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return sorted({name for name in names if name and (ROOT / name).is_file()})


def copy_tree(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)


def update(folder: Path, source: Path) -> None:
    """Makes `folder` equal `source` except for build outputs. Equal files keep their modification time."""

    def files(top: Path) -> set[Path]:
        return {path.relative_to(top) for path in top.rglob("*") if path.is_file() and not path.is_symlink()}

    wanted = files(source)
    skipped = {"build", ".venv"}
    for name in files(folder) - wanted if folder.exists() else ():
        if name.parts[0] not in skipped:
            (folder / name).unlink()
    for name in wanted:
        target = folder / name
        if not target.exists() or target.read_bytes() != (source / name).read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, target)


@pytest.mark.parametrize("patch", [OPERATION, TRANSPORT], ids=lambda patch: patch.stem)
def test_patch_applies(patch, tmp_path):
    copy_tree(tmp_path / "tree")
    git_apply(patch, tmp_path / "tree", "--whitespace=error")
    for name in touched(patch):
        assert (tmp_path / "tree" / name).is_file()
        before = ROOT / name
        assert not before.exists() or before.read_bytes() != (tmp_path / "tree" / name).read_bytes(), name


def test_an_operation_is_four_files_and_a_row_of_a_table():
    files = touched(OPERATION)
    assert files.pop("test/unit/UnaryFunctions.h") == 1
    assert sorted(files) == [
        "compiler/onnx/Activations.cpp",
        "dialects/loom/LoomElementwise.td",
        "dialects/loom/LoomEvaluateElementwise.cpp",
        "dialects/loom/LoomKernelBodies.cpp",
    ]
    assert sum(files.values()) < 20


def test_a_transport_is_a_folder_and_a_line():
    files = touched(TRANSPORT)
    assert files.pop("runtime/comm/Transports.def") == 1
    folders = {str(Path(name).parent) for name in files}
    assert folders == {"runtime/comm/audit"}
    assert not (ROOT / "runtime/comm/audit").exists()


def test_the_transport_still_fits_the_interface(tmp_path):
    """The transport's files compile with the flags of a neighbouring file."""
    commands = json.loads((ROOT / "build/dev/compile_commands.json").read_text())
    (flags,) = (c["command"] for c in commands if c["file"].endswith("/runtime/comm/local/LocalKind.cpp"))
    arguments = shlex.split(flags.partition(" -MD ")[0].partition(" -o ")[0].replace("ccache ", "", 1))
    copy_tree(tmp_path / "tree")
    git_apply(TRANSPORT, tmp_path / "tree")
    sources = [name for name in touched(TRANSPORT) if name.endswith(".cpp")]
    assert sources
    for name in sources:
        call(arguments[0], f"-I{tmp_path / 'tree'}", *arguments[1:], "-fsyntax-only", tmp_path / "tree" / name)


@pytest.fixture(scope="module")
def binaries() -> Path:
    """The programs of the tree with both patches, built."""
    copy_tree(COPY / "new")
    for patch in (OPERATION, TRANSPORT):
        git_apply(patch, COPY / "new")
    tree = COPY / "tree"
    update(tree, COPY / "new")
    if not (tree / ".venv").is_symlink():
        (tree / ".venv").symlink_to(sys.prefix)
    if not (tree / "build/dev/build.ninja").exists():
        call("cmake", "--preset", "dev", "-Wno-dev", "-DGRIDLOOM_BUILD_PYTHON=OFF", cwd=tree)
    jobs = os.environ.get("JOBS", str(os.cpu_count() or 1))
    call("cmake", "--build", "--preset", "dev", "-j", jobs, "--target", *TARGETS, cwd=tree)
    return tree / "build/dev/bin"


def run_units(binary: Path, pattern: str) -> int:
    """How many tests ran and passed."""
    text = call(binary, f"--gtest_filter={pattern}")
    return int(re.search(r"\[  PASSED  \] (\d+) tests?", text)[1])


@pytest.mark.full
def test_the_operation_is_tested_by_its_row(binaries):
    assert run_units(binaries / "InterpreterOpsTest", "InterpreterOps.UnaryFunctions") == 1
    assert run_units(binaries / "FactorAssignmentTest", "*softsign*:FactorAssignmentCoverage.*") == 2
    assert run_units(binaries / "CodegenElementwiseTest", "CodegenElementwise.UnaryFunctions") == 1
    gpu = call(binaries / "SkeletonMatrixTest", GRIDLOOM_SKELETON="softsign", GRIDLOOM_EXHAUSTIVE="1")
    assert "[  PASSED  ] 1 test" in gpu


@pytest.mark.full
def test_the_operation_is_imported(binaries):
    environment = {"GRIDLOOM_EVALUATE_ONNX": str(binaries / "evaluate-onnx"), "PYTHONPATH": str(ROOT / "python")}
    text = call(
        sys.executable, "-m", "pytest", "-q", "-k", "softsign", ROOT / "test/onnx/test_node_cases.py", **environment
    )
    assert int(re.search(r"(\d+) passed", text)[1]) >= 2


@pytest.mark.full
def test_the_transport_conforms(binaries):
    conformance = binaries / "TransportConformanceTest"
    local = run_units(conformance, "Registered/TransportTest.*/local")
    assert run_units(conformance, "Registered/TransportTest.*/audit") == local >= 7
