"""gridloom-solve as a program: one line of JSON, one line for an error, and the exit codes."""

from __future__ import annotations

import gzip
import json
import subprocess

import pytest

EXAMPLE = {
    "problem": {
        "name": "example",
        "nodes": {
            "intervals": [[30, 70], [40, 70], [50, 120], [110, 140], [110, 150]],
            "costs": [[15], [55, 65], [25, 45, 35], [85, 75], [95]],
            "usages": [[10], [25, 25], [15, 20, 15], [10, 10], [15]],
        },
        "edges": {
            "nodes": [[0, 1], [0, 2], [1, 3], [2, 4], [3, 4]],
            "costs": [[30, 40], [50, 10, 40], [90, 10, 20, 80], [60, 20, 30], [70, 60]],
        },
        "usage_limit": 50,
    }
}


@pytest.fixture
def solve(tools, tmp_path):
    def run(*arguments, problem=None):
        path = tmp_path / "problem.json"
        path.write_text(json.dumps(problem or EXAMPLE))
        command = [str(tools.path("gridloom-solve")), *(str(path) if a == "FILE" else str(a) for a in arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    return run


@pytest.mark.parametrize("options", [[], ["--time", "0"], ["--time", "5", "--threads", "2"], ["--work", "10"]])
def test_the_example_is_solved(solve, options):
    result = solve("FILE", *options)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") == 1
    answer = json.loads(result.stdout)
    assert list(answer) == ["cost", "lower_bound", "assignment", "work"]
    assert (answer["cost"], answer["lower_bound"], answer["assignment"]) == (445, 445, [0, 0, 2, 1, 0])


def test_gzip_is_read(solve, tmp_path):
    path = tmp_path / "problem.json.gz"
    path.write_bytes(gzip.compress(json.dumps(EXAMPLE).encode()))
    assert json.loads(solve(path).stdout)["cost"] == 445
    path.write_bytes(path.read_bytes()[:-9])
    result = solve(path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"error: {path}: is a gzip file that was cut off\n"


def test_an_infeasible_problem_names_the_time(solve):
    problem = json.loads(json.dumps(EXAMPLE))
    problem["problem"]["usage_limit"] = 49
    result = solve("FILE", problem=problem)
    assert (result.returncode, result.stdout) == (1, "")
    assert "the least usage at time 50 is 50, above the limit of 49" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments,words",
    [
        ([], "problem is required"),
        (["FILE", "--time", "nan"], "--time"),
        (["FILE", "--time", "-1"], "--time"),
        (["FILE", "--work", "-1"], "--work"),
        (["FILE", "--threads", "0"], "--threads"),
        (["FILE", "--tim", "3"], "did you mean '--time'?"),
        (["FILE", "another"], "one argument too many"),
    ],
)
def test_wrong_usage_is_one_line(solve, arguments, words):
    result = solve(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert "see gridloom-solve --help" in result.stderr


def test_a_missing_file_is_one_line(solve):
    result = solve("/nowhere.json")
    assert result.returncode == 1
    assert result.stderr == "error: /nowhere.json: cannot be opened: No such file or directory\n"


def test_help_teaches_the_format(solve):
    text = solve("--help").stdout
    for words in ("usage_limit", "lower_bound", "Exit codes", "--work", "Examples:"):
        assert words in text
