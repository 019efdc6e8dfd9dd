"""Groups without an engine for the loop in one process: the same tokens whenever and at whatever version they are asked for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import lru_cache

from sandbox.grading.verdict.outcomes import Cause, Loss
from tests.support.local_loop import Ticket
from tests.trainer.stages.memory import BASE_POLICY, make_group
from trainer import policy as policies
from trainer.rollouts.group import GroupResult
from trainer.types import TrainGroup


@lru_cache(maxsize=1)
def _model():
    return policies.load(BASE_POLICY).model


@lru_cache(maxsize=64)
def _made(prompt: int) -> TrainGroup:
    return make_group(_model(), prompt)


def group_of(prompt: int, version: int, **changes) -> TrainGroup:
    versions = {"dispatched_version": version, "oldest_version": version, "newest_version": version}
    return _made(prompt).model_copy(update=versions | changes)


def accepted(prompt: int, version: int, **changes) -> GroupResult:
    return GroupResult((), group_of(prompt, version, **changes), ())


def lost(outcome: Cause, cause: str) -> GroupResult:
    return GroupResult((), None, (Loss(outcome, cause),))


def shuffled(seed: int) -> Callable[[Ticket], Awaitable[GroupResult]]:
    """Groups that end in an order of their own: each lets the others go first a seeded number of times."""

    async def play(ticket: Ticket) -> GroupResult:
        for _ in range(random.Random(f"{seed}:{ticket.prompt}").randrange(12)):
            await asyncio.sleep(0)
        return accepted(ticket.prompt, ticket.version)

    return play
