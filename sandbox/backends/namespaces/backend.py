"""The backend as the rest of the system sees it: finds out what the machine gives, and starts sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import socket
import threading
import time
import weakref
from typing import Literal

from sandbox.backends.base import (
    Capabilities,
    EnvSpec,
    Guarantee,
    Limits,
    NetPolicy,
    SandboxError,
    SandboxLost,
    SandboxUnavailable,
    Snapshot,
)
from sandbox.backends.limits import check, refuse_unenforceable
from sandbox.backends.namespaces.channel import Channel
from sandbox.backends.namespaces.client import OUT_OF_FILES, ZygoteClient, ZygoteGone, too_many_files
from sandbox.backends.namespaces.kernel import cgroups
from sandbox.backends.namespaces.remedies import explain
from sandbox.backends.namespaces.sandbox import NamespacesSandbox
from sandbox.backends.users import warn_of_neighbours

START_SECONDS = 60.0
MAX_LAYERS = 60


class NamespacesBackend:
    """Sandboxes on this machine's own kernel. Safe to share between threads and event loops, and across forks."""

    name = "namespaces"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._zygote: ZygoteClient | None = None
        self.capabilities: Capabilities | None = None
        self._sandboxes: weakref.WeakSet[NamespacesSandbox] = weakref.WeakSet()
        self._started = 0

    def probe(self) -> Capabilities:
        """Starts the zygote and one trial sandbox the first time (about 0.1 s); never raises for the machine's sake."""
        with self._lock:
            if self.capabilities is None or self._zygote is None or not self._zygote.ours():
                self._zygote = ZygoteClient()
                self.capabilities = read_capabilities(self._zygote.found)
                warn_of_neighbours(self.name, self.capabilities)
            return self.capabilities

    async def start(
        self,
        env: EnvSpec,
        *,
        limits: Limits = Limits(),
        net: NetPolicy = NetPolicy.NONE,
        snapshot: Snapshot | None = None,
    ) -> NamespacesSandbox:
        _check(env, limits)
        gateway = net.gateway
        request = {
            "layers": [str(path) for path in ((snapshot.layer,) if snapshot else ()) + env.layers],
            "snapshot": snapshot is not None,
            "env": dict(env.env) | dict(gateway.variables if gateway else {}),
            "port": gateway.port if gateway else 0,
            "life": limits.life_seconds,
            "limits": {key: value for key, value in dataclasses.asdict(limits).items() if key != "required"},
        }
        sandbox, listener = await self._launch(request, limits)
        self._sandboxes.add(sandbox)
        try:
            if gateway and listener:
                sandbox.egress = await gateway.serve(sandbox.name, listener)
            if snapshot and snapshot.shell_state:
                await sandbox.restore_state(snapshot.shell_state)
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def sweep(self) -> int:
        """Control groups are all that a crash can leave; those of zygotes that are gone are removed."""
        return await asyncio.to_thread(cgroups.sweep)

    async def close(self) -> None:
        """Ends every sandbox and the zygote; the backend may be used again afterwards."""
        with self._lock:
            zygote, self._zygote, self.capabilities = self._zygote, None, None
        here = asyncio.get_running_loop()
        for sandbox in list(self._sandboxes):
            if sandbox.loop is here:
                await sandbox.close()
        self._sandboxes.clear()
        if zygote is not None and zygote.ours():
            await asyncio.to_thread(zygote.close)

    async def _launch(self, request: dict, limits: Limits) -> tuple[NamespacesSandbox, socket.socket | None]:
        for attempt in (1, 2):
            zygote = await self._ready_zygote(limits)
            self._started += 1
            began = time.monotonic()
            name = request["name"] = f"{os.getpid()}-{self._started}"
            ours, theirs = zip(*_pairs(3 if request["port"] else 2), strict=True)
            try:
                zygote.send(json.dumps(request).encode(), [end.fileno() for end in theirs])
            except (ZygoteGone, SandboxUnavailable) as error:
                for end in ours:
                    end.close()
                if isinstance(error, SandboxUnavailable):
                    raise
                self._forget(zygote)
                if attempt == 2:
                    raise SandboxLost(f"the sandbox launcher ended twice: {error}") from None
                continue
            finally:
                for end in theirs:
                    end.close()
            return await self._connect(zygote, name, limits, ours, began + limits.life_seconds)
        raise AssertionError("unreachable")

    async def _ready_zygote(self, limits: Limits) -> ZygoteClient:
        zygote = self._zygote
        if zygote is None or not zygote.ours():
            await asyncio.to_thread(self.probe)
            zygote = self._zygote
        capabilities = self.capabilities
        if zygote is None or capabilities is None:
            raise SandboxLost("the backend was closed while a sandbox was starting")
        refuse_unenforceable(limits, capabilities)
        return zygote

    async def _connect(
        self, zygote: ZygoteClient, name: str, limits: Limits, ours: tuple[socket.socket, ...], expires: float
    ) -> tuple[NamespacesSandbox, socket.socket | None]:
        agent_channel = await Channel.open(name, ours[0], expires)
        control_channel = await Channel.open(name, ours[1], expires)
        try:
            hello = await agent_channel.hello(START_SECONDS)
            if hello.get("op") == "fail":
                raise _start_error(hello)
            listener = _listener(ours[2]) if len(ours) > 2 else None
        except BaseException:
            agent_channel.fail("it did not start")
            control_channel.fail("it did not start")
            raise
        finally:
            for end in ours[2:]:
                end.close()
        sandbox = NamespacesSandbox(
            name=name,
            limits=limits,
            agent=agent_channel,
            control=control_channel,
            closed=self._sandboxes.discard,
            lend=zygote.lend if os.geteuid() == 0 and "users" in self._enforced() else None,
        )
        return sandbox, listener

    def _enforced(self) -> frozenset[Guarantee]:
        return self.capabilities.enforced if self.capabilities else frozenset()

    def _forget(self, zygote: ZygoteClient) -> None:
        with self._lock, contextlib.suppress(OSError):
            if self._zygote is zygote:
                self._zygote, self.capabilities = None, None
                zygote.close()


