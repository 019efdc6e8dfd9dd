"""One snapshot, many continuations: the same for every backend."""

from __future__ import annotations

import asyncio

from sandbox.backends.base import Backend, EnvSpec, Limits, NetPolicy, Sandbox, Snapshot


async def fork(
    backend: Backend,
    env: EnvSpec,
    snapshot: Snapshot,
    count: int,
    *,
    limits: Limits = Limits(),
    net: NetPolicy = NetPolicy.NONE,
) -> list[Sandbox]:
    """`count` sandboxes that go on from `snapshot`, all or none: when one fails to start, the others are closed.

    Raises what `Backend.start` raises. They share the snapshot's files, which must stay while one of them lives.
    """
    starts = [asyncio.ensure_future(_start(backend, env, snapshot, limits, net)) for _ in range(count)]
    try:
        return list(await asyncio.gather(*starts))
    except BaseException:
        for task in starts:
            task.cancel()
        for outcome in await asyncio.gather(*starts, return_exceptions=True):
            if not isinstance(outcome, BaseException):
                await outcome.close()
        raise


async def _start(backend: Backend, env: EnvSpec, snapshot: Snapshot, limits: Limits, net: NetPolicy) -> Sandbox:
    return await backend.start(env, limits=limits, net=net, snapshot=snapshot)
