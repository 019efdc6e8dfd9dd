"""Computes the figures of an evaluation from its verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from trainer.rl.evaluate import mean_interval, pass_at_k, wilson_interval


def score(tasks: Sequence[Sequence[bool]], *, samples: int, lost: int, seconds: float) -> dict[str, Any]:
    """`tasks[i]` are the passes of task i's rollouts with a verdict of the tests; the others count as `lost`.

    pass1: mean over tasks of the share of passes; best: share of tasks that at least one of `samples` rollouts
    solves. 95 % intervals over tasks. None where no task has a verdict.
    """
    valid = [task for task in tasks if task]
    shares = [fmean(task) for task in valid]
    best = [pass_at_k(len(task), sum(task), min(samples, len(task))) for task in valid]
    passed = sum(sum(task) for task in valid)
    low, high = mean_interval(shares) if shares else (None, None)
    best_low, best_high = wilson_interval(fmean(best), len(best)) if best else (None, None)
    return {
        "pass1": fmean(shares) if shares else None,
        "pass1_low": low,
        "pass1_high": high,
        "best": fmean(best) if best else None,
        "best_low": best_low,
        "best_high": best_high,
        "best_of": samples,
        "best_at": best_at(valid, samples=samples),
        "tasks": len(valid),
        "tasks_without_verdict": len(tasks) - len(valid),
        "verdicts": {"passed": passed, "failed": sum(map(len, valid)) - passed, "infra_error": lost},
        "seconds": seconds,
    }


def best_at(tasks: Sequence[Sequence[bool]], *, samples: int) -> dict[str, float]:
    """pass@k by k, for powers of two up to `samples` and `samples` itself: numbers of evaluations with different numbers
    of samples compare at the same k only. Unbiased, over the tasks that have at least k verdicts; a k without one is left out."""
    wanted = sorted({samples, *(2**power for power in range(1, 12) if 2**power < samples)})
    found = {k: [pass_at_k(len(task), sum(task), k) for task in tasks if len(task) >= k] for k in wanted}
    return {str(k): fmean(shares) for k, shares in found.items() if shares}


@dataclass(frozen=True, slots=True)
class Spent:
    """Resources of one rollout. For our own weights, every token of the episode counts as read once, and none as
    cached."""

    written: int
    read: int
    cached: int = 0
    seconds: float | None = None

    def cost(self, price: Mapping[str, float]) -> float:
        """Dollars at `price` per million tokens: `input`, `output`, and `cached` if it differs from `input`."""
        plain = price.get("input", 0.0)
        read = (self.read - self.cached) * plain + self.cached * price.get("cached", plain)
        return (self.written * price.get("output", 0.0) + read) / 1e6


def resources(rollouts: Sequence[Spent], *, price: Mapping[str, float]) -> dict[str, Any]:
    """Medians over rollouts with a verdict, and sums. Cost is None without a price."""
    if not rollouts:
        return {"tokens_p50": None, "seconds_p50": None, "cost_p50": None, "tokens": 0, "cost": None}
    costs = [spent.cost(price) for spent in rollouts]
    waited = [spent.seconds for spent in rollouts if spent.seconds is not None]
    priced = any(price.values())
    return {
        "tokens_p50": median(spent.written for spent in rollouts),
        "seconds_p50": round(median(waited), 3) if waited else None,
        "cost_p50": median(costs) if priced else None,
        "tokens": sum(spent.written for spent in rollouts),
        "cost": sum(costs) if priced else None,
    }
