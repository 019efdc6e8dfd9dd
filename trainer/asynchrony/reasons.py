"""Why groups were dropped, in a word each, for the run's metrics (`groups/dropped/<word>`)."""

from __future__ import annotations

_WORDS: tuple[tuple[str, str], ...] = (
    ("quarantine", "quarantine"),
    ("controls", "task"),
    ("cancelled", "ended"),
    ("ended", "ended"),
    ("version", "versions"),
    ("reward part", "reward"),
    ("NaN or infinity", "numbers"),
    ("did not end within", "deadline"),
)

OURS = frozenset({"versions", "reward", "numbers", "deadline", "infrastructure"})
"""Faults of the installation rather than of a task or a person's decision: the breaker counts these."""


def reason_of(cause: str) -> str:
    """The word for a cause as it is stored with the group; `infrastructure` for all that has none of its own."""
    return next((word for part, word in _WORDS if part in cause), "infrastructure")
