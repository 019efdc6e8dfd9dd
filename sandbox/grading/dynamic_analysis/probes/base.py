"""What every language offers: probes of its tests, the command that runs them, and how their reports are read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sandbox.grading.dynamic_analysis.probes import go, javascript, python, rust
from sandbox.grading.dynamic_analysis.probes.variation import Made

VARIANTS = 6
"""The first one asks what the tests ask."""
REPORT = re.compile(rb"\x02oc (\d{1,9}) (\d{1,9}) (\d{1,9}) ([0-9a-f]*) ([012]) ([0-9a-f]*) ([0-9a-f]*)")
UNSTEADY = re.compile(r"\b0x[0-9a-f]{4,}")
MAX_REPORTS = 20_000


@dataclass(frozen=True, slots=True)
class Key:
    """One answer: of which file, variant, place and row, and the how many-eth of these."""

    file: int
    variant: int
    site: int
    row: str
    number: int


@dataclass(frozen=True, slots=True)
class Answer:
    left: str
    right: str
    equal: bool
    """Whether both sides were called equal."""
    own: bool
    """By a comparison that the product may have written."""

    @property
    def steady(self) -> bool:
        """An address says nothing that can be compared."""
        return not UNSTEADY.search(self.left + self.right)


class Probes(Protocol):
    """One language: a module of these functions."""

    def is_test(self, path: str) -> bool: ...

    def probes(self, tests: Mapping[str, str], variants: int) -> Made:
        """The probes of all `tests` in every variant; no files where none can be made."""
        ...

    def command(self, files: Sequence[str], python: str) -> str:
        """Runs these probes and the tests, with all that they say in `$RESULT_FD`."""
        ...

    def passed(self, output: str) -> frozenset[str]:
        """Names of functions that passed as tests, and failed in no other place."""
        ...


PROBES: tuple[Probes, ...] = (python, javascript, go, rust)


def language_of(path: str) -> Probes | None:
    """What rewrites this test file; None for a file that is none, or is in another language."""
    return next((language for language in PROBES if language.is_test(path)), None)


def read(output: bytes) -> dict[Key, Answer]:
    """The answers in the output of probes. Written beside code under test, so it may hold anything."""
    found: dict[Key, Answer] = {}
    counts: dict[tuple[int, int, int, str], int] = {}
    for report in REPORT.finditer(output):
        if len(found) >= MAX_REPORTS:
            break
        file, variant, site = (int(report[n]) for n in (1, 2, 3))
        try:
            row, left, right = (bytes.fromhex(report[n].decode()).decode("utf-8", "replace") for n in (4, 6, 7))
        except ValueError:
            continue
        place = (file, variant, site, row)
        counts[place] = counts.get(place, 0) + 1
        found[Key(*place, counts[place])] = Answer(left, right, report[5] != b"0", report[5] == b"1")
    return found
