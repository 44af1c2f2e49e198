"""Runs ONNX's node tests on 1, 2 and 4 ranks and writes docs/onnx-support.md and test/onnx/failing.txt, which lists the
tests that fail, each with its reason: onnx_support.py [--check] [RESULTS]. Takes some five minutes on two idle cores; with
RESULTS, a file that `test/onnx/suite.py --json` wrote, no time.

--check writes nothing and exits 1 when a listed test passes or fails for another reason, when one that is not listed fails,
or when the page is not what it would be."""

from __future__ import annotations

import collections
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "test" / "onnx"))

import evaluate  # noqa: E402
import suite  # noqa: E402

PAGE = ROOT / "docs" / "onnx-support.md"
FAILING = ROOT / "test" / "onnx" / "failing.txt"

HEADER = """\
# ONNX operators

*Written by `scripts/onnx_support.py` from a run of the node tests of onnx {version}; `scripts/onnx_support.py --check` runs them
again and compares.*

This page shows which ONNX operators compile and run, counted in ONNX's node tests, and which do not, and why.

Every test is compiled and run on 1, 2 and 4 ranks. On several ranks, inputs and weights are split at random (`--strategy
random:SEED`), and propagation splits the rest. No test is interpreted. Operands that give shapes, such as the second of Reshape, are
graph inputs in these tests; they are turned into initializers, as exporters write them.

A sample of the tests that pass here is also compiled for `cuda:sm_90` and run on 1 and 2 fake GPUs, which interpret the plan's PTX and
report races, accesses outside of buffers and the like (`test/onnx/test_suite_cuda.py`; with `--full` all tests in random order, as many as
there is time for).

{summary}

| kind of test | tests | pass on 1 rank | on 2 | on 4 |
|---|---|---|---|---|
{classes}

`core` tests have tensors as inputs and outputs, without control flow, random numbers, losses and types below 8 bits.

## By operator

Expanded tests (an operator written as its ONNX function) count for their operator. Opsets are those of the tests. The importer accepts
every version from 7 on, and versions from 1 on of operators that did not change until 7.

Numbers of fewer than 8 bits (INT4, UINT4, INT2, UINT2, FLOAT4E2M1) are moved and converted, as ONNX defines it. Initializers stay
packed. Elsewhere, also in inputs and outputs of programs, each number is a byte: int8, uint8 or float8_e4m3fn.

| operator | opsets | tests | pass on 1 rank | on 2 | on 4 |
|---|---|---|---|---|---|
{operators}

## Lengths that depend on data

Shapes are fixed when a model is compiled. If the length of a dimension depends on data (NonMaxSuppression, NonZero, Unique,
Compress), the tensor has room for the most elements that there can be: as many as the operand has, or for boxes batches times classes
times `max_output_boxes_per_class`, which must be a constant. The first elements are ONNX's result. The rest is padding, with arbitrary
values, except that indices there are those of some element. For every such dimension D of an output NAME the program has one more
output, `NAME.dimD`: the number of valid elements, as one int64. `gridloom.backend` trims outputs to it, and so do the tests counted here.

Elementwise operators pass such a length on. So do operators that leave the dimension as it is: Gather and GatherND by these indices,
Transpose, Reshape, Squeeze, Unsqueeze, Concat, Slice, and reductions and products along other dimensions. Shape and Size give the true
length. An operator that needs the length (a reduction along it, TopK, a branch or loop that reads it) is refused by name: end the model
before it and compute the rest outside.

Sequences and optional values must be known when the model is imported: positions must be constants, and loops that carry a sequence must be
unrolled. Inputs and outputs must be tensors.

## ai.onnx.preview.training

Supported are Adagrad, Adam and Momentum, each with any number of tensors, and Gradient. Gradient's two tests are not node tests;
`test/onnx/test_training_operators.py` runs them. Gradient differentiates the part of the graph between `xs`, `zs` and `y` at the values of its
operands, also if these differ from the graph's. Tensors of `xs` that `y` does not depend on get zeros. Initializers of one element in
`xs`, which are constants of a program, and loops and branches between `xs` and `y` are refused.

## com.microsoft

Supported are the operators that ONNX Runtime's optimizers and quantizers write in addition to ONNX's own: {contrib}.

`test/onnx/test_ort_tools.py` runs these tools (`quantize_dynamic`, `quantize_static`, `MatMulNBitsQuantizer`,
`onnxruntime.transformers.optimizer`, sessions that save their model) on models of the zoo and compares the results with ONNX Runtime. Models
saved with ORT_ENABLE_ALL may hold convolutions in a layout for one processor (`com.microsoft.nchwc`); these are refused.

## Not supported

Operators whose tests all fail: {missing}.

Operators that are imported, but whose node tests have sequences as inputs or outputs, which are refused: {sequences}.

Why {failing} tests fail ([`failing.txt`](../test/onnx/failing.txt) names each; the text in quotes differs):

| tests | reason |
|---|---|
{reasons}
"""


