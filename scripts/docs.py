"""Writes docs/phases.md from the compiler's phase table and the pass definitions, and docs/dialects/*.md from the
dialects' definitions: docs.py [--check] COMPILER.

--check writes nothing and exits 1 when a page is not up to date."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LLVM = Path("/usr/lib/llvm-22")

PHASES_HEADER = """\
# Phases

*Written by `scripts/docs.py` from the phase table in `compiler/driver/Phases.cpp` and the passes' definitions.*

    model.onnx ─ import → simplify → shard → partition → communicate → layout → fuse → schedule → allocate → emit ─ model.plan

`--dump-ir DIR` writes the program after each phase, `--stop-after` and `--start-from` take these names. Each phase ends with a
pass that verifies what the phase promises; `gridloom-opt --PASS` runs one pass on a dump,
and shows what is between two of them: `gridloom-opt --dist-insert-reshards 03-shard.mlir` where values move and why,
`gridloom-opt --dist-insert-reshards --dist-lower-reshards 03-shard.mlir` the collectives, before shapes become local.
"""


def passes(phase: str) -> list[tuple[str, str]]:
    """Mnemonics and summaries of a phase's passes, in the order of their definitions."""
    file = ROOT / "passes" / phase / "Passes.td"
    if not file.exists():
        return []
    return re.findall(r'^def \w+ : Pass<"([^"]+)".*?let summary = "([^"]+)";', file.read_text(), re.M | re.S)


def phases_page(listed: str) -> str:
    """docs/phases.md, from the output of `gridloom-compile --list-phases`."""
    text = PHASES_HEADER
    for line in listed.splitlines():
        name, rest = line.split(maxsplit=1)
        summary, guarantee = rest.split("; after it: ", 1)
        text += f"\n## {name}\n\n{summary[0].upper()}{summary[1:]}.\n\nAfter it: {guarantee}.\n"
        rows = passes(name)
        if rows:
            text += "\n| pass | |\n|---|---|\n" + "".join(f"| `{p}` | {s} |\n" for p, s in rows)
    return text


def dialect_page(name: str) -> str:
    """docs/dialects/NAME.md: mlir-tblgen's page with a table of the operations, without the parts that only repeat C++."""
    tblgen = shutil.which("mlir-tblgen-22") or LLVM / "bin" / "mlir-tblgen"
    definitions = ROOT / "dialects" / name / f"{name.capitalize()}Ops.td"
    includes = ["-I", ROOT, "-I", LLVM / "include"]
    command = [tblgen, "-gen-dialect-doc", f"-dialect={name}", *includes, definitions]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    text = re.sub(r"^<!--.*-->\n+", "", text)
    text = text.replace(f"# '{name}' Dialect\n", f"# The {name} dialect\n\n*Written by `scripts/docs.py` from `dialects/{name}/*.td`.*\n", 1)
    text = re.sub(r"^(### `[\w.]+`) \(::gridloom.*\)$", r"\1", text, flags=re.M)
    text = re.sub(r"^(Traits|Interfaces|Effects): .*\n\n", "", text, flags=re.M)
    operations = re.findall(r"^### `([\w.]+)`\n\n_(.*)_$", text, re.M)
    rows = "".join(f"| [`{op}`](#{op.replace('.', '')}) | {summary} |\n" for op, summary in operations)
    text = text.replace("[TOC]\n", f"| operation | |\n|---|---|\n{rows}", 1)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+$", "", text, flags=re.M)).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    (compiler,) = [a for a in arguments if a != "--check"]
    listed = subprocess.run([compiler, "--list-phases"], capture_output=True, text=True, check=True).stdout
    pages = {ROOT / "docs" / "phases.md": phases_page(listed)}
    pages |= {ROOT / "docs" / "dialects" / f"{name}.md": dialect_page(name) for name in ("loom", "dist", "plan")}
    stale = [file for file, text in pages.items() if not file.exists() or file.read_text() != text]
    for file in stale:
        if check:
            print(f"{file.relative_to(ROOT)} is not up to date; run scripts/build dev gridloom-docs")
        else:
            file.parent.mkdir(exist_ok=True)
            file.write_text(pages[file])
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
