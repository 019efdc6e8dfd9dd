"""The host's end of the zygote: starts it, hears what it found, sends it requests."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path

from sandbox.backends.base import SandboxError, SandboxUnavailable
from sandbox.backends.users import users

PACKAGE_ROOT = Path(__file__).resolve().parents[3]
PROBE_SECONDS = 60.0
STOP_SECONDS = 6.0
LEND_SECONDS = 20.0
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(5)); from sandbox.backends.namespaces.zygote import main; main()"


OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ETOOMANYREFS)


def too_many_files() -> SandboxUnavailable:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return SandboxUnavailable(
        f"no descriptor is left for another sandbox (this process may have {most}, each sandbox takes 2): "
        "raise it with `ulimit -n`, or run fewer at once"
    )


class ZygoteGone(Exception):
    """The zygote does not take requests any more."""


class ZygoteClient:
    """One zygote process. Blocking; `send` may be called from any thread."""

    def __init__(self) -> None:
        """Raises SandboxUnavailable when the interpreter cannot even start it."""
        if not sys.platform.startswith("linux"):
            raise SandboxUnavailable("the namespaces backend needs Linux")
        interpreter = os.path.realpath(sys.executable)
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            arguments = [str(theirs.fileno()), interpreter, sys.base_prefix, users(), str(PACKAGE_ROOT)]
            self._process = subprocess.Popen(
                [interpreter, "-I", "-S", "-c", _BOOT, *arguments],
                pass_fds=[theirs.fileno()],
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the host, which then closes us in order
            )
        os.register_at_fork(after_in_child=self._drop)
        self.found = self._hear()
        """What the zygote says about the machine: cgroup, cpu, reasons, trial."""

    def ours(self) -> bool:
        """False in a process forked from the one that started it: that one keeps it."""
        return self._owner == os.getpid()

    def send(self, request: bytes, descriptors: list[int]) -> None:
        """Raises ZygoteGone, SandboxUnavailable (too many open files)."""
        with self._lock:
            try:
                socket.send_fds(self._socket, [request], descriptors)
            except OSError as error:
                if error.errno in OUT_OF_FILES:
                    raise too_many_files() from None
                raise ZygoteGone(str(error)) from None

    def lend(self, name: str, folder: Path) -> int:
        """A descriptor of the existing `folder` through which the user of sandbox `name` owns it. Raises SandboxError."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                request = {"op": "lend", "name": name, "path": str(folder)}
                self.send(json.dumps(request).encode(), [theirs.fileno()])
            ours.settimeout(LEND_SECONDS)
            try:
                _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
            except TimeoutError:
                descriptors = []
        if not descriptors:
            raise SandboxError(
                f"{folder} cannot be shown as a folder of sandbox {name}: keep it on ext4, xfs, btrfs or tmpfs"
            )
        return descriptors[0]

    def close(self) -> None:
        """End it and all its sandboxes; waits until they are gone."""
        self._socket.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _hear(self) -> dict:
        readable, _, _ = select.select([self._socket], [], [], PROBE_SECONDS)
        with contextlib.suppress(ValueError):
            if readable and (data := self._socket.recv(1 << 16)):
                return json.loads(data)
        self._process.kill()
        self._process.wait()
        raise SandboxUnavailable(
            f"the sandbox launcher did not start (see its error output; interpreter {sys.executable})"
        )

    def _drop(self) -> None:
        """In a forked child: the zygote must see the end of its socket when the parent dies, not when we do."""
        if self._socket.fileno() >= 0:
            self._socket.close()
