"""From a fresh fork of the zygote to a running sandbox: namespaces, root, privileges, then pid 1 and supervisor.

The order matters: control group while still privileged; another kernel uid before the user namespace (uid 0
would stay uid 0 for the host's files); mounts; network; fork pid 1; and for pid 1 the root, limits,
capabilities, no_new_privs, the system-call filter, and no dumps, before it reads its first byte.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import struct

from sandbox.backends.namespaces import agent, identity, mounts, protocol, seccomp, syscalls
from sandbox.backends.namespaces.supervisor import Supervisor

NAMESPACES = (
    syscalls.NEWNS | syscalls.NEWPID | syscalls.NEWIPC | syscalls.NEWUTS | syscalls.NEWNET | syscalls.NEWCGROUP
)
SUPERVISOR_CAPABILITIES = 0b1111  # chown, dac_override, dac_read_search, fowner; in its own user namespace only
OWN_PROCESSES = 4
"""Processes of ours that count against the sandbox's process limit."""


class Job:
    """What one sandbox is made from; built by the zygote out of the host's request."""

    def __init__(self, request: dict, stage: str, numbers: list[int], uid: int, gid: int, group, watchdog: bool) -> None:
        self.request, self.stage, self.numbers = request, stage, numbers
        self.uid, self.gid, self.group, self.watchdog = uid, gid, group, watchdog


def launch(job: Job, channel: socket.socket, control: socket.socket) -> None:
    """Become the supervisor of a new sandbox; never returns before it is over. Failures go out on `channel`."""
    try:
        parent = os.getppid()
        new, upper, lower = _enter(job)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
        pid = os.fork()
    except Exception as error:
        return report(channel, error)
    if pid == 0:
        try:
            _become_agent(job, new, {channel.fileno()})
        except BaseException as error:
            report(channel, error)
            os._exit(1)
        agent.main(channel, job.request, watchdog=job.watchdog)
        os._exit(0)
    channel.close()
    events = job.group.events if job.group else None
    close_others({control.fileno(), upper, *lower} | ({events} if events is not None else set()))
    syscalls.set_capabilities(SUPERVISOR_CAPABILITIES)
    snapshots = 1 if job.request["snapshot"] else 0
    Supervisor(control, pid, upper, lower, snapshots, events, job.request["life"]).run()


def report(channel: socket.socket, error: BaseException) -> None:
    """Tell the host why there is no sandbox."""
    header = {"op": "fail", "step": getattr(error, "step", type(error).__name__), "text": str(error)}
    header["errno"] = error.errno if isinstance(error, OSError) else None
    with contextlib.suppress(OSError):
        channel.sendall(protocol.encode(header))


def _enter(job: Job) -> tuple[str, int, list[int]]:
    if job.group:
        job.group.join()
    if os.geteuid() == 0 and job.uid != 0:
        os.setgroups([])
        os.setresgid(job.gid, job.gid, job.gid)
        os.setresuid(job.uid, job.uid, job.uid)
    syscalls.unshare(syscalls.NEWUSER, "userns")
    mounts.map_ids(identity.INNER_UID, identity.INNER_GID, job.uid, job.gid)
    syscalls.unshare(NAMESPACES, "namespaces")
    limits = job.request["limits"]
    built = mounts.assemble(job.stage, job.numbers, disk=limits["disk_bytes"], inodes=limits["inodes"])
    _loopback_up()
    name = identity.HOSTNAME.encode()
    syscalls.check(syscalls.libc.sethostname(name, len(name)), "namespaces", "sethostname")
    return built


def _loopback_up() -> None:
    with socket.socket() as probe:
        try:
            fcntl.ioctl(probe, 0x8914, struct.pack("16sh22x", b"lo", 0x1 | 0x40))
        except OSError as error:
            if error.errno != errno.ENOTTY:  # gVisor: it is up already
                raise


def _become_agent(job: Job, new: str, keep: set[int]) -> None:
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    proc_flags = syscalls.NOSUID | syscalls.NODEV | syscalls.NOEXEC
    syscalls.mount("proc", f"{new}/proc", "proc", proc_flags, step="proc")
    os.chdir(new)
    syscalls.pivot_root_here()
    close_others(keep)
    for _ in range(3):
        os.open("/dev/null", os.O_RDWR)
    os.set_inheritable(next(iter(keep)), False)
    os.setsid()
    _set_title("/sbin/init")
    _limit(job.request["limits"])
    syscalls.drop_all_capabilities()
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install(deny_unowned_memory=job.watchdog)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)


def close_others(keep: set[int]) -> None:
    previous = -1
    for fd in sorted(keep):
        os.closerange(previous + 1, fd)
        previous = fd
    os.closerange(previous + 1, 4096)


def _limit(limits: dict) -> None:
    wanted = {
        resource.RLIMIT_NPROC: limits["processes"] + OWN_PROCESSES,
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 64 << 10,
        resource.RLIMIT_MSGQUEUE: 800 << 10,
    }
    for which, value in wanted.items():
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def _set_title(title: str) -> None:
    """Show pid 1 as an ordinary init instead of the zygote's command line."""
    with open("/proc/self/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    start, end = int(fields[45]), int(fields[46])
    if 0 < len(title) < end - start:
        ctypes.memmove(start, title.encode().ljust(end - start, b"\0"), end - start)
    syscalls.prctl(syscalls.PR_SET_NAME, b"init")
