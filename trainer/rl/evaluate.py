"""Evaluation: runs samples of held-out tasks as training episodes and reports scores with intervals.

pass@1 is the mean over tasks of the share of passing samples. Its interval is over tasks, because samples of one task
are not independent. best-of-K counts tasks that at least one of K samples solves, over the tasks that lost none of
their K: fewer samples solve a task less often. Every graded sample is in the denominator, including samples whose tests
or calls never ended. Samples that the infrastructure lost are missing data: excluded, and counted.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from sandbox.grading.verdict.report import Verdict
from sandbox.tasks.spec import TaskSpec
from trainer.rewards.parts.tests import ENDED_BY_POLICY
from trainer.rollouts.episode import RolloutServices, run_episode
from trainer.rollouts.group import LIMIT_STOPS, episode_seed
from trainer.rollouts.losses import Losses
from trainer.rollouts.retries import with_retries
from trainer.rollouts.turns import EpisodeSettings
from trainer.types import Trajectory

Z95 = 1.96


class EvalReport(BaseModel):
    """Outcome of one evaluation. Shares are in [0, 1]; intervals are 95 %."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tasks: int
    samples: int
    """Samples per task."""
    temperature: float
    pass1: float
    pass1_interval: tuple[float, float]
    best_of_k: float | None
    """None when no task has a verdict for each of its K samples, like its interval."""
    best_of_k_interval: tuple[float, float] | None
    k: int
    missing: int
    """Samples lost to infrastructure."""
    finished: float
    """Share of samples that the policy ended itself."""
    truncated: float
    output_tokens: float
    turns: float
    solved: dict[str, tuple[int, int]]
    """Task id → (samples passed, samples with a verdict)."""

    def metrics(self) -> dict[str, float]:
        best = {} if self.best_of_k is None else {"eval/best_of_k": self.best_of_k}
        return {"eval/pass1": self.pass1, **best}


async def evaluate(
    *,
    tasks: Sequence[TaskSpec],
    samples: int,
    settings: EpisodeSettings,
    services: RolloutServices,
    seed: int,
    name: str = "eval",
    infra_retries: int = 2,
    on_trajectory: Callable[[Trajectory], Awaitable[None]] | None = None,
) -> EvalReport:
    """Run `samples` episodes of each task (concurrently, bounded by `services.slots`) and summarise them."""

    async def one(index: int, task: TaskSpec, sample: int) -> Trajectory:
        losses = Losses()
        return await with_retries(
            lambda attempt: run_episode(
                task=task,
                sample=sample,
                session_id=f"{name}-{index}-{sample}-{attempt}",
                seed=episode_seed(seed, index, sample),
                settings=settings,
                services=services,
                losses=losses,
            ),
            retries=infra_retries,
            on_trajectory=on_trajectory,
        )

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(one(i, task, s)) for i, task in enumerate(tasks) for s in range(samples)]
    return summarise([run.result() for run in running], samples=samples, temperature=settings.sampling.temperature)


def summarise(trajectories: Sequence[Trajectory], *, samples: int, temperature: float) -> EvalReport:
    """Report over trajectories in any order. Raises ValueError when none has a verdict."""
    judged = [t for t in trajectories if t.verdict is not Verdict.INFRA_ERROR]
    if not judged:
        raise ValueError("no sample of this evaluation has a verdict; see the causes of its infrastructure errors")
    solved: dict[str, tuple[int, int]] = {}
    for t in judged:
        passed, drawn = solved.get(t.task_id, (0, 0))
        solved[t.task_id] = (passed + (t.verdict is Verdict.PASSED), drawn + 1)
    shares = [passed / drawn for passed, drawn in solved.values()]
    best = [pass_at_k(drawn, passed, samples) for passed, drawn in solved.values() if drawn >= samples]

    def mean(values: Sequence[Any]) -> float:
        return sum(values) / len(values)

    return EvalReport(
        tasks=len({t.task_id for t in trajectories}),
        samples=samples,
        temperature=temperature,
        pass1=mean(shares),
        pass1_interval=mean_interval(shares),
        best_of_k=mean(best) if best else None,
        best_of_k_interval=wilson_interval(mean(best), len(best)) if best else None,
        k=samples,
        missing=len(trajectories) - len(judged),
        finished=mean([t.stop_reason in ENDED_BY_POLICY for t in judged]),
        truncated=mean([t.stop_reason in LIMIT_STOPS for t in judged]),
        output_tokens=mean([t.output_tokens for t in judged]),
        turns=mean([len(t.turns) for t in judged]),
        solved=solved,
    )


def pass_at_k(drawn: int, passed: int, k: int) -> float:
    """Unbiased probability that one of k samples passes, from `passed` of `drawn`: 1 - C(n-c, k) / C(n, k)."""
    if not 0 < k <= drawn or not 0 <= passed <= drawn:
        raise ValueError(f"pass@{k} needs 0 < k <= samples and 0 <= passed <= samples, got {passed} of {drawn}")
    return 1.0 - math.comb(drawn - passed, k) / math.comb(drawn, k)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Normal 95 % interval of a mean of shares over independent tasks, clipped to [0, 1].

    Where no task or every task is solved, the normal interval is empty, whatever their number: Wilson's takes its place.
    """
    n = len(values)
    mean = sum(values) / n
    if n < 2:
        return (0.0, 1.0)
    if mean in (0.0, 1.0):
        return wilson_interval(mean, n)
    half = Z95 * math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)
    return (max(0.0, mean - half), min(1.0, mean + half))


def wilson_interval(share: float, n: int) -> tuple[float, float]:
    """Wilson 95 % interval of a proportion; well-behaved at 0 and 1."""
    centre = (share + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 / (1 + Z95**2 / n) * math.sqrt(share * (1 - share) / n + Z95**2 / (4 * n * n))
    return (max(0.0, centre - half), min(1.0, centre + half))
