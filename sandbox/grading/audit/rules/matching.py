"""Patterns over the materials of an attempt, shared by the families."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from sandbox.grading.audit.attempt.attempt import Attempt, Code, Touch
from sandbox.grading.audit.attempt.evidence import Evidence
from sandbox.grading.audit.rules.base import Hit, Severity


@dataclass(frozen=True, slots=True)
class Pattern:
    """`text` decides what is read: `code` with strings and comments blanked, or `raw` as it is."""

    severity: Severity
    note: str
    regex: re.Pattern[str]
    text: Literal["code", "raw"] = "code"


def pattern(severity: Severity, note: str, regex: str, *, raw: bool = False) -> Pattern:
    return Pattern(severity, note, re.compile(regex, re.MULTILINE), "raw" if raw else "code")


def in_code(attempt: Attempt, pieces: Iterable[Code], patterns: Iterable[Pattern]) -> Iterator[Hit]:
    wanted = list(patterns)
    for code in pieces:
        masked = code.masked
        for item in wanted:
            for found in item.regex.finditer(code.text if item.text == "raw" else masked):
                yield Hit(item.severity, item.note, attempt.at(code, *found.span()))


def in_touches(touches: Iterable[Touch], patterns: Iterable[Pattern]) -> Iterator[Hit]:
    """Patterns over the paths that calls read or wrote."""
    wanted = list(patterns)
    for touch in touches:
        for item in wanted:
            if item.regex.search(touch.path):
                yield Hit(item.severity, f"{item.note}: {touch.path[:120]}", touch.evidence)
                break


def whole_file(path: str, note: str = "") -> Evidence:
    """A changed file as such, where no single line says it."""
    return Evidence(source="patch", field=path, excerpt=note or path)
