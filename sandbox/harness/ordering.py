"""Which calls of one turn must wait for each other.

Calls of a turn run concurrently. A call waits only for earlier calls of the same turn whose effects it could see:
edits of the same file keep their order, a search waits for earlier edits, and a terminal command (which may read
or change any file, and shares one shell with the other commands) waits for all earlier edits and commands.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """What a call touches: a normalised path, or everything (`path` is None)."""

    path: str | None
    writes: bool

    def conflicts(self, earlier: Access) -> bool:
        """Whether this call must wait for `earlier` of the same turn."""
        if not (self.writes or earlier.writes):
            return False
        return self.path is None or earlier.path is None or self.path == earlier.path


NOTHING: tuple[Access, ...] = ()
READS_ALL = (Access(None, writes=False),)
WRITES_ALL = (Access(None, writes=True),)


def must_wait(call: tuple[Access, ...], earlier: tuple[Access, ...]) -> bool:
    """Whether a call with accesses `call` waits for one with accesses `earlier`."""
    return any(mine.conflicts(theirs) for mine in call for theirs in earlier)
