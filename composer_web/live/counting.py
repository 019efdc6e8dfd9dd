"""Counts a user's open websockets, to limit the memory that one user can take from a web process.

Counted where they are held: in this process. So a count dies with its sockets when a process is killed, and nothing has to
expire or to be repaired; of an installation with several web processes each admits `MAX`. A hidden tab gives its own back
after half a minute (js/live.js), so that nobody who only works reaches the bound.
"""

from __future__ import annotations

from collections import Counter

MAX = 200
"""Websockets of one person in one process: twice as many as the benchmark of live pages opens."""

_held: Counter[int] = Counter()


def admit(person: int) -> bool:
    """Count one more, and give it back with `let_go`. False when the person has too many: then nothing was counted."""
    if _held[person] >= MAX:
        return False
    _held[person] += 1
    return True


def let_go(person: int) -> None:
    _held[person] -= 1
    if not _held[person]:
        del _held[person]


def held(person: int) -> int:
    return _held.get(person, 0)
