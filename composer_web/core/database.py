"""Retries across a restart of Postgres."""

from __future__ import annotations

import functools
import logging
import random
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.db import InterfaceError, OperationalError, connection

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

DEADLINE_SECONDS = 120.0


class DatabaseGone(Exception):
    """Postgres did not respond before the deadline."""


def survives_restart(function: Callable[P, T], *, deadline: float = DEADLINE_SECONDS) -> Callable[P, T]:
    """`function` tried again with a fresh connection while Postgres is away, up to `deadline` seconds.

    Only for functions that are one transaction (or none) and idempotent: a commit whose answer was lost is repeated.
    Inside an open transaction the error goes up at once, because the transaction is gone with the connection.
    """

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        end = time.monotonic() + deadline
        pause = 0.1
        while True:
            try:
                return function(*args, **kwargs)
            except (OperationalError, InterfaceError) as error:
                if connection.in_atomic_block:
                    raise
                connection.close()
                if time.monotonic() + pause > end:
                    name = getattr(function, "__qualname__", "a query")
                    raise DatabaseGone(
                        f"Postgres did not answer for {deadline:.0f} s while in {name}: {error}"
                    ) from error
                log.warning("Postgres is away (%s); trying again in %.1f s", str(error).strip().splitlines()[0], pause)
                time.sleep(pause * random.uniform(0.8, 1.2))
                pause = min(pause * 2, 2.0)

    return wrapper
