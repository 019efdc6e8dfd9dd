"""From a fresh fork of the zygote to a running sandbox: namespaces, root, privileges, then pid 1 and supervisor.

A sandbox is made in two halves. `standby` does what needs no request (control group, ids, namespaces, the fork of
pid 1), so that the zygote can keep a pair waiting; pid 1 then receives the job and does the rest itself.

The order matters: control group while still privileged; another kernel uid before the user namespace (uid 0
would stay uid 0 for the host's files); network; fork; and in pid 1 the root, limits, capabilities, no_new_privs,
the system-call filter, and no dumps, before it reads its first byte from the host.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import struct
from dataclasses import dataclass
from typing import NoReturn

from sandbox.backends.namespaces.inside import agent, protocol
from sandbox.backends.namespaces.kernel import identity, mounts, syscalls
from sandbox.backends.namespaces.kernel.base_root import Base
from sandbox.backends.namespaces.kernel.cgroups import Group
from sandbox.backends.namespaces.kernel.confine import close_others, confine
from sandbox.backends.namespaces.kernel.users import User
from sandbox.backends.namespaces.supervisor import Supervisor

NAMESPACES = syscalls.NEWPID | syscalls.NEWIPC | syscalls.NEWUTS | syscalls.NEWNET | syscalls.NEWCGROUP
SUPERVISOR_CAPABILITIES = 0b1111  # chown, dac_override, dac_read_search, fowner; in its own user namespace only
INOTIFY_INSTANCES = 16
"""The kernel counts them by user, which sandboxes of an ordinary user share: none may take those of its neighbours."""
MAX_JOB_BYTES = 1 << 17
BACKLOG = 64


@dataclass(frozen=True)
class Place:
    """What a pair needs before it has a request."""

    base: Base
    user: User
    group: Group | None
    devices: int | None
    """Descriptor of its /dev, None where the machine's devices are shown."""
    detached: bool
    """Whether layers come as detached mounts; then the root is begun before there is a request."""

    @property
    def watchdog(self) -> bool:
        """Whether the agent must watch memory, because no control group does."""
        return self.group is None


def standby(place: Place, jobs: socket.socket) -> None:
    """Become the supervisor of a sandbox that waits for its job on `jobs`; returns when that sandbox is over.

    The job is one message: JSON with descriptors, which are the agent's channel, the control channel, a third when the
    request names a `port` (over it the host gets the socket that listens there), and the detached layers. What goes
    wrong from here on is told on the agent's channel.
    """
    failure = None
    inner, pid_1_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getppid()
    try:
        _enter(place)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
        pid = os.fork()
    except Exception as error:  # noqa: BLE001 - told on the channel as soon as there is one
        failure, pid = error, 0
    if pid == 0:
        inner.close()
        _pid_1(place, jobs, pid_1_end, failure)
    pid_1_end.close()
    jobs.close()
    group, lease = place.group, place.user.lease
    events = group.events if group else None
    kept = {inner.fileno()} | ({events} if events is not None else set()) | ({lease.file} if lease else set())
    close_others(kept)
    data, descriptors, _, _ = socket.recv_fds(inner, 4096, 250)
    if data:
        job = json.loads(data)
        control, upper, *lower = descriptors
        inner.close()
        syscalls.set_capabilities(SUPERVISOR_CAPABILITIES)
        Supervisor(socket.socket(fileno=control), pid, upper, lower, job["snapshots"], events, job["life"]).run()
    else:  # pid 1 never got a job, or failed at it
        os.waitpid(pid, 0)


def _pid_1(place: Place, jobs: socket.socket, supervisor: socket.socket, failure: Exception | None) -> NoReturn:
    with contextlib.suppress(syscalls.StepError):
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    new = None
    if place.detached and not failure:
        try:
            new = mounts.begin(place.base, place.devices)
        except Exception as error:  # noqa: BLE001 - told on the channel as soon as there is one
            failure = error
    data, descriptors, _, _ = socket.recv_fds(jobs, MAX_JOB_BYTES, 250)
    if not data:
        os._exit(0)
    channel = socket.socket(fileno=descriptors[0])
    try:
        if failure:
            raise failure
        request = json.loads(data)
        others = descriptors[1:]
        control, way = others.pop(0), others.pop(0) if request["port"] else -1
        if new is None:
            new = mounts.begin(place.base, place.devices)
        _finish(place, new, request, supervisor, control, others)
        if request["port"]:
            _hand_out_listener(request["port"], way)
        confine(request["limits"], {channel.fileno()}, watchdog=place.watchdog, count_processes=True)
    except Exception as error:  # noqa: BLE001 - the host is told, whatever it is
        report(channel, error)
        os._exit(1)
    agent.main(channel, request, watchdog=place.watchdog)
    os._exit(0)


def report(channel: socket.socket, error: BaseException) -> None:
    """Tell the host why there is no sandbox."""
    header = {"op": "fail", "step": getattr(error, "step", type(error).__name__), "text": str(error)}
    header["errno"] = error.errno if isinstance(error, OSError) else None
    with contextlib.suppress(OSError):
        channel.sendall(protocol.encode(header))


def _enter(place: Place) -> None:
    uid, gid = place.user.uid, place.user.gid
    if place.group:
        place.group.join()
    if os.geteuid() == 0 and uid != 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    syscalls.unshare(syscalls.NEWUSER, "userns")
    mounts.map_ids(identity.INNER_UID, identity.INNER_GID, uid, gid)
    try:
        syscalls.put("/proc/sys/user/max_inotify_instances", str(INOTIFY_INSTANCES))
    except FileNotFoundError:  # gVisor counts none
        pass
    except OSError as error:  # a container's /proc
        raise syscalls.StepError("proc", error.errno or 0, "write max_inotify_instances") from None
    try:
        syscalls.unshare(NAMESPACES | syscalls.NEWTIME, "namespaces")
    except syscalls.StepError as error:  # gVisor, and kernels without time namespaces
        if error.errno != errno.EINVAL:
            raise
        syscalls.unshare(NAMESPACES, "namespaces")
    _loopback_up()
    name = identity.HOSTNAME.encode()
    syscalls.check(syscalls.libc.sethostname(name, len(name)), "namespaces", "sethostname")


def _loopback_up() -> None:
    with socket.socket() as probe:
        try:
            fcntl.ioctl(probe, 0x8914, struct.pack("16sh22x", b"lo", 0x1 | 0x40))
        except OSError as error:
            if error.errno != errno.ENOTTY:  # gVisor: it is up already
                raise


def _finish(
    place: Place, new: str, request: dict, supervisor: socket.socket, control: int, detached: list[int]
) -> None:
    """Complete the root, give the supervisor what it watches over, and move into the root."""
    limits = request["limits"]
    layers = detached if place.detached else request["layers"]
    sizes = {"disk": limits["disk_bytes"], "inodes": limits["inodes"]}
    upper, lower = mounts.finish(place.base, layers, detached=place.detached, **sizes)
    job = {"life": request["life"], "snapshots": 1 if request["snapshot"] else 0}
    socket.send_fds(supervisor, [json.dumps(job).encode()], [control, upper, *lower])
    os.chdir(new)
    syscalls.pivot_root_here()


def _hand_out_listener(port: int, way: int) -> None:
    """Give the host a socket that listens in this sandbox's network: the only way out, and nothing here holds it."""
    with socket.socket() as listener, socket.socket(fileno=way) as host:
        listener.bind(("127.0.0.1", port))
        listener.listen(BACKLOG)
        socket.send_fds(host, [b"x"], [listener.fileno()])
