"""Checks with time limits, printed as a table while they run and written as one JSON document at the end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

SCHEMA = 1
# The results of a check. `none` is not a failure: this machine lacks something that the check needs.
PASS, FAIL, MEASURED, NONE = "pass", "FAIL", "ok", "none"


class Problem(Exception):
    """A check failed; the message is one line."""


class Missing(Exception):
    """A check does not apply to this machine; the message says in one line what it would need."""


class OutOfTime(Exception):
    """The time limit of the check passed."""


def one_line(text: str, limit: int = 300) -> str:
    return " ".join(text.split())[:limit]


@contextlib.contextmanager
def time_limit(seconds: float):
    """Raises OutOfTime in the block after `seconds`. In the main thread only: it is an alarm."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_):
        raise OutOfTime(f"not done after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def call(
    command: Sequence, env: Mapping[str, str] | None = None, timeout: float | None = None
) -> subprocess.CompletedProcess:
    """Runs a command and captures its output. If the wait is interrupted, all its processes end, too."""
    process = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        text=True, errors="replace", env={**os.environ, **(env or {})}, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise OutOfTime(f"not done after {timeout:.0f} s") from None
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


class Report:
    """Collects results of checks. `limit` is the time for all of them together, in seconds."""

    def __init__(self, program: str, limit: float, quiet: bool = False):
        self.program, self.limit, self.quiet = program, limit, quiet
        self.begin = time.monotonic()
        self.environment: dict = {}
        self.checks: list[dict] = []
        self._section = ""

    @property
    def left(self) -> float:
        return self.limit - (time.monotonic() - self.begin)

    @property
    def failures(self) -> int:
        return sum(check["result"] == FAIL for check in self.checks)

    def add(
        self, section: str, name: str, result: str, text: str, seconds: float = 0.0, figures: dict | None = None
    ) -> None:
        check = {
            "section": section,
            "name": name,
            "result": result,
            "text": one_line(text),
            "seconds": round(seconds, 2),
        }
        self.checks.append({**check, **({"figures": figures} if figures else {})})
        if self.quiet:
            return
        if section != self._section:
            print(f"\n{section}")
            self._section = section
        print(f"  {result:<5}{name:<46} {check['text']}", flush=True)

    def check(self, section: str, name: str, limit: float, run: Callable[[], str | tuple[str, str, dict]]) -> bool:
        """Runs one check. `run` returns a text (a pass) or (result, text, figures). It fails by raising Problem or any other exception,
        or by exceeding a time limit; Missing gives `none`. Returns True unless the check failed."""
        limit = min(limit, self.left)
        if limit <= 0:
            self.add(section, name, FAIL, f"not run: the time limit of {self.limit:.0f} s for all checks has passed")
            return False
        begin, result, figures = time.monotonic(), FAIL, {}
        try:
            with time_limit(limit):
                found = run()
            result, text, figures = (PASS, found, {}) if isinstance(found, str) else found
        except Missing as missing:
            result, text = NONE, str(missing)
        except (Problem, OutOfTime) as problem:
            text = str(problem)
        except Exception as error:  # one check must not end the others
            text = f"{type(error).__name__}: {error}"
        self.add(section, name, result, text, time.monotonic() - begin, figures)
        return result != FAIL

    def finish(self, path: Path | None) -> int:
        """Writes the JSON document, prints the last line, and returns the exit code: 0 when nothing failed, else 1."""
        seconds = time.monotonic() - self.begin
        counts = {result: sum(c["result"] == result for c in self.checks) for result in (PASS, MEASURED, FAIL, NONE)}
        document = {
            "schema": SCHEMA, "program": self.program, "environment": self.environment, "seconds": round(seconds, 1),
            "passed": counts[PASS], "measured": counts[MEASURED], "failed": counts[FAIL], "not_here": counts[NONE],
            "checks": self.checks,
        }  # fmt: skip
        if path:
            path.write_text(json.dumps(document, indent=1) + "\n")
        if not self.quiet:
            where = f"; all of it: {path}" if path else ""
            print(
                f"\n{counts[PASS]} passed, {counts[MEASURED]} measured, {counts[FAIL]} failed, {counts[NONE]} not possible "
                f"here, in {seconds:.0f} s{where}",
                flush=True,
            )
        return 1 if counts[FAIL] else 0
