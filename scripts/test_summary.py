"""Sums JUnit files of several test runners: test_summary.py RESULT..., each without its `.xml`.

Prints failures and the reasons of skips, the cases tests counted themselves (lines `KIND: NAME: N cases`), then
`N passed, N failed, N skipped`. A missing or damaged file is
a failure: its runner crashed. Exits 1 if anything failed or no test ran."""

from __future__ import annotations

import re
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


def count_cases(case: xml.Element, cases: dict[str, Counter[str]]) -> None:
    """Adds cases that a test prints, such as `equivalence: loom.add: 512 cases`, to `cases[kind][name]`."""
    for line in (case.findtext("system-out") or "").splitlines():
        if match := re.match(r"([a-z ]+): (\S+): (\d+) cases", line.strip()):
            cases.setdefault(match[1], Counter())[match[2]] += int(match[3])


def main(results: list[str]) -> int:
    totals: Counter[str] = Counter()
    counted: dict[str, Counter[str]] = {}
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
            count_cases(case, counted)
            counts[kind] += 1
            if kind != "passed":
                label = f"{case.get('classname', '')}.{case.get('name')}".strip(".")
                print(f"{kind.upper()} {label}" + (f": {reason}" if reason else ""))
        print(f"{Path(result).name}: {', '.join(f'{counts[k]} {k}' for k in ('passed', 'failed', 'skipped'))}")
        totals += counts
    for kind, names in sorted(counted.items()):
        print(f"{kind}: {sum(names.values())} cases: " + ", ".join(f"{n} {c}" for n, c in sorted(names.items())))
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return 1 if totals["failed"] or not totals["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
