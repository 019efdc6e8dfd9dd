"""Numbers of an evaluation from its verdicts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean
from typing import Any

RESAMPLES = 1000


def score(tasks: Sequence[Sequence[bool]], *, samples: int, lost: int, seconds: float) -> dict[str, Any]:
    """`tasks[i]` are the passes of task i's valid rollouts (those without a verdict of the tests are left out, as `lost`).

    pass1: mean over tasks of the mean pass, with a 95 % interval by resampling tasks (rollouts of one task are not
    independent). best: share of tasks with at least one pass, of those that have all `samples` rollouts.
    """
    valid = [task for task in tasks if task]
    means = [fmean(task) for task in valid]
    complete = [task for task in valid if len(task) == samples]
    draw = random.Random(0)
    spread = sorted(fmean(draw.choices(means, k=len(means))) for _ in range(RESAMPLES)) if means else []
    passed = sum(sum(task) for task in valid)
    return {
        "pass1": fmean(means) if means else None,
        "pass1_low": spread[int(0.025 * RESAMPLES)] if spread else None,
        "pass1_high": spread[int(0.975 * RESAMPLES)] if spread else None,
        "best": fmean(any(task) for task in complete) if complete else None,
        "best_of": samples,
        "tasks": len(valid),
        "tasks_without_verdict": len(tasks) - len(valid),
        "verdicts": {"passed": passed, "failed": sum(map(len, valid)) - passed, "infra_error": lost},
        "seconds": seconds,
    }
