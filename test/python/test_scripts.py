"""The scripts' exit codes and output, which others rely on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

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


RATES = """
double linkSeconds = 80e-6;
constexpr double kFlopsPerByte{2};
Machine() : bytesPerSecond{.5e9} {}
"""
NO_RATES = """
double seconds = getSeconds(2), step = 3;
double linkSeconds = 0; // was linkSeconds = 80e-6
double linkSeconds = 0, rate = machine.flopsPerSecond;
"""


def test_rates_are_found_by_their_names(tmp_path):
    sys.path.insert(0, str(ROOT / "scripts"))
    import lint_rules

    for text, lines in [(RATES, [2, 3, 4]), (NO_RATES, [])]:
        (tmp_path / "a.cpp").write_text(text)
        assert [line for line, _ in lint_rules.rates(tmp_path / "a.cpp")] == lines


CRASH = """
#include <string.h>
__attribute__((noinline)) void stumble(char *place) { strcpy(place, "far out"); }
int main(int count, char **words) { stumble((char *)(long)count); return words[0][0]; }
"""


def test_a_crash_shows_where_it_was(tmp_path):
    """Shows the stack, or says who gets the dump: the core pattern is the whole machine's."""
    (tmp_path / "begin").touch()
    (tmp_path / "crash.c").write_text(CRASH)
    subprocess.run(["clang-22", "-g", "-O0", "-fno-builtin", "crash.c", "-o", "crash"], cwd=tmp_path, check=True)
    inner = tmp_path / "inner"
    inner.mkdir()
    shell = 'ulimit -c "$(ulimit -H -c)"; ulimit -c; ../crash'
    crashed = subprocess.run(["bash", "-c", shell], cwd=inner, capture_output=True, text=True)
    assert crashed.returncode in (-11, 128 + 11)
    command = [sys.executable, ROOT / "scripts/cores.py", tmp_path / "begin", tmp_path / "kept", tmp_path]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith("|"):
        assert f"this system gives core dumps to '{pattern[1:].strip()}'" in shown
    elif crashed.stdout.strip() == "0":
        assert shown == ""  # the hard limit forbids dumps
    else:
        assert (tmp_path / "kept" / "core-0").exists() and not any(inner.iterdir())
        assert "core-0" in shown and ("stumble" in shown or not shutil.which("gdb"))


@pytest.mark.parametrize(
    "pattern,name,fits",
    [
        ("core", "core", True),
        ("core", "core.17", True),
        ("core", "core.cpp", False),
        ("%e-%p.core%%", "crash-17.core%", True),
        ("core.%e.%p", "core.17", False),
    ],
)
def test_names_of_dumps(pattern, name, fits):
    sys.path.insert(0, str(ROOT / "scripts"))
    import cores

    assert bool(re.fullmatch(cores.to_expression(pattern), name)) == fits


def test_bootstrap_has_nothing_to_do_here():
    # The tests run in its result: a second run is silent and quick.
    result = subprocess.run([ROOT / "scripts" / "bootstrap"], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("script", ["bootstrap", "build", "test", "quickstart", "format", "lint"])
def test_scripts_parse_and_run_from_anywhere(script):
    path = ROOT / "scripts" / script
    subprocess.run(["bash", "-n", path], check=True)
    assert path.stat().st_mode & 0o111
    assert 'cd "$(dirname "${BASH_SOURCE[0]}")/.."' in path.read_text()


def test_the_full_run_stays_below_8_hours():
    """On two cores, including three builds: a plain one and two with sanitizers."""
    shares = re.findall(r"^  (?:section|sampled) (\S+) (\d+) ", (ROOT / "scripts" / "test").read_text(), re.M)
    full = [int(seconds) for _, seconds in shares if seconds != "0"]
    assert len(full) > 15 and sum(full) + 3600 <= 8 * 3600


def copy_script(folder: Path, sections: str) -> None:
    """Copies scripts/test with the given sections; a section `NAME pass|fail|hang` leaves a result, or hangs."""
    (folder / "scripts").mkdir()
    (folder / "bin").mkdir()
    text = (ROOT / "scripts" / "test").read_text()
    text = re.sub(r"^run_sections\(\) \{.*?^\}$", f"run_sections() {{\n{sections}\n}}", text, flags=re.S | re.M)
    text = text.replace("\nexport -f ", '''
fake() { echo "$1 ran" >> ran; echo "$1 $GRIDLOOM_SECONDS" >> seconds; [[ $2 != hang ]] || sleep 60; echo "$FAKE" | sed "s/OUTCOME/$2/" > "$results/$1.xml"; }
export -f fake ''')
    (folder / "scripts" / "test").write_text(text)
    (folder / "scripts" / "cores.py").write_text("")
    shutil.copy(ROOT / "scripts" / "test_summary.py", folder / "scripts")
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)


