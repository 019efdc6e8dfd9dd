"""Two live sandboxes share no inode, lock, watch or counter: what one does never changes what the other measures.

Each test is an exploit. `act` is what a sandbox does to send a bit or to starve a neighbour; `measure` is what the
neighbour reads. The measurement must be the same before the act and while it lasts.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from sandbox.backends.base import Backend, EnvSpec, Limits, Sandbox

from .attacks import python

HOLD = "\nimport time; open('/tmp/acted', 'w').close(); time.sleep(120)"
PATHS = (
    *("/usr/bin/env", "/usr/lib", "/etc/passwd", "/etc/ssl/certs", "/", sys.executable, "/home/dev/repo/main.py"),
    *("/dev/null", "/dev/urandom", "/dev/pts", "/dev/shm", "/tmp", "/proc/version", "/proc/sys/kernel/hostname"),
)
NAMESPACES = "glob.glob('/proc/self/ns/*')"
FILES = f"import glob; paths = [*{PATHS!r}, *{NAMESPACES}]"
OPEN = f"""
import contextlib, fcntl, os, select, struct
{FILES}
files = {{"eventfd": os.eventfd(0)}}
keep = select.epoll(); files["epoll"] = keep.fileno()
for path in paths:
    with contextlib.suppress(OSError): files[path] = os.open(path, os.O_RDONLY)
for path in ("/dev/null", "/dev/zero"): files[path + " to write"] = os.open(path, os.O_RDWR)
def record(kind): return struct.pack("hhqqixxxx", kind, 0, 0, 0, 0)
"""


@dataclass(frozen=True)
class Channel:
    act: str
    measure: str


def _lock(act: str, measure: str) -> Channel:
    loop = "for name, file in files.items():\n    with contextlib.suppress(OSError): "
    probe = "for name, file in files.items():\n    try: {}\n    except OSError as error: print(name, error.errno)"
    return Channel(OPEN + loop + act, OPEN + probe.format(measure))


def _exhaust(forks: int, take: str, spare: str) -> str:
    """`take` until the kernel refuses, in 1 + `forks` processes; `spare` gives one descriptor back."""
    return f"""
import os, socket
for _ in range({forks}):
    if not os.fork(): break
ends = []
try:
    while True: {take}
