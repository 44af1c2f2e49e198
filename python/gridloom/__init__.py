"""Gridloom compiles an ONNX model for several devices and runs it.

`compile` writes a plan, `load` makes a session that runs it, `Plan.read` shows its contents, and `gridloom.zoo` writes models. Only
sessions need the extension module; the first session loads it."""

from __future__ import annotations

from ._compiler import CompileError, compile
from .errors import Error, ErrorCode
from .plan import Binding, Entry, Plan, Specialisation, Weight
from .session import Progress, Session, State, Stats, load
from .trainer import Trainer

__all__ = [
    "Binding", "CompileError", "Entry", "Error", "ErrorCode", "Plan", "Progress", "Session", "Specialisation", "State", "Stats",
    "Trainer", "Weight", "compile", "load",
]  # fmt: skip
