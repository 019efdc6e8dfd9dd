"""docs/sandbox/threat-model.md: each threat names tests that exist, by file and function."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/sandbox/threat-model.md").read_text()
ITEM = re.compile(r"\*\*(?P<threat>.+?)\.\*\* Answer: (?P<answer>.+?)\. Proved by: (?P<proof>.+)\.")
THREATS = [" ".join(item.split()) for item in re.findall(r"^\* (.+(?:\n  .+)*)", TEXT, re.MULTILINE)]


@functools.cache
def functions_of(path: str) -> set[str]:
    """Names of the test functions of a file, those in classes too."""
    tree = ast.parse((ROOT / path).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {function.name for function in found if function.name.startswith("test_")}


def test_there_are_threats() -> None:
    assert len(THREATS) > 40
    assert [threat for threat in THREATS if not ITEM.fullmatch(threat)] == []


@pytest.mark.parametrize("threat", THREATS, ids=[threat[2:52] for threat in THREATS])
def test_what_proves_an_answer_is_there(threat: str) -> None:
    """`file::test`; `::test` is another one of the file before it."""
    found = ITEM.fullmatch(threat)
    assert found is not None, threat
    named = re.findall(r"`([^`:]*)::([^`]+)`", found["proof"])
    assert named, f"{found['threat']!r} names no test: write `tests/…/test_file.py::test_name`"
    path = ""
    for file, function in named:
        path = file or path
        assert path.startswith("tests/") and (ROOT / path).is_file(), f"there is no file {path!r}"
        assert function in functions_of(path), f"{path} has no test {function!r}"
