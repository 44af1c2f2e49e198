"""Collects the core dumps of a test run and prints the stacks of the crashed programs: cores.py SINCE KEEP FOLDER...

SINCE is a file older than the run; KEEP is the folder to move the dumps to; FOLDER... are where the tests ran, searched with all folders
below. If the system does not write dumps to files, one line says what it does with them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

MOST_SHOWN, FRAMES = 5, 40
PATTERN = Path("/proc/sys/kernel/core_pattern")


def to_expression(name: str) -> str:
    """A regular expression for the file names that a core_pattern gives; the kernel may append .PID."""
    text = "".join("%" if part == "%%" else ".*" if part.startswith("%") else re.escape(part)
                   for part in re.findall(r"%.|[^%]+", name))  # fmt: skip
    return rf"{text}(\.\d+)?"


def is_core(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            header = file.read(18)
    except OSError:
        return False
    return header[:4] == b"\x7fELF" and int.from_bytes(header[16:18], sys.byteorder) == 4  # ET_CORE


def find_cores(pattern: str, since: float, folders: list[Path]) -> list[Path]:
    """Dumps that are newer than `since`, the oldest first."""
    place = Path(pattern)
    name = re.compile(to_expression(place.name))
    places = [place.parent] if place.is_absolute() else folders
    found = set()
    for root in places:
        for folder, inner, names in os.walk(root):
            if place.is_absolute() or ".git" in inner:  # subfolders of a repository are searched only if named in FOLDER
                inner.clear()
            for path in (Path(folder, n) for n in names if name.fullmatch(n)):
                if path.is_file() and not path.is_symlink() and path.stat().st_mtime >= since and is_core(path):
                    found.add(path)
    return sorted(found, key=lambda path: path.stat().st_mtime)


def call(*command) -> str:
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace")
    return result.stdout


def find_program(core: Path, came_from: Path) -> Path | None:
    """The program that dumped the core, if gdb can read its path from the dump."""
    if match := re.search(r'AT_EXECFN.*"(.*)"', call("gdb", "-q", "-batch", "-c", core, "-ex", "info auxv")):
        path = came_from / match[1]
        return path if path.is_file() else None
    return None


def show(core: Path, came_from: Path) -> str:
    """The stacks of all threads."""
    if shutil.which("gdb"):
        program = find_program(core, came_from)
        return call("gdb", "-q", "-batch", "-ex", f"thread apply all backtrace {FRAMES}", *([program] if program else []),
                    "-c", core)  # fmt: skip
    for name in ("lldb", "lldb-22"):
        if shutil.which(name):
            return call(name, "--batch", "-c", core, "-o", f"thread backtrace all -c {FRAMES}")
    return "install gdb to see where the program was\n"


def main(since: str, keep: str, *folders: str) -> int:
    pattern = PATTERN.read_text().strip() if PATTERN.exists() else ""
    if not pattern or pattern.startswith("|"):
        what = f"gives core dumps to '{pattern[1:].strip()}'; look there (coredumpctl, apport)" if pattern else "keeps none"
        print(f"core dumps: this system {what}, so no backtraces are shown")
        return 0
    cores = find_cores(pattern, Path(since).stat().st_mtime, [Path(folder) for folder in folders])
    for number, core in enumerate(cores):
        kept = Path(keep, f"core-{number}")
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(core, kept)
        print(f"core dump {kept} (was {core})")
        if number < MOST_SHOWN:
            print(show(kept, core.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
