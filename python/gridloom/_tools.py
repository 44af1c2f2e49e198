"""Finds the command-line tools and the native module: installed, in a build tree, or on PATH."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

_PACKAGE = Path(__file__).resolve().parent
_REPOSITORY = _PACKAGE.parents[1]


def _build_folders() -> list[Path]:
    """Build trees of a source checkout, preferred first; `GRIDLOOM_BUILD` names another."""
    if "GRIDLOOM_BUILD" in os.environ:
        return [Path(os.environ["GRIDLOOM_BUILD"])]
    if not (_REPOSITORY / "CMakePresets.json").exists():
        return []
    return [_REPOSITORY / "build" / preset for preset in ("release", "dev")]


def find_tool(name: str, folder: str | os.PathLike | None = None) -> Path:
    """The executable `name`: in `folder` if given, else beside the package, in a build tree, or on PATH."""
    folders = [Path(folder)] if folder else [_PACKAGE / "bin", *(b / "bin" for b in _build_folders())]
    for candidate in folders:
        if os.access(candidate / name, os.X_OK):
            return candidate / name
    found = None if folder else shutil.which(name)
    if not found:
        places = ", ".join(map(str, folders)) + ("" if folder else " or PATH")
        raise FileNotFoundError(f"{name} is not in {places}; run scripts/build, or pip install gridloom")
    return Path(found)


def native() -> ModuleType:
    """The extension module, loaded when first needed so that the zoo and inspection work without it."""
    name = "gridloom._native"
    if name in sys.modules:
        return sys.modules[name]
    folders = [_PACKAGE, *(b / "python" / "gridloom" for b in _build_folders())]
    for folder in folders:
        for path in sorted(folder.glob("_native.*.so")):
            spec = importlib.util.spec_from_file_location(name, path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules[name] = module
            return module
    raise ImportError(f"the bindings are not in {', '.join(map(str, folders))}; run scripts/build, or pip install gridloom")


def _keep_threads_away() -> None:
    """Daemon threads in a call must not take the GIL of an interpreter that has ended. Registered when gridloom is imported, so that
    it comes after what programs register later, which may wait for their threads."""
    if "gridloom._native" in sys.modules:
        sys.modules["gridloom._native"].keep_threads_away()


atexit.register(_keep_threads_away)


def main() -> None:
    """The `gridloom` command of an installed package: replaces itself with the program."""
    tool = find_tool("gridloom", _PACKAGE / "bin")
    os.execv(tool, [str(tool), *sys.argv[1:]])