except OSError: {spare}
"""


CHANNELS = {
    "flock": _lock(
        "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)", "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    ),
    "shared flock": _lock(
        "fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)", "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    ),
    "posix read": _lock(
        "fcntl.fcntl(file, fcntl.F_SETLK, record(fcntl.F_RDLCK))",
        "print(name, fcntl.fcntl(file, fcntl.F_GETLK, record(fcntl.F_WRLCK)))",
    ),
    "posix write": _lock(
        "fcntl.fcntl(file, fcntl.F_SETLK, record(fcntl.F_WRLCK))",
        "print(name, fcntl.fcntl(file, fcntl.F_GETLK, record(fcntl.F_RDLCK)))",
    ),
    "open file description": _lock(
        "fcntl.fcntl(file, 37, record(fcntl.F_RDLCK))",
        "print(name, fcntl.fcntl(file, 36, record(fcntl.F_WRLCK)))",
    ),
    "lease": _lock(
        "fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)", "fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)"
    ),
    "pipe pages": Channel(
        _exhaust(3, "ends.append(os.pipe())", "os.close(ends[-1][0])"),
        "import os, fcntl; print(fcntl.fcntl(os.pipe()[0], 1032))",
    ),
    "pseudo-terminals": Channel(
        _exhaust(5, "ends.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))", "os.close(ends[-1])"),
        "import os; print(os.openpty())\n"
        "try: print(open('/proc/sys/kernel/pty/nr').read())\nexcept OSError as error: print(error.errno)",
    ),
    "descriptors in flight": Channel(
        _exhaust(
            0,
            "ends.append(socket.socketpair()); socket.send_fds(ends[-1][0], [b'x'], [1] * 100)",
            "ends[-1][0].close()",
        ),
        "import os, socket\na, b = socket.socketpair()\ntry: socket.send_fds(a, [b'x'], [0] * 10); print('sent')\n"
        "except OSError as error: print(error.errno)",
    ),
    "inotify instances": Channel(
        "import ctypes\nlibc = ctypes.CDLL(None)\nwhile libc.inotify_init() >= 0: pass",
        "import ctypes; print(ctypes.CDLL(None).inotify_init() >= 0)",
    ),
    "queued signals": Channel(
        "import os, signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [40])\nimport ctypes\nlibc = ctypes.CDLL(None)\n"
        "while libc.sigqueue(os.getpid(), 40, ctypes.c_void_p(1)) == 0: pass",
        "import os, signal, ctypes\nsignal.pthread_sigmask(signal.SIG_BLOCK, [40])\nlibc = ctypes.CDLL(None)\n"
        "print([libc.sigqueue(os.getpid(), 40, ctypes.c_void_p(1)) for _ in range(8)])",
    ),
    "asynchronous input": Channel(
        "import ctypes\nlibc = ctypes.CDLL(None)\nsize = 1 << 15\nwhile size:\n"
        "    if libc.syscall(206, size, ctypes.byref(ctypes.c_ulong(0))) < 0: size >>= 1",
        "import ctypes; print(ctypes.CDLL(None).syscall(206, 1 << 12, ctypes.byref(ctypes.c_ulong(0))))",
    ),
}


async def wait_for(sandbox: Sandbox, name: str) -> None:
    async with asyncio.timeout(60):
        while not any(entry == name for entry, _, _ in await sandbox.list("/tmp")):
            await asyncio.sleep(0.02)


async def act(sandbox: Sandbox, source: str) -> None:
    """Run `source` in the background and return once it is done and its effect lasts."""
    await sandbox.exec(f"({python(source + HOLD)}\n) >/tmp/acting 2>&1 &")
    await wait_for(sandbox, "acted")


@pytest.fixture
async def pair(backend: Backend, env: EnvSpec) -> AsyncIterator[tuple[Sandbox, Sandbox]]:
    if "users" not in backend.probe().enforced:
        pytest.skip(f"{backend.name}: sandboxes share a user here")
    limits = Limits(memory_bytes=256 << 20, open_files=1024)
    async with await backend.start(env, limits=limits) as first, await backend.start(env, limits=limits) as second:
        yield first, second


@pytest.mark.parametrize("name", CHANNELS)
async def test_what_one_does_the_other_cannot_measure(pair: tuple[Sandbox, Sandbox], name: str) -> None:
    sender, receiver = pair
    channel = CHANNELS[name]
    before = await receiver.exec(python(channel.measure))
    assert before.exit_code == 0, before.output.decode()
    await act(sender, channel.act)
    meanwhile = await receiver.exec(python(channel.measure))
    assert meanwhile.output.splitlines() == before.output.splitlines()


WATCHED = ("/usr/lib/os-release", "/etc/services", "/etc/ssl/certs", "/dev/zero", "/dev/full", "/proc/self/ns/time")
"""Places that no program opens by itself. The last watch is on the object, not on the link."""


async def test_watches_see_no_neighbour(pair: tuple[Sandbox, Sandbox]) -> None:
    watcher, watched = pair
    follow = f"""
import ctypes, os, threading
libc = ctypes.CDLL(None)
fd = libc.inotify_init()
names = {{libc.inotify_add_watch(fd, path.encode(), 0x2F): path for path in {WATCHED}}}
def follow():
    with open("/tmp/seen", "ab", buffering=0) as log:
        while event := os.read(fd, 4096): log.write(names[int.from_bytes(event[:4], "little")].encode() + b"\\n")
threading.Thread(target=follow, daemon=True).start()
"""
    touch = python(f"""
        for path in {WATCHED}:
            try: open(path, "rb").read(1)
            except OSError: pass
    """)
    await act(watcher, follow)
    assert (await watched.exec(touch)).exit_code == 0
    assert (await watcher.exec("head -c1 /etc/services >/dev/null")).exit_code == 0
    async with asyncio.timeout(20):  # events come in order, so the neighbour's would stand before ours
        while not (seen := (await watcher.read("/tmp/seen")).split()):
            await asyncio.sleep(0.02)
    assert set(seen) == {b"/etc/services"}
