"""A section's share of `scripts/test --full`: cases run in an order drawn from a seed until the time is up."""

from __future__ import annotations

import os
import time

SEED = int(os.environ.get("GRIDLOOM_SEED", "1"))
_SECONDS = float(os.environ.get("GRIDLOOM_SECONDS", "inf"))


class Share:
    """The time of a section, counted from the construction."""

    def __init__(self):
        self.end = time.monotonic() + _SECONDS

    def has_time(self) -> bool:
        return time.monotonic() < self.end
