"""Checks rules that no compiler checks: `scripts/lint_rules.py` lists violations and exits 1.

Every rule of the IR has a test. A rule is a numbered constraint of a definition (`L-BC1` in a .td file) or a verifier's message. A
constraint has a test if its number occurs in a file below `test/`; a message, if its longest literal part does.

Times, bandwidths and rates of arithmetic occur only in `cluster/`. They are recognised by name: a number other than 0 assigned to a name
such as linkSeconds, bandwidth or kFlopsPerByte (RATE). Constants with other names and rows of tables are not found.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NUMBER = re.compile(r"\b[A-Z]-[A-Z]{1,2}[0-9]+\b")
REPORT = re.compile(r"\b(?:emitOpError|emitError)\s*\(")
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')

# "double linkSeconds = 80e-6", "kFlopsPerByte{2}"
RATE = re.compile(r"\b\w*(?:Seconds|[Ll]atency|[Bb]andwidth|Flops|(?:Bytes|Flops)Per\w+|PerSecond)\s*[={]+\s*-?\.?(?!0\b(?!\.))[0-9]")

# Messages that no test can trigger, with the reason.
UNREACHABLE: dict[str, str] = {}


def tracked(*patterns: str) -> list[Path]:
    """The files of the checkout, committed or not, that match the git pathspecs."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in listed if (ROOT / name).exists()]


def is_verifier(path: Path) -> bool:
    """Whether the C++ file contains a verifier of a dialect or a phase."""
    return path.parent.name in ("loom", "dist", "plan") and "Evaluate" not in path.name or path.name.startswith("Verify")


def messages(path: Path):
    """Yields (line, longest literal part) of each error message that the file reports on an operation."""
    text = path.read_text()
    for match in REPORT.finditer(text):
        parts = [part.replace('\\"', '"').strip() for part in LITERAL.findall(text[match.start() : text.find(";", match.start())])]
        longest = max(parts, key=len, default="")
        if len(longest) > 3:
            yield text.count("\n", 0, match.start()) + 1, longest


def rates(path: Path):
    """Yields (line, text) of each constant of time, bandwidth or arithmetic."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := RATE.search(line.partition("//")[0]):
            yield number, match.group()


def main() -> int:
    tests = "\n".join(path.read_text(errors="ignore") for path in tracked("test/*.mlir", "test/*.cpp", "test/*.h", "test/*.py"))
    failures = []
    for path in tracked("dialects/*.td", "passes/*.td"):
        declared = {number for line in path.read_text().splitlines() if re.match(r"\s*(- |let description = \"\*\*Constraints)", line) for number in NUMBER.findall(line)}
        failures += [f"{path.relative_to(ROOT)}: no test names the constraint {number}" for number in sorted(declared) if number not in tests]
    for path in filter(is_verifier, tracked("dialects/*.cpp", "passes/*.cpp")):
        failures += [
            f"{path.relative_to(ROOT)}:{line}: no test expects the message '{message}'"
            for line, message in messages(path)
            if message not in tests and message not in UNREACHABLE
        ]
    for path in tracked("compiler/*.cpp", "compiler/*.h", "dialects/*.cpp", "dialects/*.h", "passes/*.cpp", "passes/*.h"):
        failures += [f"{path.relative_to(ROOT)}:{line}: '{text}' is for cluster/, the one source of costs" for line, text in rates(path)]
    for failure in failures:
        print(f"lint: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
