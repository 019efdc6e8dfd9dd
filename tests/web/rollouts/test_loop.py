"""The episode loop of a worker process."""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest

from composer_web.rollouts.dispatch.losses import GroupFailed, loss_of
from composer_web.rollouts.worker import loop
from sandbox.backends.base import SandboxLost
from sandbox.grading.verdict.outcomes import Cause
from trainer.orchestrator.validation import InvalidEngineResponse


def test_threads_that_start_together_share_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "current_loop", None)
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
    assert loss_of(nested).message == "ValueError: the disk is full"


def test_a_loss_has_the_cause_of_its_error_and_never_that_of_its_words() -> None:
    words = "cancelled: it has ended, No space left on device, reward part, did not end within"
    for error, outcome in (
        (SandboxLost(words), Cause.SANDBOX_LOST),
        (InvalidEngineResponse(words), Cause.INVALID_ENGINE_RESPONSE),
        (GroupFailed(Cause.GROUP_DEADLINE, words), Cause.GROUP_DEADLINE),
        (OSError(errno.ENOSPC, "full"), Cause.DISK_FULL),
        (OSError(errno.EIO, words), Cause.HOST_FAILED),
        (ValueError(words), Cause.INTERNAL_ERROR),
    ):
        assert loss_of(error).outcome is outcome
