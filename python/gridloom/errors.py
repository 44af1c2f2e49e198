"""Errors of sessions."""

from __future__ import annotations

import enum


class ErrorCode(enum.IntEnum):
    """The error codes of the C interface, with its values: coarse enough to act on."""

    INVALID_ARGUMENT = 1
    INVALID_PLAN = 2
    UNAVAILABLE = 3
    PEER_FAILED = 4
    DEADLINE_EXCEEDED = 5
    OUT_OF_MEMORY = 6
    INTERNAL = 7


class Error(RuntimeError):
    """One line that says what is wrong and what to do, and its `code`."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = ErrorCode(code)