def read_failing() -> dict[str, str]:
    """The tests that fail, each with its reason."""
    return dict(line.split(": ", 1) for line in FAILING.read_text().splitlines())


def passing_names() -> list[str]:
    """The tests that pass on 1, 2 and 4 ranks: all that are not listed."""
    failing = read_failing()
    return [name for name in suite.tests() if name not in failing]


def reason(error: str) -> str:
    """An error without what is the same of all or differs from run to run: its kind, the program's name, files."""
    error = re.sub(r"^\w+: ", "", error)
    error = re.sub(r"^(\S+\.onnx\S*: )?(error: )?(node '[^']*': )?", "", error)
    return re.sub(r"/\S+/", "", error)


def failing(results: list[suite.Result]) -> dict[str, str]:
    """The tests that fail, each with the reason of the first failure."""
    found: dict[str, str] = {}
    for result in results:
        if result.error:
            found.setdefault(result.name, reason(result.error) + (f" (on {result.ranks} ranks)" if result.ranks > 1 else ""))
    return found


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
    imported = [o for name in names for o in suite.tests()[name].model.opset_import]
    standard = [o for o in imported if o.domain in ("", "ai.onnx")]
    return [", ".join(map(str, sorted({o.version for o in standard or imported})))]


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
    missing = [line[0] for line in lines if not line[3]]
    reasons = collections.Counter(re.sub(r"'[^']*'", "'…'", why) for why in failing(results).values())
    summary = "\n".join(f"- {line}" for line in suite.summarise(results, detailed=False).splitlines())
    return HEADER.format(
        version=onnx.__version__,
        summary=summary,
        classes=table(rows(kinds, good)),
        operators=table([line for line in lines if line[3]]),
        contrib=", ".join(sorted(o.partition("com.microsoft.")[2] for o in evaluate.operators() if o.startswith("com.microsoft."))),
        missing=", ".join(missing),
        sequences=", ".join(o for o in missing if "Sequence" in o and o in evaluate.operators()) or "none",
        failing=sum(reasons.values()),
        reasons=table([[count, why.replace("|", "\\|")] for why, count in sorted(reasons.items(), key=lambda r: (-r[1], r[0]))]),
    )


def list_differences(results: list[suite.Result]) -> list[str]:
    """Differences between the list and a run of some tests."""
    now, listed = failing(results), read_failing()
    lines = []
    for name in sorted({result.name for result in results}):
        if name in listed and name not in now:
            lines.append(f"{name} passes and is listed in {FAILING.name} with: {listed[name]}")
        elif name in now and name not in listed:
            lines.append(f"{name} fails and is not listed: {now[name]}")
        elif now.get(name) != listed.get(name):
            lines.append(f"{name} fails with: {now[name]}; listed with: {listed[name]}")
    return lines


def differences(results: list[suite.Result]) -> list[str]:
    """Differences between the files and a run."""
    lines = list_differences(results)
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
    FAILING.write_text("".join(f"{name}: {why}\n" for name, why in sorted(failing(results).items())))
    PAGE.write_text(render(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
