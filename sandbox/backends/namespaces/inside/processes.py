"""The process table of a sandbox as its pid 1 sees it, and how a set of processes is ended for certain."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

STANDING = frozenset({b"T", b"t", b"Z", b"X"})
"""States of a thread that is stopped, traced or ended."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
END_SECONDS = 20.0
"""How long killed processes may take to be gone; under a cpu quota and on a busy machine that is not at once."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.0005, 0.01
STOP_SECONDS, UNINTERRUPTIBLE_SECONDS = 5.0, 0.05
"""How long processes that were told to stop may run on, and how long those that only wait for the kernel may."""


class Unkillable(Exception):
    """Processes outlived SIGKILL (stuck in the kernel): the sandbox cannot be trusted any more."""


class Process:
    """One line of the table; `born` (clock ticks) tells a reused pid from its first owner."""

    __slots__ = ("alive", "born", "parent", "session", "stopped")

    def __init__(self, parent: int, session: int, born: int, alive: bool, stopped: bool) -> None:
        self.parent, self.session, self.born, self.alive, self.stopped = parent, session, born, alive, stopped


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


def _fields(task: str) -> list[bytes]:
    """What the kernel tells of a process or thread, its name and what stands before that aside."""
    fd = os.open(f"/proc/{task}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1024).rpartition(b")")[2].split()
    finally:
        os.close(fd)


def _process(pid: int) -> Process:
    fields = _fields(str(pid))
    state, threads = fields[0], int(fields[17])
    # a program may end its first thread and run on in the others: it then looks like a zombie
    alive = state not in b"ZX" or threads > 1
    return Process(int(fields[1]), int(fields[3]), int(fields[19]), alive, state == b"T")


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
    """Kill every process that `spared` does not name; returns when they are gone. Raises Unkillable.

    All are stopped first, so that nothing forks faster than it is killed.
    """
    stopped = pause()
    give_up = time.monotonic() + END_SECONDS
    wait = FIRST_PAUSE_SECONDS
    while True:
        rows = table()
        keep = spared(rows)
        doomed = [pid for pid, row in rows.items() if pid not in keep and row.alive]
        if not doomed:
            return resume(keep - stopped)
        if time.monotonic() > give_up:
            raise Unkillable(f"{len(doomed)} processes outlived SIGKILL by {END_SECONDS:.0f} s")
        for pid in doomed:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        reap()
        time.sleep(wait)  # they need the processor now
        wait = min(2 * wait, LONGEST_PAUSE_SECONDS)


def pause() -> set[int]:
    """Stop every process but pid 1; those that were stopped already, which `resume` and `resume_all` leave so.

    Returns when they stand still, so that no fork is under way: the kernel tells a child that is being forked to stop,
    but not to continue (SIGCONT, which the parent ignores, does not take the stop back).
    """
    stopped = {pid for pid, row in table().items() if row.stopped}
    began = time.monotonic()
    wait = FIRST_PAUSE_SECONDS
    _stop_all()
    while states := _moving():
        # a program that waits for its vfork does so in the kernel, as long as the child is stopped
        limit = UNINTERRUPTIBLE_SECONDS if states == {b"D"} else STOP_SECONDS
        if time.monotonic() - began > limit:
            break
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_PAUSE_SECONDS)
        _stop_all()  # again: they may have told each other to continue
    return stopped


def _stop_all() -> None:
    with contextlib.suppress(ProcessLookupError):  # there is none
        os.kill(-1, signal.SIGSTOP)


def _moving() -> set[bytes]:
    """The states of all threads, pid 1's aside, that neither stand still nor have ended."""
    states = set()
    for pid in pids():
        with contextlib.suppress(OSError, IndexError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                states.add(_fields(f"{pid}/task/{thread}")[0])
    return states - STANDING


def resume_all(stopped: set[int]) -> None:
    """Let everything run on but what `pause` found stopped."""
    if stopped:
        return resume(set(pids()) - stopped)
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGCONT)


def resume(wanted: set[int]) -> None:
    for pid in wanted:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process, also what it shares with others; cheap."""
    found = _resident(f"/proc/{pid}")
    if found == 0:  # perhaps its first thread has ended, and the others hold the memory
        with contextlib.suppress(OSError):
            found = max((_resident(f"/proc/{pid}/task/{task}") for task in os.listdir(f"/proc/{pid}/task")), default=0)
    return found


def own_bytes(pid: int) -> int:
    """Memory that a process made, files aside; of what it shares with others its part, so that sums are true."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            fields = dict(line.split(":", 1) for line in file.read().splitlines()[1:])
        return sum(int(fields[name].split()[0]) << 10 for name in ("Pss_Anon", "Pss_Shmem"))
    except (OSError, KeyError, ValueError):  # it hides, or this kernel tells less
        return resident_bytes(pid)


def _resident(folder: str) -> int:
    try:
        with open(f"{folder}/statm") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except OSError:
        return 0


def release(agent: int) -> None:
    """From outside: end the children of the agent that a program stopped between their start and their own program.

    The agent waits in the kernel for that moment of each command, so a stopped child would hold it up for ever. Such
    a child still bears the agent's name.
    """
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        with contextlib.suppress(OSError, IndexError):
            found = _process(pid)
            if found.parent == agent and found.stopped and _name(pid) == _name(agent):
                os.kill(pid, signal.SIGKILL)


def _name(pid: int) -> bytes:
    with open(f"/proc/{pid}/comm", "rb") as file:  # a program may name itself in no text
        return file.read()