def run_script(folder: Path, *options: str) -> subprocess.CompletedProcess:
    fake = '<testsuite><testcase name="a" status="OUTCOME"/></testsuite>'
    environment = {**os.environ, "FAKE": fake, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    command = ["bash", folder / "scripts" / "test", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def test_sections_have_shares_and_a_table(tmp_path):
    copy_script(tmp_path, "  section one 20 fake pass\n  section two 1 fake hang\n  section three 20 fake pass")
    result = run_script(tmp_path, "--full")
    assert result.returncode == 1, result.stderr
    assert "two was ended: it took more than its share of 1 s" in result.stdout
    assert "FAILED two: the runner left no result" in result.stdout
    assert re.search(r"^one +\d+ s\ntwo +[1-9]\d* s\nthree +\d+ s$", result.stdout, re.M), result.stdout
    assert result.stdout.splitlines()[-1] == "2 passed, 1 failed, 0 skipped"


def test_hours_shorten_what_is_sampled(tmp_path):
    copy_script(tmp_path, "  section one 800 fake pass\n  sampled two 800 fake pass\n  sampled three 200 fake pass")
    assert run_script(tmp_path, "--full").returncode == 0
    assert run_script(tmp_path, "--full", "--hours", "2").returncode == 0
    whole, quarter = "one 640\ntwo 640\nthree 160\n", "one 640\ntwo 160\nthree 96\n"
    assert (tmp_path / "seconds").read_text() == whole + quarter
    for wrong in (["--hours", "2"], ["--full", "--hours", "0"], ["--full", "--hours"]):
        result = run_script(tmp_path, *wrong)
        assert result.returncode == 2 and "--hours 1..8" in result.stderr


def test_a_run_resumes_after_its_last_section(tmp_path):
    copy_script(tmp_path, "  section one 20 fake pass\n  section two 20 fake pass")
    seed = re.search(r"GRIDLOOM_SEED=\d+", run_script(tmp_path, "--full").stdout)[0]
    (tmp_path / "build" / "test-results" / "two.seconds").unlink()
    resumed = run_script(tmp_path, "--full", "--resume")
    assert (resumed.returncode, resumed.stdout.splitlines()[-1]) == (0, "2 passed, 0 failed, 0 skipped")
    assert "one: done before" in resumed.stdout and seed in resumed.stdout
    assert (tmp_path / "ran").read_text() == "one ran\ntwo ran\ntwo ran\n"
    (tmp_path / "build" / "test-results" / "tree").write_text("another")
    other = run_script(tmp_path, "--full", "--resume")
    assert other.returncode == 2 and "no run of this tree to resume" in other.stderr


def test_sections_run_alone(tmp_path):
    copy_script(tmp_path, "  section one 20 fake pass\n  section two 20 fake fail")
    alone = run_script(tmp_path, "--full", "two")
    assert (alone.returncode, alone.stdout.splitlines()[-1]) == (1, "0 passed, 1 failed, 0 skipped")
    assert run_script(tmp_path, "one").returncode == 2


def test_each_of_many_sections_is_known(tmp_path):
    names = [f"section-{i}" for i in range(400)]
    copy_script(tmp_path, "\n".join(f"  section {name} 20 fake pass" for name in names))
    for name in (names[0], names[100], names[-1]):
        alone = run_script(tmp_path, "--full", name)
        assert alone.returncode == 0, alone.stderr


def test_sections_alone_keep_what_others_found(tmp_path):
    copy_script(tmp_path, "  section one 20 fake pass\n  section two 20 fake pass")
    run_script(tmp_path, "--full")
    (tmp_path / "build" / "test-results" / "one.seconds").write_text("7")
    unknown = run_script(tmp_path, "--full", "two", "three")
    assert unknown.returncode == 2 and "no section is named three" in unknown.stderr
    alone = run_script(tmp_path, "--full", "two")
    assert (alone.returncode, alone.stdout.splitlines()[-1]) == (0, "1 passed, 0 failed, 0 skipped")
    resumed = run_script(tmp_path, "--full", "--resume")
    assert resumed.stdout.splitlines()[-1] == "2 passed, 0 failed, 0 skipped"
    assert "one: done before" in resumed.stdout and re.search(r"^one +7 s$", resumed.stdout, re.M), resumed.stdout
    assert (tmp_path / "ran").read_text() == "one ran\ntwo ran\ntwo ran\n"


def test_the_generated_pages_are_up_to_date(tools):
    command = [sys.executable, ROOT / "scripts" / "docs.py", "--check", tools.path("gridloom-compile")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
