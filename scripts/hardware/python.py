"""Finds a Python that can run the checks."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path


def require(program: str, *modules: str) -> None:
    """Returns if this Python has the modules; otherwise continues in a built checkout's Python, or exits with a remedy."""
    try:
        for name in modules:
            importlib.import_module(name)
    except ImportError as error:
        own = Path(__file__).resolve().parents[2] / ".venv/bin/python"
        if own.exists() and Path(sys.prefix) != own.parents[1]:
            os.execv(own, [str(own), *sys.argv])
        remedy = "install it (python3 -m pip install numpy) or " if error.name == "numpy" else ""
        sys.exit(f"{program}: this Python has no {(error.name or name).strip('_')}; {remedy}run another python3")
