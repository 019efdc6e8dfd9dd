"""Interface of a mirror, and the state that it keeps to continue after a restart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

KINDS = {"tensorboard": "TensorBoard", "mlflow": "Mlflow", "wandb": "Wandb"}
"""Names, with the class of the module of the same name."""
SECRET = re.compile(r"//\S*@")
"""User and password of an address."""
Kept = dict[str, Any]
"""What a mirror needs to go on in another process, as JSON."""


class MirrorError(Exception):
    """The tool is not installed, or does not take the points. The message says what to do."""


def wanted(text: str) -> list[tuple[str, str]]:
    """`kind=where` pairs of OPENCOMPOSER_MIRRORS, separated by commas. Raises ValueError in words."""
    found: list[tuple[str, str]] = []
    for pair in filter(None, map(str.strip, text.split(","))):
        kind, _, where = (part.strip() for part in pair.partition("="))
        if kind not in KINDS or not where:
            raise ValueError(f"must be kind=where with {', '.join(KINDS)}, found {SECRET.sub('//…@', pair)!r}")
        if kind in dict(found):
            raise ValueError(f"names {kind} twice; a kind has one place")
        found.append((kind, where))
    return found


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
