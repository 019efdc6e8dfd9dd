"""The table of outcomes is the one in the documentation."""

from __future__ import annotations

from pathlib import Path

from sandbox.grading.verdict.outcomes import OUTCOMES, Cause, table

DOCUMENT = Path(__file__).parents[4] / "docs/sandbox/grading.md"


def test_the_document_shows_the_table():
    assert table() in DOCUMENT.read_text(encoding="utf-8")


def test_every_cause_has_a_row():
    assert set(OUTCOMES) == set(Cause)
