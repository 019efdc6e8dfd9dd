"""The public backend: detects the engine's capabilities and starts sandboxes."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sandbox.backends.base import (
    Capabilities,
    EnvSpec,
    Gateway,
    Limits,
    NetPolicy,
    SandboxError,
    SandboxLost,
    SandboxUnavailable,
    Snapshot,
)
from sandbox.backends.docker import containers, image, leases, trial
from sandbox.backends.docker.channel import AttachedChannel
from sandbox.backends.docker.engine import Engine
from sandbox.backends.docker.inside import STORE
from sandbox.backends.docker.layers import LayerRefused, Layers
from sandbox.backends.docker.sandbox import Containers, DockerSandbox
from sandbox.backends.docker.settings import DockerSettings
from sandbox.backends.docker.sweeper import remove_labelled, sweep
from sandbox.backends.docker.users import Users, explained, why_shared
from sandbox.backends.docker.way import WAY, Way
from sandbox.backends.limits import check, refuse_unenforceable
from sandbox.backends.namespaces.sandbox import NamespacesSandbox
from sandbox.backends.users import warn_of_neighbours

START_SECONDS = 180.0
LONGEST_DESCRIPTOR = "/proc/4194304/fd/1023"
"""How long the name of a layer can be that the keeper translated."""


@dataclasses.dataclass
class Ready:
    """What one process works with once it knows the engine."""

    engine: Engine
    lease: leases.Lease
    kind: containers.Kind
    layers: Layers
    users: Users
    capabilities: Capabilities
    released: bool = False


class DockerBackend:
    """Sandboxes out of containers. Safe to share between threads and event loops, and across forks."""

    name = "docker"

    def __init__(self, settings: DockerSettings | None = None) -> None:
        self.settings = settings or DockerSettings()
        self._lock = threading.Lock()
        self._ready: Ready | None = None
        self._sandboxes: weakref.WeakSet[NamespacesSandbox] = weakref.WeakSet()
        self._numbers = itertools.count(1)

    def probe(self) -> Capabilities:
        """Asks the engine and starts one trial sandbox the first time; never raises for the machine's sake."""
        with self._lock:
            if self._ready is not None and self._ready.engine.owner == os.getpid():
                return self._ready.capabilities
            self._ready = None
            try:
                ready = self._prepare()
            except SandboxError as error:
                return Capabilities(usable=False, cgroup="none", reasons=(str(error),))
            try:
                # in a thread of its own: the caller's may run an event loop
                with ThreadPoolExecutor(1) as thread:
                    found = thread.submit(asyncio.run, self._try(ready)).result()
            except SandboxError as error:
                _release(ready)
                return Capabilities(usable=False, cgroup="none", reasons=(str(error),))
            except BaseException:
                _release(ready)
                raise
            warn_of_neighbours(self.name, found)
            ready.capabilities = found
            self._ready = ready
            weakref.finalize(self, _release, ready)  # at the latest when this process ends
            return found

    async def start(
        self,
        env: EnvSpec,
        *,
        limits: Limits = Limits(),
        net: NetPolicy = NetPolicy.NONE,
        snapshot: Snapshot | None = None,
    ) -> DockerSandbox:
        check(limits)
        for layer in env.layers:
            if not layer.is_absolute():
                raise SandboxUnavailable(f"layer {layer} is not an absolute path")
        found = await asyncio.to_thread(self.probe)
        refuse_unenforceable(limits, found)
        ready = self._ready
        if ready is None:
            raise SandboxLost("the backend was closed while a sandbox was starting")
        try:
            sandbox = await self._start_anyhow(ready, env, limits, net.gateway, snapshot)
        except SandboxError:
            ready.layers.doubt()
            raise
        await ready.engine.do(ready.layers.trim)
        return sandbox

    async def sweep(self) -> int:
        """Containers and volumes whose lease nobody holds any more are removed; those of others never."""
        found = await asyncio.to_thread(self.probe)
        ready = self._ready
        if ready is None:
            raise SandboxUnavailable("; ".join(found.reasons))
        return await ready.engine.do(sweep, ready.engine, self.settings.leases)

    async def close(self) -> None:
        """Ends every sandbox and removes the copies of layers; the backend may be used again afterwards."""
        with self._lock:
            ready, self._ready = self._ready, None
        here = asyncio.get_running_loop()
        await asyncio.gather(*(box.close() for box in list(self._sandboxes) if box.loop is here))
        self._sandboxes.clear()
        if ready is not None:
            await asyncio.to_thread(_release, ready)

    def _prepare(self) -> Ready:
        """Raises SandboxError."""
        settings = self.settings
        engine = Engine(settings.socket_url())
        try:
            info = engine.info()
            kind = trial.kind(settings, info, image.ready(engine, settings))
            why = why_shared(info, kind.on_host_kernel)
            lease = leases.Lease(settings.leases)
        except BaseException:
            engine.close()
            raise
        kind = dataclasses.replace(kind, labels=lease.labels, own_users=not why)
        sweep(engine, settings.leases)
        return Ready(engine, lease, kind, Layers(engine, kind), Users(), trial.capabilities(info, kind, why))

    async def _try(self, ready: Ready) -> Capabilities:
        """What a first sandbox shows; where none can be a user of its own, what a second one shows that is not."""
        if ready.kind.own_users:
            try:
                return await self._judged(ready)
            except SandboxError as error:
                ready.kind = dataclasses.replace(ready.kind, own_users=False)
                ready.layers = Layers(ready.engine, ready.kind)
                reason = trial.sharing(explained(error))
                reasons = (*ready.capabilities.reasons, reason)
                ready.capabilities = dataclasses.replace(ready.capabilities, reasons=reasons)
        return await self._judged(ready)

    async def _judged(self, ready: Ready) -> Capabilities:
        folder = self.settings.leases / f"{ready.lease.name}.trial"
        try:
            env = trial.environment(folder)
            box = await self._start_anyhow(ready, env, trial.LIMITS, None, None)
            try:
                return await trial.judge(box, ready.capabilities, ready.kind, named_image=bool(self.settings.image))
            finally:
                await box.close()
        finally:
            await ready.engine.do(ready.layers.forget)
            shutil.rmtree(folder, ignore_errors=True)

    async def _start_anyhow(
        self, ready: Ready, env: EnvSpec, limits: Limits, gateway: Gateway | None, snapshot: Snapshot | None
    ) -> DockerSandbox:
        """Start a sandbox; layers on file systems that cannot translate owners are copied to the engine's own first."""
        while True:
            try:
                return await self._start(ready, env, limits, gateway, snapshot)
            except LayerRefused as error:
                if not ready.layers.copy_from_now_on(error.path):
                    raise

    async def _start(
        self, ready: Ready, env: EnvSpec, limits: Limits, gateway: Gateway | None, snapshot: Snapshot | None
    ) -> DockerSandbox:
        """Keeper and box; whatever goes wrong, nothing of them stays."""
        engine, kind = ready.engine, ready.kind
        if gateway and not kind.on_host_kernel:
            raise SandboxUnavailable(
                f"sandboxes of runtime {kind.runtime!r} can be given no way to the network: use runc"
            )
        name = f"{os.getpid()}-{next(self._numbers)}"
        paths = [*([snapshot.layer] if snapshot else []), *env.layers]
        layers = await engine.do(ready.layers.usable, paths)
        stacked = [LONGEST_DESCRIPTOR] * len(layers) if kind.own_users else layers
        if len(containers.overlay_options(stacked, "x" * 100)) > containers.MAX_OPTION_BYTES:
            raise SandboxUnavailable(f"{len(layers)} layers with paths this long cannot be stacked: merge some")
        expires = time.monotonic() + limits.life_seconds
        made: list[str] = []
        channels: list[AttachedChannel] = []
        way = Way(self.settings.leases / f"{ready.lease.name}.{name}") if gateway else None
        try:
            user, keeper = await self._create_keeper(ready, containers.keeper(kind, layers, limits), made)
            control = await self._attach(engine, name, keeper, expires)
            channels.append(control)
            store = (await engine.do(engine.volume_paths, keeper))[STORE]
            request: dict[str, Any] = {"role": "keep", "layers": len(layers), "snapshots": 1 if snapshot else 0}
            request |= {"programs": dict(kind.image.programs), "life": limits.life_seconds, "user": user}
            kept = await self._boot(engine, keeper, control, request, layers)
            if user is not None and layers:
                pid = await engine.do(engine.pid, keeper)
                stacked = [f"/proc/{pid}/fd/{number}" for number in kept["layers"]]
            config = containers.box(kind, stacked, store, limits, str(way.folder) if way else None, user)
            box = await self._create(engine, config, made)
            agent = await self._attach(engine, name, box, expires)
            channels.append(agent)
            hello = await self._boot(engine, box, agent, _agent_request(kind, env, limits, gateway, user))
            sandbox = DockerSandbox(
                name=name,
                limits=limits,
                agent=agent,
                control=control,
                closed=self._sandboxes.discard,
                engine=engine,
                kind=kind,
                made_of=Containers(keeper, box, store, tuple(layers[:1]) if snapshot else ()),
                counts_inodes=bool(hello["inodes"]),
                guarded=bool(kept["guarded"]),
            )
            self._sandboxes.add(sandbox)
            if gateway and way:
                sandbox.egress = await gateway.serve(name, way.listener())
            if snapshot and snapshot.shell_state:
                await sandbox.restore_state(snapshot.shell_state)
        except BaseException:
            for channel in channels:
                channel.fail("it did not start")
            for container in made:
                await asyncio.shield(engine.do(engine.remove, container))
            raise
        finally:
            if way:
                way.close()
        return sandbox

    async def _create_keeper(self, ready: Ready, config: dict[str, Any], made: list[str]) -> tuple[int | None, str]:
        """The sandbox's user, if it is to have one of its own, and its keeper."""
        if not ready.kind.own_users:
            return None, await self._create(ready.engine, config, made)
        uid = 0

        def create(config: dict[str, Any]) -> str:
            nonlocal uid
            uid, container = ready.users.take(lambda name: ready.engine.create(config, name))
            return container

        keeper = await self._create(ready.engine, config, made, create)
        return uid, keeper

    async def _create(
        self,
        engine: Engine,
        config: dict[str, Any],
        made: list[str],
        create: Callable[[dict[str, Any]], str] | None = None,
    ) -> str:
        """Create a container and put it first in `made`, also when this is cancelled meanwhile."""
        creating = asyncio.ensure_future(engine.do(create or engine.create, config))
        try:
            await asyncio.shield(creating)
        finally:
            made.insert(0, await creating)
        return made[0]

    async def _attach(self, engine: Engine, name: str, container: str, expires: float) -> AttachedChannel:
        end = await engine.do(engine.attach, container)
        return await AttachedChannel.open(name, end, expires)

    async def _boot(
        self, engine: Engine, container: str, channel: AttachedChannel, request: dict, layers: Sequence[str] = ()
    ) -> dict:
        """Start a container with `layers` and wait until what it was sent is ready; what that said."""
        await engine.do(engine.start, container)
        channel.boot(request)
        try:
            hello = await channel.hello(START_SECONDS)
        except SandboxLost as error:
            raise SandboxLost(f"{error} {channel.said()}".strip()) from None
        if hello.get("kind") == "layer":
            raise LayerRefused(Path(layers[int(hello["layer"])]), str(hello.get("text")))
        if hello.get("op") != "ready":
            raise SandboxLost(f"cannot start a sandbox: {hello.get('text')}")
        return hello


def _agent_request(
    kind: containers.Kind, env: EnvSpec, limits: Limits, gateway: Gateway | None, user: int | None
) -> dict[str, Any]:
    return {
        "role": "agent",
        "env": dict(kind.image.env) | dict(env.env) | dict(gateway.variables if gateway else {}),
        "port": gateway.port if gateway else 0,
        "way": WAY,
        "user": user,
        "life": limits.life_seconds,
        "watchdog": "memory" not in kind.controls,
        "limits": {key: value for key, value in dataclasses.asdict(limits).items() if key != "required"},
    }


def _release(ready: Ready) -> None:
    """Remove whatever this process had made; nothing happens the second time, or in a forked child."""
    if ready.released or ready.engine.owner != os.getpid():
        return
    ready.released = True
    try:
        remove_labelled(ready.engine, {leases.LEASE_LABEL: ready.lease.name})
    finally:
        ready.lease.close()
        ready.engine.close()
