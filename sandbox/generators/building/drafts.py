"""Drafts of generators that plant a change in a package: a broken checkout and the correct files.

A draft becomes a task (`builder.py`) only if the package's own tests tell the two apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from sandbox.tasks.spec import Category, TaskSource


class Reason(StrEnum):
    """Why a draft did not become a task."""

    INVALID = "does not parse, or means the same"
    HANGS = "the tests do not come to their end"
    UNNOTICED = "no test notices"
    BREAKS_TOO_MUCH = "most tests fail"
    UNCLEAR = "a test neither passes nor fails"
    UNSTEADY = "the tests do not say the same every time"
    NOTHING_LEFT = "no test is left that passes"
    NOTHING_TO_SHOW = "no failing test is short enough to show"
    NEAR = "every failing test looks straight at the cause"
    UNSUITED = "the place does not suit this kind of work"
    NOT_ALL_NEEDED = "one of the bugs shows no failure of its own"
    STILL_THERE = "the checkout still mentions what was taken out"
    NOT_GREEN = "other tests fail without the feature"
    MOVED_ON = "the code has changed since the commit"
    LEAKS = "the instruction gives the answer away"
    CONTROLS = "a control does not hold"
    ALIKE = "nearly the same as a task made before"


@dataclass(frozen=True, slots=True)
class Rejected:
    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    source: TaskSource
    category: Category
    operator: str
    """How it was made, in a few words; several joined by `+`."""
    broken: dict[str, str]
    """Files of the product as the agent gets them: path → text."""
    gold: dict[str, str]
    """The same files as they should be."""
    expected: tuple[str, ...]
    """Stable tests that decide: those that enter what was changed, and others near it."""
    family: str
    functions: tuple[str, ...] = ()
    """Qualified names of what was changed."""
    visible_tests: dict[str, str] = field(default_factory=dict)
    """Test files as the agent gets them, where the generator writes them itself."""
    groups: tuple[tuple[str, ...], ...] = ()
    """Tests that show each of several bugs; the instruction tells of one of each group."""
    shown: tuple[str, ...] = ()
    """Tests that the instruction may show, where the failure is to be far from its cause; any without them."""
    summary: str = ""
    """What is wanted, for a task that is not about a failure."""
