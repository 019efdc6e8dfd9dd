"""docs/method.md names files and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [line.split("|")[1:4] for line in (ROOT / "docs/method.md").read_text().splitlines() if line.startswith("| ")]
CELLS = [(row[0].strip(), row[1], row[2]) for row in ROWS if row[1].strip() != "file"]


@pytest.mark.parametrize(("fact", "files", "tests"), CELLS, ids=[cell[0][:40] for cell in CELLS])
def test_what_the_table_names_is_there(fact: str, files: str, tests: str) -> None:
    for name in re.findall(r"`([^`]+)`", files):
        assert any((base / name).exists() for base in (ROOT / "trainer", ROOT)), name
    last = ""
    named = re.findall(r"`([^`]+)`", tests)
    assert named, f"no test for {fact!r}"
    for name in named:
        path, _, function = name.partition("::")
        last = last if path == "…" else path
        found = [base / last for base in (ROOT / "tests/trainer", ROOT) if (base / last).exists()]
        assert found, name
        assert not function or f"def {function}(" in found[0].read_text(), name
