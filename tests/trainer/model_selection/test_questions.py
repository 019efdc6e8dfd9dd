"""Questions of state tracking: their answers follow from what is read, and they are about the codebase that is measured."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.model_selection.codebase import Codebase, Recent, read_codebase
from trainer.model_selection.questions import MAX_CHARS, QUESTION, StateItem, generated, of_codebase

HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
SOURCE = """import os


def total(values):
    out = 0
    for value in values:
        out += value
    return out


def mean(values):
    count = len(values)
    return total(values) / count
"""


def folder(root: Path, **files: str) -> Codebase:
    root.mkdir(exist_ok=True)
    for name, text in files.items():
        (root / f"{name}.py").write_text(text)
    return read_codebase(root, Recent(), max_bytes=100_000)


def after(item: StateItem) -> str:
    """What the question asks for, by applying its diffs to the text before them."""
    read = item.prompt.removesuffix(QUESTION)
    at = read.index("--- \n")
    lines = read[:at].splitlines()
    lines = lines[1:] if re.fullmatch(r"# \S+\.py", lines[0]) else lines
    rows = read[at:].splitlines()
    while rows:
        row = rows.pop(0)
        if row.startswith("--- "):
            shift = 0
        elif found := HUNK.match(row):
            old, new = int(found[2] or 1), int(found[4] or 1)
            removed = [rows.pop(0)[1:] for _ in range(old)]
            added = [rows.pop(0)[1:] for _ in range(new)]
            start = int(found[1]) - (1 if old else 0) + shift
            assert lines[start : start + old] == removed
            lines[start : start + old] = added
            shift += new - old
    return "\n".join(lines) + "\n"


def test_generated_questions_follow_from_their_diffs() -> None:
    items = generated(20, changes=3, seed=1)
    assert [after(item) for item in items] == [item.answer for item in items]
    assert items[:3] == generated(3, changes=3, seed=1) != generated(3, changes=3, seed=2)


@given(st.integers(0, 1000), st.integers(1, 6))
def test_questions_about_passages_follow_from_their_diffs(
    tmp_path_factory: pytest.TempPathFactory, seed: int, changes: int
) -> None:
    codebase = folder(tmp_path_factory.getbasetemp() / "passages", a=SOURCE)
    items = of_codebase(codebase, 3, changes=changes, seed=seed)
    assert [after(item) for item in items] == [item.answer for item in items]
    words = set(re.findall(r"\w+", SOURCE))
    assert all(set(re.findall(r"\w+", item.answer)) <= words for item in items), "edits use the file's own words"
    assert items == of_codebase(codebase, 3, changes=changes, seed=seed)


def test_the_history_of_a_repository_comes_first(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path), *words], check=True)

    git("init", "-q", "-b", "main")
    versions = [SOURCE.replace("out = 0", f"out = {number}") for number in range(4)]
    for number, text in enumerate(versions):
        (tmp_path / "sums.py").write_text(text)
        (tmp_path / "other.py").write_text(SOURCE if number else SOURCE.upper())
        (tmp_path / "large.py").write_text(f"x = {number}\n" * MAX_CHARS)
        git("add", ".")
        git("commit", "-q", "-m", str(number))
    codebase = read_codebase(tmp_path, Recent(commits=1), max_bytes=100_000)
    first, *rest = of_codebase(codebase, 4, changes=2, seed=0)
    assert first.prompt.startswith(f"# sums.py\n{versions[1]}") and first.answer == versions[3]
    assert after(first) == first.answer
    assert len(rest) == 3 and not any(versions[1] in item.prompt for item in rest), "the others are passages"


@pytest.mark.parametrize("text", ["x = 1\n", "y = 2\n\n\n"])
def test_a_codebase_without_a_passage_has_no_question(tmp_path: Path, text: str) -> None:
    assert of_codebase(folder(tmp_path / "code", a=text), 2, changes=1, seed=0) == []
