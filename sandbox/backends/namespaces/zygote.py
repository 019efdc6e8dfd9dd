"""The zygote: one small process per host process, from which every sandbox is forked.

It is started with an empty environment and isolated from site packages, imports only what a sandbox needs, never
starts a thread, and stays privileged only to prepare mounts and control groups. It obeys one SEQPACKET socket:
each message is a JSON request with two or three descriptors: the sandbox's agent channel, its control channel, and
where it hands out the listener of its only port. The end of that socket (the host closed it or died) ends all its
sandboxes and then itself.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time

from sandbox.backends.namespaces import identity, launcher, mounts, protocol
from sandbox.backends.namespaces.cgroups import Cgroups, Group

MAX_REQUEST_BYTES = 1 << 17
SHUTDOWN_SECONDS = 3.0
TRIAL_SECONDS = 15.0
MAX_DESCRIPTORS = 4096
SPARES = 1
REFILL_MS = 4
"""How long nothing must happen before a spare pair is made: starts that wait come first."""


class Pair:
    """A supervisor and pid 1 that wait for their job."""

    def __init__(self, pid: int, jobs: socket.socket, group: Group | None) -> None:
        self.pid, self.jobs, self.group = pid, jobs, group


class Zygote:
    def __init__(self, host: socket.socket, interpreter: str, prefix: str) -> None:
        self._host = host
        self._running: dict[int, Group | None] = {}
        self._ending: list[Group] = []
        self._spares: list[Pair] = []
        self._count = 0
        host_uid = os.geteuid()
        self._uid, self._gid = identity.sandbox_identity()
        self._cgroups = Cgroups()
        mounts.enter(host_uid)
        self._stage = mounts.build_base(interpreter, prefix)
        self._layers = mounts.Layers(self._stage, host_uid, self._uid, self._gid)
        self._wake, wake = socket.socketpair()
        wake.setblocking(False)
        self._wake.setblocking(False)
        self._wake_writer = wake
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)

    def capabilities(self) -> dict:
        """What this machine gives, found by starting one sandbox and looking at how far it came."""
        found = {"cgroup": self._cgroups.kind, "cpu": self._cgroups.cpu, "reasons": self._cgroups.reasons}
        ours, theirs = socket.socketpair()
        control, their_control = socket.socketpair()
        limits = {"memory_bytes": 256 << 20, "disk_bytes": 16 << 20, "inodes": 1000, "processes": 16, "cpus": 1.0}
        limits |= {"open_files": 256, "file_bytes": 1 << 20, "output_bytes": 1000}
        request = {"layers": [], "snapshot": False, "limits": limits, "life": TRIAL_SECONDS, "env": {}, "port": 0}
        self._start(request, theirs, their_control)
        ours.settimeout(TRIAL_SECONDS)
        frames: list = []
        decoder = protocol.Decoder()
        try:
            while not frames and (data := ours.recv(1 << 16)):
                frames = decoder.feed(data)
        except TimeoutError:
            frames = []
        ours.close()
        control.close()
        answer = frames[0][0] if frames else {"op": "fail", "step": "agent", "text": "no answer", "errno": None}
        return found | {"trial": answer}

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self._host, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while True:
            lacking = len(self._spares) < SPARES
            ready = poll.poll(REFILL_MS if lacking else 100 if self._ending else None)
            for fd, _ in ready:
                if fd == self._wake.fileno():
                    self._drain()
                elif not self._accept():
                    return
            self._reap()
            if lacking and not ready:
                with contextlib.suppress(OSError):  # then the next start meets the same trouble, and tells
                    self._spares.append(self._fork_pair())

    def close(self) -> None:
        """End every sandbox and remove what was made for them."""
        for pid in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + SHUTDOWN_SECONDS
        while (self._running or self._ending) and time.monotonic() < end:
            select.select([self._wake], [], [], 0.02)
            self._drain()
            self._reap()
        self._cgroups.close()

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake.recv(4096):
                pass

    def _accept(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._host, MAX_REQUEST_BYTES, 3)
        except ConnectionError:
            return False
        if not data:
            return False
        channel, control, *way = (socket.socket(fileno=fd) for fd in descriptors)
        self._start(json.loads(data), channel, control, *way)
        return True

    def _start(self, request: dict, channel: socket.socket, *others: socket.socket) -> None:
        """Hand `request` to a waiting pair; what goes wrong is told on `channel`. Closes the sockets here."""
        try:
            request["layers"] = self._layers.numbers(request["layers"])
            pair = self._spares.pop() if self._spares else self._fork_pair()
            try:
                if pair.group:
                    limits = request["limits"]
                    memory = limits["memory_bytes"] + limits["disk_bytes"]  # the writable layer lives in memory too
                    pair.group.limit(memory=memory, processes=limits["processes"], cpus=limits["cpus"])
                socket.send_fds(pair.jobs, [json.dumps(request).encode()], [end.fileno() for end in (channel, *others)])
            finally:
                pair.jobs.close()
            self._layers.trim()
        except (OSError, mounts.LayerError) as error:
            launcher.report(channel, error)
        finally:
            for end in (channel, *others):
                end.close()

    def _fork_pair(self) -> Pair:
        group = None
        if self._cgroups.kind != "none":
            self._count += 1
            group = self._cgroups.create(str(self._count))
        jobs, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                self._host.close()
                jobs.close()
                for spare in self._spares:
                    spare.jobs.close()
                watchdog = self._cgroups.kind == "none"
                launcher.standby(self._stage, self._uid, self._gid, group, watchdog, theirs)
            finally:
                os._exit(0)
        theirs.close()
        if group:
            group.forget()
        self._running[pid] = group
        return Pair(pid, jobs, group)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                self._spares = [pair for pair in self._spares if pair.pid != pid]
                group = self._running.pop(pid, None)
                if group:
                    self._retire(group)
        self._ending = [group for group in self._ending if not group.remove()]

    def _retire(self, group: Group) -> None:
        self._ending.append(group)


def main() -> None:
    """Arguments: descriptor of the host's socket, path of the interpreter, its installation prefix."""
    host = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.umask(0o022)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, MAX_DESCRIPTORS), most))
    try:
        zygote = Zygote(host, sys.argv[2], sys.argv[3])
    except (OSError, identity.NoIdentity) as error:
        step = getattr(error, "step", "identity")
        failed = {"op": "fail", "step": step, "text": str(error), "errno": getattr(error, "errno", None)}
        host.send(json.dumps({"cgroup": "none", "cpu": False, "reasons": [], "trial": failed}).encode())
        return
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        host.send(json.dumps(zygote.capabilities()).encode())
        zygote.serve()
    except BrokenPipeError:  # the host ended while we started
        return
    finally:
        zygote.close()
