"""Finding and ending our own processes, by pid and by a mark in their environment; never by name."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from .environment import MARK
from .errors import StackError
from .layout import Layout


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def of_stack(layout: Layout, mark: str | None) -> list[int]:
    """The live processes of the stack in these folders, whoever their parent is now.

    They carry the mark of their start. Postgres and Valkey overwrite their environment with a process title, but
    nobody else works in their folders.
    """
    wanted = f"{MARK}={mark}".encode() if mark else None
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # other users' processes, and those that end meanwhile
                ours = (entry / "cwd").readlink() in (layout.postgres, layout.valkey) or (
                    wanted is not None and wanted in (entry / "environ").read_bytes().split(b"\0")
                )
                if ours and alive(int(entry.name)):
                    found.append(int(entry.name))
    return found


def end(pids: Iterable[int], *, how: signal.Signals = signal.SIGTERM, patience: float = 10.0) -> None:
    """Ask these processes to end and kill those that have not after `patience` seconds. Returns when all are gone."""
    rest = [pid for pid in pids if _send(pid, how)]
    for last_resort in (False, True):
        if last_resort:
            rest = [pid for pid in rest if _send(pid, signal.SIGKILL)]
        deadline = time.monotonic() + patience
        while (rest := [pid for pid in rest if alive(pid)]) and time.monotonic() < deadline:
            time.sleep(0.05)
    if rest:
        raise StackError(f"processes {rest} do not end even when killed (stuck in the kernel?)")


def _send(pid: int, how: signal.Signals) -> bool:
    try:
        os.kill(pid, how)
    except ProcessLookupError:
        return False
    return True
