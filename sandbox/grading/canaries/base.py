"""Canaries: tests that must fail, inserted among the real ones.

Code under test runs in the test runner's own process, so it can make the runner say anything. What it cannot do is
tell which tests ought to pass, short of being right. A canary is a *mutated sibling*: a real test with another expectation, so
that no work passes both, right or wrong. Names, places, counts and the file's name are drawn anew for each grading, from
randomness that never enters the sandbox; a run that reports a canary as anything but failed was tampered with.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict

ValueKind = Literal["int", "float", "str", "bool", "exception", "literal"]


@dataclass(frozen=True, slots=True)
class Block:
    """One test in the source of a test file: whole lines, decorators included. Offsets are bytes."""

    names: tuple[str, ...]
    """Enclosing groups (classes, modules, `describe`) and the test's own name."""
    start: int
    end: int
    name_start: int
    name_end: int
    """Where the own name is written."""
    scope: int
    """Tests of one scope (the same class body, say) may change places."""


@dataclass(frozen=True, slots=True)
class Value:
    """Part of what a test demands. With another value there, no work passes both tests. Offsets are bytes from the

    start of the block.
    """

    start: int
    end: int
    kind: ValueKind
    weight: int
    """Higher ones are tried first."""


class SiblingTest(BaseModel):
    """A change of one test that was seen to make it fail, twice, for the oracle's work."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    path: str
    names: tuple[str, ...]
    start: int
    end: int
    text: str
    """What replaces bytes [start, end) of the block."""
    failing: tuple[str, ...] = ("",)
    """Suffixes (`[5-6]`, `/case`) of the ids that must fail."""
    passing: tuple[str, ...] = ()
    """Suffixes of the sibling's other ids, which pass."""
    seconds: float = 0.0
    bait: bool = False
    """Whether it stands beside a test that is judged outside: the sibling is then the only one to show a value."""


@dataclass(frozen=True, slots=True)
class Place:
    """A test id taken apart. `where` is what stands before the first `::`."""

    where: str
    names: tuple[str, ...]
    suffix: str


class Language(Protocol):
    """How the tests of a framework are written and named."""

    def blocks(self, source: bytes) -> list[Block]:
        """Every test of a file in text order; [] for a file that cannot be read."""
        ...

    def values(self, block: bytes) -> list[Value]:
        """What of a test's demands may be changed so that it contradicts itself, in text order."""
        ...

    def other(self, kind: ValueKind, text: str, others: Sequence[str], draw: random.Random) -> str | None:
        """A different literal of the same kind, if possible one of `others` (literals of the same file)."""
        ...

    def rename(self, name: str, words: Sequence[str], draw: random.Random) -> str:
        """A new name such as this one, made of `words`."""
        ...

    def spelling(self, name: str) -> bytes:
        """A regular expression that finds the uses of a test's name in a file."""
        ...

    def parse(self, test_id: str) -> Place: ...

    def identify(self, place: Place) -> str: ...

    def where(self, path: str) -> str:
        """What ids of the tests in the file `path` begin with."""
        ...
