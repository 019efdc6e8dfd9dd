"""What is there for any engine behind the contract."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import cast

import pytest

from trainer.inference.service import Engine, application


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
