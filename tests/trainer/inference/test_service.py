"""What is there for any engine behind the contract."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Iterator
from typing import cast

import pytest
from starlette.testclient import TestClient

from trainer.inference.contract import ServerHealth
from trainer.inference.service import Engine, application
from trainer.usage import Usage


class Loads:
    """An engine that has much in memory once it has started, some of it already given up."""

    def __init__(self) -> None:
        self.kept: list[dict[str, object]] = []
        self.gone: weakref.ref[set[object]] | None = None

    async def start(self) -> None:
        self.kept = [{"of": self} for _ in range(1000)]
        ring: set[object] = Ring()
        ring.add((ring,))
        self.gone = weakref.ref(ring)

    async def stop(self) -> None:
        self.kept.clear()

    def health(self) -> ServerHealth:
        return ServerHealth(ok=True, engine="loads", usage=[BEHIND])


BEHIND = Usage(host="far", pid=1, cpu=1.0, memory=1, host_cpu=0.5, host_cores=8, host_memory=1, host_memory_total=2)
"""Of an engine behind this one."""


class Ring(set[object]):
    """Holds itself, so that only a collection frees it."""

    __hash__ = object.__hash__  # type: ignore[assignment]


@pytest.fixture
def thawed() -> Iterator[None]:
    """Whatever was frozen is this process's again."""
    yield
    gc.unfreeze()


def test_what_a_started_engine_keeps_is_left_out_of_collections_while_it_serves(thawed: None) -> None:
    engine = Loads()
    app = application(cast(Engine, engine))

    async def serve() -> None:
        async with app.router.lifespan_context(app):
            assert engine.gone is not None and engine.gone() is None, "garbage is not kept for good"
            walked = {id(one) for one in gc.get_objects()}
            assert len(engine.kept) == 1000 and not walked & {id(one) for one in engine.kept}

    asyncio.run(serve())
    assert not engine.kept


def test_health_says_what_the_server_and_those_behind_it_use(thawed: None) -> None:
    with TestClient(application(cast(Engine, Loads()), sample_seconds=0.05)) as client:
        end, pause = time.monotonic() + 30, threading.Event()
        while len(found := ServerHealth.model_validate(client.get("/health").json()).usage) < 2:
            assert time.monotonic() < end, "the server measures itself"
            pause.wait(0.05)
    own, behind = found
    assert behind == BEHIND and own.memory > 10 << 20 and own.host_memory_total > own.host_memory
