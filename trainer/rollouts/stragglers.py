"""Attempts that take far longer than the rest of their group, and what is recorded of one that was cut.

Waiting is the default: an attempt is slow mostly because its task is hard, and a policy that never sees how such
attempts end learns to be short. Cutting is for those who would rather lose them than wait.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Sequence

from sandbox.grading.outcomes import Cause
from sandbox.grading.report import Report, Verdict
from sandbox.harness.types import StopReason
from trainer.config import AsynchronyConfig
from trainer.rollouts.types import Trajectory

CUT = "cut: it took far longer than the rest of its group (asynchrony.straggler)"


async def cut_stragglers(attempts: Sequence[asyncio.Task[Trajectory]], settings: AsynchronyConfig) -> None:
    """Return when all have ended, or when those that are left were cancelled.

    That is once `trim_to` of them (at least two) have a reward, and `straggler_factor` times the median of these has passed.
    """
    clock = asyncio.get_running_loop().time
    began, pending = clock(), set(attempts)
    needed = max(2, math.ceil(settings.trim_to * len(attempts)))
    seconds: list[float] = []
    while pending:
        left = None
        if len(seconds) >= needed:
            left = began + settings.straggler_factor * statistics.median(seconds) - clock()
            if left <= 0:
                for attempt in pending:
                    attempt.cancel()
                await asyncio.wait(pending)
                return
        done, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        seconds += [clock() - began for attempt in done if _scored(attempt)]


def _scored(attempt: asyncio.Task[Trajectory]) -> bool:
    return not attempt.cancelled() and attempt.exception() is None and attempt.result().reward is not None


def cut_short(other: Trajectory, sample: int) -> Trajectory:
    """What is kept of an attempt that was cut, beside an `other` of its group: missing data with its cause."""
    return Trajectory(
        task_id=other.task_id,
        bundle_hash=other.bundle_hash,
        sample=sample,
        messages=other.messages,
        tool_schema_hash=other.tool_schema_hash,
        turns=(),
        segments=(),
        stop_reason=StopReason.INFRA_ERROR,
        report=Report(verdict=Verdict.INFRA_ERROR, outcome=Cause.CANCELLED, cause=CUT, bundle_hash=other.bundle_hash),
    )
