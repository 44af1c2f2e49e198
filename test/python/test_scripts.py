"""The scripts that others rely on to tell failure from success."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import ROOT

GOOGLETEST = """<testsuite><testcase name="A.b" status="run"/>
<testcase name="A.c" status="fail"><failure message=""/></testcase>
<testcase name="A.d" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
<system-out>[ RUN      ] A.d
file.cpp:3: Skipped
no GPU here
[  SKIPPED ] A.d (0 ms)</system-out></testcase></testsuite>"""
PYTEST = """<testsuites><testsuite><testcase classname="t" name="a"/><testcase classname="t" name="b">
<skipped type="pytest.skip" message="slow; runs with --full"/></testcase></testsuite></testsuites>"""
PASSED = '<testsuite><testcase name="a"/></testsuite>'


def summarise(folder, **results: str) -> subprocess.CompletedProcess:
    for name, text in results.items():
        (folder / f"{name}.xml").write_text(text)
    command = [sys.executable, ROOT / "scripts" / "test_summary.py", *(folder / name for name in results)]
    return subprocess.run(command, capture_output=True, text=True)


def test_runners_are_summed_and_skips_explained(tmp_path):
    result = summarise(tmp_path, units=GOOGLETEST, python=PYTEST)
    assert result.returncode == 1
    assert result.stdout.splitlines()[-1] == "2 passed, 1 failed, 2 skipped"
    assert "FAILED A.c" in result.stdout
    assert "SKIPPED A.d: no GPU here" in result.stdout
    assert "SKIPPED t.b: slow; runs with --full" in result.stdout


@pytest.mark.parametrize(
    "results,code,last",
    [
        ({"a": PASSED, "b": PASSED}, 0, "2 passed, 0 failed, 0 skipped"),
        ({"a": PASSED, "b": "<testsuite>"}, 1, "1 passed, 1 failed, 0 skipped"),
        ({"a": "<testsuite/>"}, 1, "0 passed, 0 failed, 0 skipped"),
    ],
    ids=["all pass", "a runner crashed", "nothing ran"],
)
def test_the_exit_code_says_whether_all_is_well(tmp_path, results, code, last):
    result = summarise(tmp_path, **results)
    assert (result.returncode, result.stdout.splitlines()[-1]) == (code, last)


def test_bootstrap_has_nothing_to_do_here():
    # The tests run in what it made: a second run is silent and quick.
    result = subprocess.run([ROOT / "scripts" / "bootstrap"], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("script", ["bootstrap", "build", "test", "quickstart", "format", "lint"])
def test_scripts_parse_and_run_from_anywhere(script):
    path = ROOT / "scripts" / script
    subprocess.run(["bash", "-n", path], check=True)
    assert path.stat().st_mode & 0o111
    assert 'cd "$(dirname "${BASH_SOURCE[0]}")/.."' in path.read_text()


def test_the_page_on_phases_is_up_to_date(tools):
    command = [sys.executable, ROOT / "scripts" / "docs.py", "--check", tools.path("gridloom-compile")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
