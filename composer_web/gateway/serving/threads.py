"""Database work outside the event loop. Each call releases its connection immediately, since a stream may last
minutes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from django.db import InterfaceError, OperationalError, connections

from composer_web.gateway.errors import Unavailable

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def connected() -> Iterator[None]:
    """Return the thread's connection to the pool at the end."""
    try:
        yield
    finally:
        connections["default"].close()


async def beside(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run `work` in a thread. Raises Unavailable if Postgres does not respond."""

    return await asyncio.to_thread(guarded, lambda: work(*arguments, **named))


def guarded(work: Callable[[], T]) -> T:
    """Result of `work`, with a connection for this call. Raises Unavailable if Postgres does not respond."""
    try:
        with connected():
            return work()
    except (OperationalError, InterfaceError) as error:
        log.warning("the gateway has no database: %s", error)
        raise Unavailable("Postgres does not answer; try again in a moment") from error
