"""The zygote: one small process per host process, from which every sandbox is forked.

It is started with an empty environment and isolated from site packages, imports only what a sandbox needs, never
starts a thread, and stays privileged only to prepare mounts and control groups. It obeys one SEQPACKET socket:
each message is a JSON request with two or three descriptors: the sandbox's agent channel, its control channel, and
where it hands out the listener of its only port; or `lend`, with a socket for the answer. The end of that socket (the
host closed it or died) ends all its sandboxes and then itself.
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

from sandbox.backends.namespaces import launcher, layer_mounts
from sandbox.backends.namespaces.guard import Guard
from sandbox.backends.namespaces.inside import protocol
from sandbox.backends.namespaces.kernel import base_root, identity, mounts, syscalls
from sandbox.backends.namespaces.kernel.cgroups import Cgroups, Group
from sandbox.backends.namespaces.kernel.users import SHARED, User, Users

MAX_REQUEST_BYTES = 1 << 17
SHUTDOWN_SECONDS = 3.0
TRIAL_SECONDS = 15.0
MAX_DESCRIPTORS = 4096
SPARES = 1
LAST_MOMENT_SECONDS = 0.2
REFILL_MS = 4
"""How long nothing must happen before a spare pair is made: starts that wait come first."""


class Pair:
    """A supervisor and pid 1: they wait for their job, or are a running sandbox."""

    def __init__(self, pid: int, jobs: socket.socket, group: Group | None, user: User) -> None:
        self.pid, self.jobs, self.group, self.user = pid, jobs, group, user
        self.name: str | None = None


class Zygote:
    def __init__(self, host: socket.socket, interpreter: str, prefix: str, users: str) -> None:
        self._host = host
        self._running: dict[int, Pair] = {}
        self._ending: list[Group] = []
        self._spares: list[Pair] = []
        self._count = 0
        self._exhausted = False
        """No user was left for a spare pair, and none has come back since."""
        self._host_uid = os.geteuid()
        self._cgroups = Cgroups()
        self._reasons: list[str] = []
        self._guard = self._hold_guard()
        mounts.enter(self._host_uid)
        self._base = base_root.build_base(interpreter, prefix)
        self._detached = layer_mounts.can_detach(self._base.stage)
        self._users = Users(self._host_uid, shared=users == SHARED or not self._detached)
        self._bound = None if self._detached else layer_mounts.BoundLayers(self._base.stage, self._users.take())
        self._makes_devices = self._detached and self._host_uid == 0
        self._wake, wake = socket.socketpair()
        wake.setblocking(False)
        self._wake.setblocking(False)
        self._wake_writer = wake
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)

    def _hold_guard(self) -> Guard | None:
        try:
            return Guard()
        except OSError as error:
            self._reasons.append(f"a program locks this machine's anonymous inode, so locks cross there: {error}")
            return None

    def capabilities(self) -> dict:
        """What this machine gives, found by starting one sandbox and looking at how far it came."""
        reasons = [*self._cgroups.reasons, *self._users.reasons, *self._reasons]
        found = {"cgroup": self._cgroups.kind, "cpu": self._cgroups.cpu, "users": self._users.own, "reasons": reasons}
        ours, theirs = socket.socketpair()
        control, their_control = socket.socketpair()
        limits = {"memory_bytes": 256 << 20, "disk_bytes": 16 << 20, "inodes": 1000, "processes": 16, "cpus": 1.0}
        limits |= {"open_files": 256, "file_bytes": 1 << 20, "output_bytes": 1000}
        request = {"name": "trial", "layers": [], "snapshot": False, "env": {}, "port": 0}
        request |= {"limits": limits, "life": TRIAL_SECONDS}
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
            lacking = len(self._spares) < SPARES and not self._exhausted
            ready = poll.poll(REFILL_MS if lacking else 100 if self._ending else None)
            for fd, _ in ready:
                if fd == self._wake.fileno():
                    self._drain()
                elif not self._accept():
                    return
            self._reap()
            if lacking and not ready:
                self._refill()

    def _refill(self) -> None:
        try:
            self._spares.append(self._fork_pair(self._users.take()))
        except identity.NoIdentity:
            self._exhausted = True
        except OSError:  # the next start meets the same trouble, and tells
            return

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
        request = json.loads(data)
        channel, *others = (socket.socket(fileno=fd) for fd in descriptors)
        if request.get("op") == "lend":
            self._lend(request, channel)
        else:
            self._start(request, channel, *others)
        return True

    def _start(self, request: dict, channel: socket.socket, *others: socket.socket) -> None:
        """Hand `request` to a waiting pair; what goes wrong is told on `channel`. Closes the sockets here."""
        layers: list[int] = []
        try:
            pair = self._spares.pop() if self._spares else self._fork_pair(self._user())
            try:
                if self._bound:
                    request["layers"] = self._bound.numbers(request["layers"])
                    self._bound.trim()
                else:
                    layers += self._detach(request["layers"], pair.user)
                if pair.group:
                    limits = request["limits"]
                    memory = limits["memory_bytes"] + limits["disk_bytes"]  # the writable layer lives in memory too
                    pair.group.limit(memory=memory, processes=limits["processes"], cpus=limits["cpus"])
                pair.name = request["name"]
                ends = [end.fileno() for end in (channel, *others)]
                socket.send_fds(pair.jobs, [json.dumps(request).encode()], ends + layers)
            finally:
                pair.jobs.close()
        except (OSError, layer_mounts.LayerError, identity.NoIdentity) as error:
            launcher.report(channel, error)
        finally:
            for end in (channel, *others):
                end.close()
            for layer in layers:
                os.close(layer)

    def _detach(self, paths: list[str], user: User) -> list[int]:
        layers: list[int] = []
        try:
            for path in paths:
                layers.append(layer_mounts.detached(path, user, root_host=self._host_uid == 0))
        except BaseException:
            for layer in layers:
                os.close(layer)
            raise
        return layers

    def _lend(self, request: dict, answer: socket.socket) -> None:
        """Show the host directory `path` as one that the user of a sandbox owns, for its supervisor to write to.

        A descriptor is the answer, or the end of `answer` when there is none to give. Raises nothing.
        """
        with answer, contextlib.suppress(OSError):
            pair = next(
                pair for pair in (*self._running.values(), None) if pair is None or pair.name == request["name"]
            )
            if pair is None:
                return
            namespace = pair.user.translation(self._users.owner)
            tree = syscalls.detached_tree(request["path"], 0, step="snapshot", user_namespace=namespace)
            try:
                folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=tree)
                socket.send_fds(answer, [b"x"], [folder])
                os.close(folder)
            finally:
                os.close(tree)

    def _user(self) -> User:
        """A user for a sandbox that is wanted now; one whose last process is just ending will do."""
        try:
            return self._users.take()
        except identity.NoIdentity:
            select.select([self._wake], [], [], LAST_MOMENT_SECONDS)
            self._drain()
            self._reap()
            return self._users.take()

    def _fork_pair(self, user: User) -> Pair:
        group, devices = None, None
        try:
            if self._cgroups.kind != "none":
                self._count += 1
                group = self._cgroups.create(str(self._count))
            if self._makes_devices:
                devices = self._devices()
            jobs, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            pid = os.fork()
        except BaseException:
            self._users.give_back(user)
            raise
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                self._host.close()
                jobs.close()
                for spare in self._spares:
                    spare.jobs.close()
                launcher.standby(launcher.Place(self._base, user, group, devices, self._detached), theirs)
            finally:
                os._exit(0)
        theirs.close()
        if devices is not None:
            os.close(devices)
        if group:
            group.forget()
        pair = self._running[pid] = Pair(pid, jobs, group, user)
        return pair

    def _devices(self) -> int | None:
        try:
            return mounts.make_devices()
        except OSError as error:  # a container without CAP_MKNOD
            self._makes_devices = False
            self._reasons.append(f"sandboxes share the machine's device files: none can be made here ({error})")
            return None

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                self._spares = [pair for pair in self._spares if pair.pid != pid]
                pair = self._running.pop(pid, None)
                if pair:
                    self._retire(pair)
        self._ending = [group for group in self._ending if not group.remove()]

    def _retire(self, pair: Pair) -> None:
        self._users.give_back(pair.user)
        self._exhausted = False
        if pair.group:
            self._ending.append(pair.group)


def main() -> None:
    """Arguments: descriptor of the host's socket, path of the interpreter, its installation prefix, `own` or `shared`."""
    host = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.umask(0o022)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, MAX_DESCRIPTORS), most))
    try:
        zygote = Zygote(host, *sys.argv[2:5])
    except (OSError, identity.NoIdentity) as error:
        step = getattr(error, "step", "identity")
        failed = {"op": "fail", "step": step, "text": str(error), "errno": getattr(error, "errno", None)}
        host.send(json.dumps({"cgroup": "none", "cpu": False, "users": False, "reasons": [], "trial": failed}).encode())
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
