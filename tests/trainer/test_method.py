"""docs/method.md names files and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/method.md").read_text()
ITEMS = [" ".join(item.split()) for item in re.findall(r"^\* (.+(?:\n  .+)*)", TEXT, re.MULTILINE)]
PARTS = re.compile(r"\*\*(?P<fact>.+?)\.\*\* (?:File: (?P<files>.+?)\. )?Test: (?P<tests>.+)\.")


def test_every_technique_is_an_item() -> None:
    assert len(ITEMS) > 60
    assert [item for item in ITEMS if not PARTS.fullmatch(item)] == []


@pytest.mark.parametrize("item", ITEMS, ids=[item[2:42] for item in ITEMS])
def test_what_an_item_names_is_there(item: str) -> None:
    parts = PARTS.fullmatch(item)
    assert parts is not None, item
    for name in re.findall(r"`([^`]+)`", parts["files"] or ""):
        if "/" in name:  # settings have no path
            assert any((base / name).exists() for base in (ROOT / "trainer", ROOT)), name
    last = ""
    named = re.findall(r"`([^`]+)`", parts["tests"])
    assert named, f"no test for {parts['fact']!r}"
    for name in named:
        path, _, function = name.partition("::")
        last = last if path == "…" else path
        found = [base / last for base in (ROOT / "tests/trainer", ROOT) if (base / last).exists()]
        assert found, name
        assert not function or f"def {function}(" in found[0].read_text(), name
