"""Sums JUnit files of several test runners: test_summary.py RESULT..., each without its `.xml`.

Prints failures and the reasons of skips, then `N passed, N failed, N skipped`. A missing or damaged file is
a failure: its runner crashed. Exits 1 if anything failed or no test ran."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as xml
from collections import Counter
from pathlib import Path


def outcome(case: xml.Element) -> tuple[str, str]:
    """`passed`, `failed` or `skipped`, and the reason of a skip."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed", ""
    skipped = case.find("skipped")
    if skipped is None:
        return ("failed", "") if case.get("status") in ("fail", "notrun") else ("passed", "")
    # GoogleTest prints the reason; pytest and lit give it as the message.
    printed = [line.strip() for line in (case.findtext("system-out") or "").splitlines()]
    for i, line in enumerate(printed):
        if line.endswith("Skipped") and i + 1 < len(printed):
            return "skipped", printed[i + 1]
    return "skipped", skipped.get("message") or "no reason given"


def main(results: list[str]) -> int:
    totals: Counter[str] = Counter()
    for result in results:
        counts: Counter[str] = Counter()
        try:
            cases = list(xml.parse(f"{result}.xml").iter("testcase"))
        except (OSError, xml.ParseError) as error:
            print(f"FAILED {Path(result).name}: the runner left no result: {error}")
            totals["failed"] += 1
            continue
        for case in cases:
            kind, reason = outcome(case)
            counts[kind] += 1
            if kind != "passed":
                label = f"{case.get('classname', '')}.{case.get('name')}".strip(".")
                print(f"{kind.upper()} {label}" + (f": {reason}" if reason else ""))
        print(f"{Path(result).name}: {', '.join(f'{counts[k]} {k}' for k in ('passed', 'failed', 'skipped'))}")
        totals += counts
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return 1 if totals["failed"] or not totals["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
