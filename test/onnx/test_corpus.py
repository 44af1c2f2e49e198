"""Files that a fuzzer made from the zoo's smallest models: each is a model, or is refused with errors of one line.

`test/fuzz/corpus` holds inputs that reached new code of the importer; a fuzzer run starts from it: `OnnxImportFuzz NEW
test/fuzz/corpus`, as ctest does. A file that once crashed belongs there, too."""

from __future__ import annotations

import subprocess
from pathlib import Path

import evaluate
import pytest

CORPUS = sorted((Path(__file__).parent.parent / "fuzz" / "corpus").glob("*.onnx"))
COMPILER = Path(evaluate.tool()).resolve().parent / "gridloom-compile"


def test_there_is_a_corpus():
    assert len(CORPUS) > 100


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_answers(path):
    result = subprocess.run([COMPILER, "doctor", path], capture_output=True, errors="replace", timeout=60)
    assert result.returncode in (0, 1), result.stderr
    # Each dimension without a size has an error line.
    assert all(line.startswith("error: ") for line in result.stderr.splitlines()), result.stderr
    assert bool(result.stderr) == (result.returncode == 1)
