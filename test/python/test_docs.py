"""What the documentation shows can be pasted."""

from __future__ import annotations

import re
import shutil
import subprocess
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
