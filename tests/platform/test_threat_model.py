"""docs/sandbox/threat-model.md: each threat names tests that exist, by file and function."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/sandbox/threat-model.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| Threat ")
]


@functools.cache
def functions_of(path: str) -> set[str]:
    """Names of the test functions of a file, those in classes too."""
    tree = ast.parse((ROOT / path).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {function.name for function in found if function.name.startswith("test_")}


def test_there_are_threats() -> None:
    assert len(ROWS) > 40 and {len(row) for row in ROWS} == {3}


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:50] for row in ROWS])
def test_what_proves_an_answer_is_there(row: list[str]) -> None:
    """`file::test`; `::test` is another one of the file before it."""
    named = re.findall(r"`([^`:]*)::([^`]+)`", row[2])
    assert named, f"{row[0]!r} names no test: write `tests/…/test_file.py::test_name`"
    path = ""
    for file, function in named:
        path = file or path
        assert path.startswith("tests/") and (ROOT / path).is_file(), f"there is no file {path!r}"
        assert function in functions_of(path), f"{path} has no test {function!r}"
