"""The demonstration behind scripts/quickstart: quickstart.py BIN, the folder with the built tools."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from gridloom import zoo

LENGTH = 32
TOLERANCE = 1e-5
FOLDER = Path("build/quickstart")


def call(program: Path, *arguments) -> None:
    """Runs a command in the demonstration's folder and prints it as a user would type it."""
    print(f"\n$ {shlex.join([program.name, *map(str, arguments)])}", flush=True)
    if code := subprocess.run([program, *map(str, arguments)], cwd=FOLDER).returncode:
        sys.exit(f"quickstart: {program.name} {arguments[0]} exited with {code}")


def print_similarities(embedding: np.ndarray) -> None:
    similarity = embedding @ embedding.T
    print("\nCosine similarity of the sentences; * where two mean the same in other words:\n")
    print(" " * 42 + "".join(f"{i + 1:>6} " for i in range(len(embedding))))
    for i, sentence in enumerate(zoo.SENTENCES):
        cells = "".join(f"{v:6.2f}{'*' if v > 0.5 and i != j else ' '}" for j, v in enumerate(similarity[i]))
        print(f"  {i + 1} {sentence[:38]:<38}{cells}")


def main(tools: Path) -> int:
    model = zoo.minilm_file("build/zoo/minilm.onnx")
    print(f"{model}: all-MiniLM-L6-v2 with its trained weights, as an exporter writes it; in {FOLDER}:")
    inputs = zoo.encode(zoo.SENTENCES, LENGTH)
    FOLDER.mkdir(parents=True, exist_ok=True)
    given = []
    for name, array in inputs.items():
        np.save(FOLDER / f"{name}.npy", array)
        given += ["--input", f"{name}={name}.npy"]

    plan = "minilm.plan"
    dims = ["--dim", f"batch={len(zoo.SENTENCES)}", "--dim", f"sequence={LENGTH}"]
    call(tools / "gridloom", "compile", "../zoo/minilm.onnx", "-o", plan, "--mesh", "data=2,model=2", *dims)
    shutil.rmtree(FOLDER / "results", ignore_errors=True)  # existing outputs are not replaced
    call(tools / "gridloom", "run", plan, "-n", 4, "--repeat", 10, *given, "--output", "results")

    embedding = np.load(FOLDER / "results" / "embedding.npy")
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (expected,) = session.run(["embedding"], inputs)
    error = float(np.abs(embedding - expected).max())
    print_similarities(embedding)
    print(f"\nmax abs error against ONNX Runtime: {error:.2e} (allowed {TOLERANCE:.0e})")
    return 0 if error <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
