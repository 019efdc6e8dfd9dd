"""Straggler mitigation: ends attempts that take far longer than the rest of their group, and records them.

Waiting is the default. An attempt is usually slow because its task is hard, and a policy that never sees how such
attempts end learns to be short. Cutting is for users who prefer losing stragglers to waiting.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Sequence

from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Report, Verdict
from sandbox.harness.types import StopReason
from trainer.config import OrchestratorConfig
from trainer.types import Trajectory

CUT = "cut: it took far longer than the rest of its group (orchestrator.straggler_policy)"


async def cut_stragglers(attempts: Sequence[asyncio.Task[Trajectory | None]], settings: OrchestratorConfig) -> None:
    """Return when all attempts have ended, or when the remaining ones were cancelled.

    Cancellation happens once `straggler_min_share` of them (at least two) have a reward, and `straggler_timeout_factor`
    times the median of these has passed.
    """
    clock = asyncio.get_running_loop().time
    began, pending = clock(), set(attempts)
    needed = max(2, math.ceil(settings.straggler_min_share * len(attempts)))
    seconds: list[float] = []
    while pending:
        left = None
        if len(seconds) >= needed:
            left = began + settings.straggler_timeout_factor * statistics.median(seconds) - clock()
            if left <= 0:
                for attempt in pending:
                    attempt.cancel()
                await asyncio.wait(pending)
                return
        done, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        seconds += [clock() - began for attempt in done if _scored(attempt)]


def _scored(attempt: asyncio.Task[Trajectory | None]) -> bool:
    if attempt.cancelled() or attempt.exception() is not None:
        return False
    ended = attempt.result()
    return ended is not None and ended.reward is not None


def cut_short(other: Trajectory, sample: int) -> Trajectory:
    """Trajectory of an attempt that was cut, based on an `other` of its group: missing data with its cause."""
    return lost_to(other, sample, Cause.CANCELLED, CUT)


def lost_to(other: Trajectory, sample: int, outcome: Cause, cause: str) -> Trajectory:
    """Trajectory of an attempt that left none, based on an `other` of its group."""
    return Trajectory(
        task_id=other.task_id,
        bundle_hash=other.bundle_hash,
        sample=sample,
        messages=other.messages,
        tool_schema_hash=other.tool_schema_hash,
        turns=(),
        segments=(),
        stop_reason=StopReason.INFRA_ERROR,
        report=Report(verdict=Verdict.INFRA_ERROR, outcome=outcome, cause=cause[:500], bundle_hash=other.bundle_hash),
    )
