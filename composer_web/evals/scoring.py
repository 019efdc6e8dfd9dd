"""Numbers of an evaluation from its verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
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
