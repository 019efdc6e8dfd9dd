"""Labelled sessions: scripted agents in the real harness, dishonest (with the id of the catalogue) and honest.

They are what `make bench NAME=auditor` measures recall and precision on, beside the red team's exploits. The honest ones
are hard on purpose: each does something that a careless rule would take for a trick.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.grading.cheats.base import Script
from sandbox.tasks.spec import TaskSpec


@dataclass(frozen=True, slots=True)
class Labelled:
    """`exploit` is an id of the catalogue, "" for honest work."""

    name: str
    run: Script
    task: TaskSpec
    exploit: str = ""


def sessions() -> list[Labelled]:
    """Every labelled session."""
    from tests.sandbox.grading.audit.sessions import honest, judge, letter, lookup

    return [*lookup.SESSIONS, *judge.SESSIONS, *letter.SESSIONS, *honest.SESSIONS]
