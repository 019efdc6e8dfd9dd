"""The process table of a sandbox as its pid 1 sees it, and how a set of processes is ended for certain."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
KILL_ROUNDS = 200


class Process:
    """One line of the table; `born` (clock ticks) tells a reused pid from its first owner."""

    __slots__ = ("alive", "born", "parent", "session")

    def __init__(self, parent: int, session: int, born: int, alive: bool) -> None:
        self.parent, self.session, self.born, self.alive = parent, session, born, alive


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def table() -> dict[int, Process]:
    """All processes but pid 1."""
    found = {}
    for pid in pids():
        with contextlib.suppress(OSError, IndexError):
            found[pid] = _process(pid)
    return found


def born(pid: int) -> int:
    """When `pid` began, in clock ticks; -1 when it is gone."""
    try:
        return _process(pid).born
    except (OSError, IndexError):
        return -1


def _process(pid: int) -> Process:
    fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fields = os.read(fd, 1024).rpartition(b")")[2].split()
    finally:
        os.close(fd)
    return Process(int(fields[1]), int(fields[3]), int(fields[19]), fields[0] not in b"ZX")


def trees(leaders: set[int], rows: dict[int, Process]) -> set[int]:
    """The processes in the sessions that `leaders` opened and all descendants of those."""
    found = {pid for pid, row in rows.items() if pid in leaders or row.session in leaders}
    grew = True
    while grew:
        more = {pid for pid, row in rows.items() if row.parent in found} - found
        grew = bool(more)
        found |= more
    return found


def end(spared: Callable[[dict[int, Process]], set[int]], reap: Callable[[], None]) -> None:
    """Kill every process that `spared` does not name.

    All are stopped first, so that nothing forks faster than it is killed.
    """
    try:
        os.kill(-1, signal.SIGSTOP)
    except ProcessLookupError:
        return
    keep: set[int] = set()
    for _ in range(KILL_ROUNDS):
        rows = table()
        keep = spared(rows)
        doomed = [pid for pid, row in rows.items() if pid not in keep and row.alive]
        if not doomed:
            break
        for pid in doomed:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        reap()
    for pid in keep:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)


def private_bytes(pid: int) -> int:
    """Resident memory of a process that it does not share through files."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            fields = file.read().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * PAGE_BYTES
