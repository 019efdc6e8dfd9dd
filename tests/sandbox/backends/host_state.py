"""What no sandbox may change, as seen from the host: taken before an attack and compared after it."""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SETTINGS = (
    *(
        "kernel/hostname",
        "kernel/domainname",
        "kernel/core_pattern",
        "kernel/modprobe",
        "kernel/sysrq",
        "kernel/pid_max",
    ),
    *("kernel/randomize_va_space", "kernel/panic", "vm/overcommit_memory", "vm/swappiness", "fs/suid_dumpable"),
    *("net/ipv4/ip_forward", "net/core/somaxconn", "user/max_user_namespaces"),
)
FILES = ("/etc/passwd", "/etc/shadow", "/etc/hosts", "/etc/resolv.conf", "/usr/bin/env", "/bin/sh", sys.executable)
ENGINE = re.compile(r"/(docker|containerd|containers|overlay2|volumes|netns)/|/dockerd-\w+/data ")
"""In mount points that a container engine makes and removes, for whoever else uses it meanwhile."""


class Bystander:
    """A process, a file and sockets of the host that sandboxes may know of but must not reach."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "secret"
        self.file.write_text("secret")
        self.process = subprocess.Popen(["sleep", "100000"])
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.path, self.name = str(folder / "socket"), f"bystander-{os.getpid()}"
        self.unix, self.abstract = (socket.socket(socket.AF_UNIX) for _ in range(2))
        self.unix.bind(self.path)
        self.abstract.bind("\0" + self.name)
        for end in (self.tcp, self.udp, self.unix, self.abstract):
            end.setblocking(False)
        for end in (self.unix, self.abstract):
            end.listen()

    def close(self) -> None:
        for end in (self.tcp, self.udp, self.unix, self.abstract):
            end.close()
        self.process.kill()
        self.process.wait()

    def touched(self) -> list[str]:
        """What somebody did to it."""
        found = []
        if self.process.poll() is not None:
            found.append("its process ended")
        elif (state := _stat(self.process.pid)[0]) not in "SRD":
            found.append(f"its process is in state {state}")
        if os.getpriority(os.PRIO_PROCESS, self.process.pid) != os.getpriority(os.PRIO_PROCESS, 0):
            found.append("its priority changed")
        if self.file.read_text() != "secret":
            found.append("its file changed")
        for name, end in (("tcp", self.tcp), ("unix", self.unix), ("abstract", self.abstract)):
            try:
                end.accept()
                found.append(f"somebody came to its {name} socket")
            except BlockingIOError:
                continue
        try:
            found.append(f"somebody wrote to its udp socket: {self.udp.recv(99)!r}")
        except BlockingIOError:
            pass
        return found


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def take(layer: Path) -> dict[str, object]:
    """The state of the host, by name."""
    state: dict[str, object] = {"hostname": socket.gethostname(), "namespaces": _namespaces()}
    for name in SETTINGS:
        path = Path("/proc/sys") / name
        state[f"setting {name}"] = path.read_text() if path.exists() else None
    for name in FILES:
        found = os.stat(name) if os.path.exists(name) else None
        state[f"file {name}"] = found and (found.st_mtime_ns, found.st_size, found.st_mode, found.st_uid)
    state["mounts"] = mounts()
    state["layer"] = _tree(layer)
    state["limits"] = [resource.getrlimit(which) for which in range(16)]
    state["priority"] = (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0), os.sched_getscheduler(0))
    return state


def mounts() -> list[str]:
    """What is mounted in our mount namespace, less what a container engine does there."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sorted(line.split(" ", 4)[4] for line in lines if not ENGINE.search(line))


def _namespaces() -> dict[str, str]:
    return {name: os.readlink(f"/proc/self/ns/{name}") for name in os.listdir("/proc/self/ns")}


def _tree(root: Path) -> dict[str, tuple[int, int, int, bytes]]:
    found = {}
    for path in sorted(root.rglob("*")):
        seen = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (seen.st_mtime_ns, seen.st_mode, seen.st_uid, content)
    return found


@contextmanager
def unchanged(layer: Path, bystander: Bystander) -> Iterator[None]:
    """Fails when the host is another one afterwards."""
    before, clock = take(layer), time.time() - time.monotonic()
    yield
    after = take(layer)
    assert abs(time.time() - time.monotonic() - clock) < 60
    changed = {name: (before[name], value) for name, value in after.items() if value != before[name]}
    assert not changed, changed
    touched = bystander.touched()
    assert not touched, touched
