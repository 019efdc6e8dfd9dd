"""Prepares long requests (parsing, rendering, tokenisation) in a separate thread, one request per token at a time.

The event loop serves every page and every other client, so nothing whose cost grows with a body runs on it. The
separate thread keeps long requests away from the threads that query Postgres. The queue per token keeps one client from
filling it: with several clients waiting, each has at most one request ahead of another's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from composer_web.gateway.errors import RateLimited, Unavailable
from composer_web.gateway.serving.threads import guarded

T = TypeVar("T")
MAX_WAITING = 16
"""Maximum number of waiting long requests per token. The next one gets a 429."""
RETRY_SECONDS = 5


class Preparation:
    """Queue of long requests of one event loop. `key` identifies a line: the primary key of an API token."""

    def __init__(self, *, workers: int = 1, max_waiting: int = MAX_WAITING) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="gateway-prepare")
        self._max_waiting = max_waiting
        self._lines: dict[int, list[asyncio.Future[None]]] = {}
        """Waiting requests per key. A key is absent while none of its requests runs."""

    async def run(self, key: int, work: Callable[[], T], *, seconds: float) -> T:
        """Run `work` in the thread and return its result. Raises RateLimited, Unavailable after `seconds`, and the
        errors of `work`."""
        try:
            async with asyncio.timeout(seconds):
                await self._turn(key)
                try:
                    running = self._threads.submit(guarded, work)
                except BaseException:
                    self._next(key)
                    raise
                loop = asyncio.get_running_loop()
                # The line moves on when the thread is done, also when the client has left meanwhile.
                running.add_done_callback(lambda _: loop.call_soon_threadsafe(self._next, key))
                return await asyncio.shield(_wrapped(running))
        except TimeoutError as error:
            raise Unavailable(
                f"the request was not prepared within {seconds:.3g} s; send shorter messages or fewer long requests at once"
            ) from error

    async def _turn(self, key: int) -> None:
        line = self._lines.get(key)
        if line is None:
            self._lines[key] = []
            return
        if len(line) >= self._max_waiting:
            raise RateLimited(
                f"{len(line)} long requests of this token are waiting already; send the next when they are answered",
                seconds=RETRY_SECONDS,
            )
        turn = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except BaseException:
            if turn in line:
                line.remove(turn)
            elif not turn.cancelled():  # it was given the turn and cannot take it
                self._next(key)
            raise

    def _next(self, key: int) -> None:
        line = self._lines[key]
        while line:
            turn = line.pop(0)
            if not turn.done():
                turn.set_result(None)
                return
        del self._lines[key]


def _wrapped(running: Future[T]) -> asyncio.Future[T]:
    found = asyncio.wrap_future(running)
    found.add_done_callback(lambda done: done.cancelled() or done.exception())  # of a client that has left
    return found
