"""Free loopback ports."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from pathlib import Path

from .errors import StackError

LISTENING = "0A"  # state in /proc/net/tcp


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT is no obstacle
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def any_free() -> int:
    """A port that the kernel calls free at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def first_free(candidates: Iterable[int], host: str = "127.0.0.1") -> int:
    tried = list(candidates)
    for port in tried:
        if is_free(port, host):
            return port
    raise StackError(f"ports {tried[0]} to {tried[-1]} of {host} are all taken; choose one: `make up PORT=…`")


def listens(pid: int, port: int) -> bool:
    """Whether this very process holds the listening socket of the port."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(descriptor.readlink()) in inodes:
                    return True
    return False
