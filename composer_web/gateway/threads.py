"""Database work beside the event loop. Its connection goes back to the pool at once: a stream may last for minutes."""

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
    """The thread's connection goes back to the pool at the end."""
    try:
        yield
    finally:
        connections["default"].close()


async def beside(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Runs `work` in a thread. Raises Unavailable when Postgres does not answer."""

    def run() -> T:
        with connected():
            return work(*arguments, **named)

    try:
        return await asyncio.to_thread(run)
    except (OperationalError, InterfaceError) as error:
        log.warning("the gateway has no database: %s", error)
        raise Unavailable("Postgres does not answer; try again in a moment") from error
