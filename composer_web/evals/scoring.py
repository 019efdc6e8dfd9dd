"""Numbers of an evaluation from its verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from trainer.stages.evaluate import mean_interval, pass_at_k, wilson_interval


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
        "tasks": len(valid),
        "tasks_without_verdict": len(tasks) - len(valid),
        "verdicts": {"passed": passed, "failed": sum(map(len, valid)) - passed, "infra_error": lost},
        "seconds": seconds,
    }


def resources(rollouts: Sequence[tuple[int, int, float | None]], *, price: Mapping[str, float]) -> dict[str, Any]:
    """Medians over rollouts with a verdict, each (policy tokens, all tokens, wall seconds).

    Cost is dollars of one rollout at `price` (dollars for a million tokens, `input` and `output`), every token of the
    episode read once; None without a price.
    """
    if not rollouts:
        return {"tokens_p50": None, "seconds_p50": None, "cost_p50": None, "tokens": 0, "cost": None}
    costs = [
        (own * price.get("output", 0.0) + (whole - own) * price.get("input", 0.0)) / 1e6 for own, whole, _ in rollouts
    ]
    waited = [seconds for _, _, seconds in rollouts if seconds is not None]
    priced = any(price.values())
    return {
        "tokens_p50": median(own for own, _, _ in rollouts),
        "seconds_p50": round(median(waited), 3) if waited else None,
        "cost_p50": median(costs) if priced else None,
        "tokens": sum(own for own, _, _ in rollouts),
        "cost": sum(costs) if priced else None,
    }
