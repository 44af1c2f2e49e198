"""Examples in the documentation work when pasted."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("clang-22")), reason="no C compiler on PATH")
def test_the_example_in_c(tools, minilm_path, tmp_path):
    """docs/embedding.md: the program compiles, and runs on the plan that the page names."""
    (program,) = re.findall(r"```c\n(.*?)```", (ROOT / "docs" / "embedding.md").read_text(), re.S)
    (tmp_path / "main.c").write_text(program)
    library = tools.folder.parent / "lib"
    compiler = shutil.which("cc") or shutil.which("clang-22")
    flags = [f"-I{ROOT}/runtime/include", f"-L{library}", f"-Wl,-rpath,{library}", "-lgridloom_runtime"]
    subprocess.run([compiler, tmp_path / "main.c", "-Wall", "-Werror", "-o", tmp_path / "main", *flags], check=True)
    tools.compile(minilm_path, tmp_path / "minilm.plan", "--dim", "batch=8", "--dim", "sequence=128")
    result = subprocess.run([tmp_path / "main"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(r"-?0\.\d+\n", result.stdout) and abs(float(result.stdout)) < 1


def test_the_readme_trains(tools, tmp_path):
    """README.md is short, and its training example prints the losses that it shows."""
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 100
    example = re.search(r"\n\n((?:    .*\n)*    \$ gridloom train .*\n(?:    .*\n)*)", text)[1]
    commands = [line.strip()[2:].replace(".venv/bin/python", sys.executable) for line in example.splitlines() if "$" in line]
    path = f"{tools.folder}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "python")}
    shell = ["bash", "-ec", "\n".join(commands)]
    result = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    read = lambda lines: {  # noqa: E731: by the step, or the run
        (line.split("/")[0] if "ETA" in line else "run"): float(re.search(r"\bloss (\S+)", line)[1]) for line in lines if "loss" in line and "$" not in line
    }
    shown, printed = read(line.strip() for line in example.splitlines()), read(result.stdout.splitlines())
    assert list(shown) == ["step 1", "step 300", "run"]
    for step, loss in shown.items():
        assert printed[step] == pytest.approx(loss, rel=1e-3), result.stdout


def examples(dialect: str) -> dict[str, list[str]]:
    """The ```mlir blocks of each operation of docs/dialects/DIALECT.md."""
    text = (ROOT / "docs" / "dialects" / f"{dialect}.md").read_text()
    operations = text.split("\n## Operations\n")[1].split("\n## ")[0]
    sections = re.split(rf"^### `({dialect}\.\w+)`$", operations, flags=re.M)[1:]
    return {name: re.findall(r"```mlir\n(.*?)```", body, re.S) for name, body in zip(sections[::2], sections[1::2])}


def parse(opt: Path, program: str) -> str:
    """The errors of gridloom-opt for an example that may use undefined values.

    At the top level of a module a value may be defined after its use. Each undefined value gets a definition of type none, and the
    parser's error gives the type with which the example uses it."""
    defined = set()
    for names in re.findall(r"^\s*(%\w+(?::\d+)?(?:, %\w+)*) =", program, re.M):
        defined |= set(re.findall(r"%\w+", names))
    defined |= set(re.findall(r"(%\w+): ", program))
    types = {name: "none" for name in re.findall(r"%\w+", program) if name not in defined}
    while True:
        values = "".join(f'{name} = "test.value"() : () -> {type}\n' for name, type in types.items())
        command = [opt, "--allow-unregistered-dialect", "-o", "/dev/null"]
        result = subprocess.run(command, input=program + values, capture_output=True, text=True)
        mismatch = re.search(r"definition of SSA value '(%\w+)#0' has type 'none'.*previously used here with type '(.*?)'\n", result.stderr, re.S)
        if not mismatch:
            return result.stderr
        types[mismatch[1]] = mismatch[2]


@pytest.mark.parametrize("dialect", ["loom", "dist", "plan"])
def test_every_operation_has_an_example_that_parses(tools, dialect):
    mesh = 'dist.mesh @mesh <["data" = 2, "model" = 4]>\n'
    failures = []
    for name, programs in examples(dialect).items():
        if not any(name in program for program in programs):
            failures.append(f"{name} has no example")
        for program in programs:
            message = parse(tools.path("gridloom-opt"), program if "dist.mesh" in program else mesh + program)
            if message:
                failures.append(f"{name}: {message}")
    assert not failures, "\n".join(failures)


def test_an_example_that_does_not_parse_is_reported(tools):
    opt = tools.path("gridloom-opt")
    assert not parse(opt, "%z = loom.add %x, %y : tensor<2x3xf32>\n")
    assert "input has 6 elements, output 8" in parse(opt, "%y = loom.reshape %x : (tensor<2x3xf32>) -> tensor<8xf32>\n")
    assert "expected ':'" in parse(opt, "%y = loom.abs %x, %x : tensor<2x3xf32>\n")
