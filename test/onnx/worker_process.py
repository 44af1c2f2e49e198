"""Asks questions of a worker process that may crash or hang."""

from __future__ import annotations

import subprocess
import threading


def ask(process: subprocess.Popen, question: str, seconds: float) -> tuple[str, str]:
    """Sends a line. Returns the line of the answer and no error, or no answer and the reason. A process without an answer has ended:
    after `seconds` it is killed."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        process.stdin.write(f"{question}\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except BrokenPipeError:
        line = ""
    late = not timer.is_alive()
    timer.cancel()
    if line:
        return line, ""
    code = process.wait()
    return "", f"no answer within {seconds} s" if late else f"the process died with {code}"
