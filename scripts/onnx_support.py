"""Runs ONNX's node tests on 1, 2 and 4 ranks and writes docs/onnx-support.md and test/onnx/passing.txt:
onnx_support.py [--check] [RESULTS]. Takes some five minutes on two idle cores; with RESULTS, a file that
`test/onnx/suite.py --json` wrote, no time.

--check writes nothing and exits 1 when the files are not what they would be."""

from __future__ import annotations

import collections
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "test" / "onnx"))

import suite  # noqa: E402

PAGE = ROOT / "docs" / "onnx-support.md"
PASSING = ROOT / "test" / "onnx" / "passing.txt"

HEADER = """\
# ONNX operators

*Written by `scripts/onnx_support.py` from a run of the node tests of onnx {version}.*

Every test is compiled and run on 1, 2 and 4 ranks; on several, inputs and weights are split at random (`--strategy
random:SEED`) and what follows from that is left to propagation. No test is interpreted. Operands that give shapes, such as the
second of Reshape, are graph inputs in these tests and become initializers, with which exporters write them.

What passes here also passes compiled for `cuda:sm_90`, on 1 and 2 fake GPUs that interpret the plan's PTX and complain of
races, accesses outside of buffers and the like: `test/onnx/test_suite_cuda.py` runs a sample, with `--full` all.

{summary}

| kind of test | tests | pass on 1 rank | on 2 | on 4 |
|---|---|---|---|---|
{classes}

`core` is tensors in, tensors out, without control flow, random numbers, losses and types below 8 bits.

## By operator

Expanded tests (an operator written as its ONNX function) count for their operator. Opsets are those of the tests; the importer
takes every version from 7 on.

| operator | opsets | tests | pass on 1 rank | on 2 | on 4 |
|---|---|---|---|---|---|
{operators}

## Not supported

Operators with tests of which none passes: {missing}.
"""


def read_passing() -> list[str]:
    """Names of the tests that pass on 1, 2 and 4 ranks."""
    return PASSING.read_text().split()


def passing(results: list[suite.Result]) -> dict[str, set[int]]:
    """On which numbers of ranks each test passes."""
    good: dict[str, set[int]] = collections.defaultdict(set)
    for result in results:
        if not result.error:
            good[result.name].add(result.ranks)
    return good


def rows(groups: dict[str, list[str]], good: dict[str, set[int]], extra=lambda names: []) -> list[list]:
    return [
        [key, *extra(names), len(names), *(sum(ranks in good[name] for name in names) for ranks in suite.RANKS)]
        for key, names in sorted(groups.items())
    ]


def table(lines: list[list]) -> str:
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def opsets(names: list[str]) -> list[str]:
    versions = {
        o.version for name in names for o in suite.tests()[name].model.opset_import if o.domain in ("", "ai.onnx")
    }
    return [", ".join(map(str, sorted(versions)))]


def render(results: list[suite.Result]) -> str:
    import onnx

    good = passing(results)
    kinds: dict[str, list[str]] = collections.defaultdict(list)
    about: dict[str, list[str]] = collections.defaultdict(list)
    for name, test in suite.tests().items():
        kinds[suite.classify(test)].append(name)
        for operator in suite.operators(test):
            about[operator].append(name)
    lines = rows(about, good, opsets)
    summary = "\n".join(f"- {line}" for line in suite.summarise(results, detailed=False).splitlines())
    return HEADER.format(
        version=onnx.__version__,
        summary=summary,
        classes=table(rows(kinds, good)),
        operators=table([line for line in lines if line[3]]),
        missing=", ".join(line[0] for line in lines if not line[3]),
    )


def differences(results: list[suite.Result]) -> list[str]:
    """How the files differ from what a run gave."""
    good = passing(results)
    now, then = {n for n, ranks in good.items() if ranks == set(suite.RANKS)}, set(read_passing())
    lines = [f"{name} passed and fails" for name in sorted(then - now)]
    lines += [f"{name} passes and is not listed" for name in sorted(now - then)]
    if PAGE.read_text() != render(results):
        lines.append(f"{PAGE.relative_to(ROOT)} is not up to date; run .venv/bin/python scripts/onnx_support.py")
    return lines


def main(arguments: list[str]) -> int:
    files = [argument for argument in arguments if argument != "--check"]
    if files:
        results = [suite.Result(**entry) for entry in json.loads(Path(files[0]).read_text())]
    else:
        results = suite.run(suite.tests())
    for result in results:
        if result.error and result.ranks > 1:
            print(f"{result.name} on {result.ranks}: {result.error}")
    print(suite.summarise(results))
    if "--check" in arguments:
        print("\n".join(differences(results)))
        return 1 if differences(results) else 0
    good = passing(results)
    PASSING.write_text("\n".join(sorted(n for n, ranks in good.items() if ranks == set(suite.RANKS))) + "\n")
    PAGE.write_text(render(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
