"""What pid 1 of a sandbox gives up before it reads its first byte from the host, whichever backend started it."""

from __future__ import annotations

import ctypes
import os
import resource

from sandbox.backends.namespaces.kernel import seccomp, syscalls

OWN_PROCESSES = 4
"""Processes of ours that count against the sandbox's process limit."""
PRECAUTIONS = (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE)
"""Limits that no guarantee rests on."""


def confine(limits: dict, keep: set[int], *, watchdog: bool, count_processes: bool) -> None:
    """Give up everything that a program in the sandbox must not have, for good. Descriptors in `keep` stay open.

    `count_processes` sets the process limit of our user: right in a user namespace of our own, where nobody else has
    it; elsewhere it would count neighbours, and a control group must do.
    """
    close_others(keep)
    for _ in range(3):
        os.open("/dev/null", os.O_RDWR)
    for fd in keep:
        os.set_inheritable(fd, False)
    if os.getsid(0) != os.getpid():  # pid 1 of a container leads a session already
        os.setsid()
    _set_title("/sbin/init")
    _limit(limits, count_processes)
    syscalls.drop_all_capabilities()
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install(deny_unowned_memory=watchdog)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)


def close_others(keep: set[int]) -> None:
    previous = -1
    for fd in sorted(keep):
        os.closerange(previous + 1, fd)
        previous = fd
    os.closerange(previous + 1, 4096)


def _limit(limits: dict, count_processes: bool) -> None:
    wanted = {
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 64 << 10,
        resource.RLIMIT_MSGQUEUE: 800 << 10,
    }
    if count_processes:
        wanted[resource.RLIMIT_NPROC] = limits["processes"] + OWN_PROCESSES
    for which, value in wanted.items():
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(which, (value, value))
        except ValueError:
            if which not in PRECAUTIONS:  # gVisor lets nobody set some
                raise


def _set_title(title: str) -> None:
    """Show pid 1 as an ordinary init instead of the zygote's command line."""
    with open("/proc/self/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    start, end = int(fields[45]), int(fields[46])
    if 0 < len(title) < end - start - 1:
        # The last byte is not zero: so the kernel shows what stands before the first zero, without the rest as blanks.
        ctypes.memmove(start, title.encode().ljust(end - start - 1, b"\0") + b"\1", end - start)
    syscalls.prctl(syscalls.PR_SET_NAME, b"init")