def _pairs(count: int) -> list[tuple[socket.socket, socket.socket]]:
    """Connected sockets. Raises SandboxUnavailable."""
    try:
        return [socket.socketpair() for _ in range(count)]
    except OSError as error:
        if error.errno in OUT_OF_FILES:
            raise too_many_files() from None
        raise


def _listener(way: socket.socket) -> socket.socket:
    """The socket that listens inside the sandbox, which pid 1 sent before it said that it is ready."""
    way.setblocking(False)
    _, descriptors, _, _ = socket.recv_fds(way, 1, 1)
    return socket.socket(fileno=descriptors[0])


def _start_error(hello: dict) -> SandboxError:
    step, number, text = str(hello.get("step")), hello.get("errno"), str(hello.get("text"))
    message = explain(step, number if isinstance(number, int) else None, text)
    return (
        SandboxUnavailable(message)
        if step in ("LayerError", "NoIdentity", "userns", "proc", "overlay", "seccomp")
        else SandboxLost(message)
    )


def read_capabilities(found: dict) -> Capabilities:
    reasons = list(found["reasons"])
    trial = found["trial"]
    if trial.get("op") != "ready":
        reasons.insert(0, explain(str(trial.get("step")), trial.get("errno"), str(trial.get("text"))))
        return Capabilities(usable=False, cgroup="none", reasons=tuple(reasons))
    kind: Literal["v2", "v1", "none"] = found["cgroup"]
    enforced: set[Guarantee] = {"memory", "processes", "disk", "files", "output", "time", "network", "seccomp"}
    if trial["inodes"]:
        enforced.add("inodes")
    else:
        reasons.append("the number of files is not limited: this kernel's tmpfs has no such option (gVisor)")
    if found["users"]:
        enforced.add("users")
    if found["cpu"]:
        enforced.add("cpu")
    elif kind != "none":
        reasons.append("cpu shares are not enforced: the cpu controller is not handed to our control group")
    return Capabilities(usable=True, cgroup=kind, enforced=frozenset(enforced), reasons=tuple(reasons))


def _check(env: EnvSpec, limits: Limits) -> None:
    check(limits)
    if len(env.layers) > MAX_LAYERS:
        raise SandboxUnavailable(f"{len(env.layers)} layers; at most {MAX_LAYERS} can be stacked: merge some")
    for layer in env.layers:
        if not layer.is_absolute():
            raise SandboxUnavailable(f"layer {layer} is not an absolute path")
