"""Interface of a mirror, and the state that it keeps to continue after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

Kept = dict[str, Any]
"""What a mirror needs to go on in another process, as JSON."""


class MirrorError(Exception):
    """The tool is not installed, or does not take the points. The message says what to do."""


class Point(NamedTuple):
    """One value; `at` is when it was stored, which is the order of all points of a run."""

    at: datetime
    step: int
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class About:
    """The run that is mirrored."""

    id: int
    name: str
    config: dict[str, Any]
    tags: tuple[str, ...] = ()


class Mirror(Protocol):
    def write(self, points: Sequence[Point], kept: Kept) -> Kept:
        """Store the points for good and return what to keep with them.

        When the process dies before that is written down, the same points come again with the old `kept`: they must
        then count once. Raises MirrorError.
        """
        ...
