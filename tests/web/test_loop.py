"""The episode loop of a worker process."""

from __future__ import annotations

import asyncio
import threading

import pytest

from composer_web.rollouts import loop
from composer_web.rollouts.execution import in_words


def test_threads_that_start_together_share_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_one", None)
    barrier = threading.Barrier(8)
    found: list[tuple[loop.EpisodeLoop, asyncio.AbstractEventLoop]] = []

    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def ask() -> None:
        barrier.wait(timeout=20)
        mine = loop.episode_loop()
        found.append((mine, mine.submit(running()).result(timeout=20)))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=40)
    assert len(found) == 8 and len(set(found)) == 1


def test_a_group_of_errors_is_told_by_its_first_cause() -> None:
    nested = ExceptionGroup("outer", [ExceptionGroup("inner", [ValueError("the disk is full"), OSError("x")])])
    assert in_words(nested) == "ValueError: the disk is full"
