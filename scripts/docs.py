"""Writes docs/phases.md from the compiler's phase table and the pass definitions: docs.py [--check] COMPILER.

--check writes nothing and exits 1 when the file is not what it would be."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "phases.md"

HEADER = """\
# Phases

*Written by `scripts/docs.py` from the phase table in `compiler/driver/Phases.cpp` and the passes' definitions.*

    model.onnx ─ import → simplify → shard → partition → communicate → layout → fuse → schedule → allocate → emit ─ model.plan

`--dump-ir DIR` writes the program after each phase, `--stop-after` and `--start-from` take these names. Each phase ends with a
pass that verifies what the phase promises; `gridloom-opt --PASS` runs one pass on a dump.
"""


def passes(phase: str) -> list[tuple[str, str]]:
    """Mnemonics and summaries of a phase's passes, in the order of their definitions."""
    file = ROOT / "passes" / phase / "Passes.td"
    if not file.exists():
        return []
    return re.findall(r'^def \w+ : Pass<"([^"]+)".*?let summary = "([^"]+)";', file.read_text(), re.M | re.S)


def render(listed: str) -> str:
    text = HEADER
    for line in listed.splitlines():
        name, rest = line.split(maxsplit=1)
        summary, guarantee = rest.split("; after it: ", 1)
        text += f"\n## {name}\n\n{summary[0].upper()}{summary[1:]}.\n\nAfter it: {guarantee}.\n"
        rows = passes(name)
        if rows:
            text += "\n| pass | |\n|---|---|\n" + "".join(f"| `{p}` | {s} |\n" for p, s in rows)
    return text


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    (compiler,) = [a for a in arguments if a != "--check"]
    listed = subprocess.run([compiler, "--list-phases"], capture_output=True, text=True, check=True).stdout
    text = render(listed)
    if not check:
        FILE.write_text(text)
        return 0
    if FILE.exists() and FILE.read_text() == text:
        return 0
    print(f"{FILE.relative_to(ROOT)} is not up to date; run .venv/bin/python scripts/docs.py {compiler}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
