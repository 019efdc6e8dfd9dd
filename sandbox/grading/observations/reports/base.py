"""Observed assertions: expressions reported from inside the sandbox, and a condition judged outside.

A rewriter of a language turns `assert f(x) == 3` into a report of `f(x)`, and keeps the condition `v0 == 3` on the
host. Nothing of the expectation enters the sandbox, so work that reads, searches or patches what is there finds
nothing to agree with. Conditions are Python expressions in every language (`judge.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sandbox.grading.adapters.base import Hit


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Leaf(Frozen):
    """One part of an assertion's condition. In the condition it is the name `v<number>`."""

    observed: bool
    """True: reported by each grading. False: withheld, and recorded once from the oracle's work."""
    source: str
    """The expression as it stands in the test."""


class Site(Frozen):
    """One assertion of a test file that is judged outside the sandbox."""

    number: int
    path: str
    test: tuple[str, ...]
    """Names of the enclosing classes and of the outermost function."""
    kind: Literal["value", "raises"] = "value"
    """`value`: the condition must hold. `raises`: an exception whose type is one of `v<i>` (classes) must be raised."""
    condition: str = "True"
    """A Python expression over `v0`, `v1`, … For `raises`: a regular expression that the message must contain, or ""."""
    leaves: tuple[Leaf, ...] = ()
    repeats: bool = False
    """Whether the assertion may run another number of times for other right work (a loop over what was computed)."""
    beside: bool = False
    """Whether a variable of the delivered Python test still holds what is expected."""

    @property
    def observed(self) -> tuple[int, ...]:
        return tuple(index for index, leaf in enumerate(self.leaves) if leaf.observed)

    @property
    def withheld(self) -> tuple[int, ...]:
        return tuple(index for index, leaf in enumerate(self.leaves) if not leaf.observed)


class Expected(Frozen):
    """One execution of a site in one test, as the oracle's work did it."""

    site: int
    values: dict[int, Any] = Field(default_factory=dict)
    """Number of a withheld leaf → its value, encoded (`values.py`)."""


Expectations = Annotated[dict[str, tuple[Expected, ...]], Field(default_factory=dict)]
"""Test id → its expected executions in order."""


@dataclass(slots=True)
class Observed:
    """What one test reported."""

    hits: list[Hit] = field(default_factory=list)
