"""Runs an attempt again when the infrastructure loses it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sandbox.grading.verdict.report import Verdict
from trainer.types import Trajectory

OnTrajectory = Callable[[Trajectory], Awaitable[None]]


async def with_retries(
    attempt: Callable[[int], Awaitable[Trajectory]],
    *,
    retries: int,
    on_trajectory: OnTrajectory | None = None,
    on_loss: Callable[[Trajectory], None] = lambda trajectory: None,
) -> Trajectory:
    """`attempt(0)`, then up to `retries` more while the table of outcomes allows it; the last trajectory.

    `on_trajectory` is awaited for each trajectory as it ends, and `on_loss` called for each that the infrastructure lost.
    """
    for index in range(retries + 1):
        trajectory = await attempt(index)
        if on_trajectory is not None:
            await on_trajectory(trajectory)
        if trajectory.verdict is not Verdict.INFRA_ERROR:
            break
        on_loss(trajectory)
        if not trajectory.report.retry:
            break
    return trajectory
