"""What workers write: metric points of steps, and finished rollouts with their trajectories, by a writer a core."""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # its models cannot be imported in a writer's process before Django is set up
    from tests.bench.web.web_data import World

NAMES = 40
STEPS = 250
"""Steps of one call: what a trainer that was cut off sends when it is back, and what an import sends."""
GROUP = 8
BACKLOG = 2_000
"""Groups that are dispatched to each writer before the clock runs (a run has a task once): more than it can finish."""
START_SECONDS = 120.0
Done = tuple[int, float]
"""How many, in how many seconds."""


def measure(arguments: argparse.Namespace, world: World) -> dict[str, float]:
    """Points and rollouts a second over `--seconds`, all writers together."""
    from composer_web.runs.models import Run

    writers = os.cpu_count() or 1
    runs = list(Run.objects.filter(state="running").exclude(pk=world.largest).values_list("pk", flat=True)[:writers])
    points = _together(_points, runs, arguments.seconds)
    return {
        "ingest_points_per_s": round(points),
        "rollouts_per_s": round(_together(_rollouts, runs, arguments.seconds)),
    }


def _together(work: Callable[[int, float], Done], runs: list[int], seconds: float) -> float:
    """What all writers did, a second of the slowest. Each has its process, its connection and its run."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(runs))
    with ProcessPoolExecutor(len(runs), mp_context=context, initializer=_start, initargs=(barrier,)) as pool:
        done = list(pool.map(work, runs, [seconds] * len(runs)))
    return sum(count for count, _ in done) / max(took for _, took in done)


_barrier: Barrier
"""A writer's process passes it when all are ready."""


def _start(barrier: Barrier) -> None:
    import django

    global _barrier
    _barrier = barrier
    django.setup()


def _clock(one: Callable[[int], int], seconds: float, most: float = math.inf) -> Done:
    """Call `one` with 0, 1, … until the time is over or `most` are done, from the moment that every writer is ready."""
    _barrier.wait(START_SECONDS)
    began = time.monotonic()
    done = index = 0
    while time.monotonic() - began < seconds and index < most:
        done += one(index)
        index += 1
    return done, time.monotonic() - began


def _points(pk: int, seconds: float) -> Done:
    from composer_web.runs import metrics
    from composer_web.runs.models import Run

    run = Run.objects.get(pk=pk)

    def one(index: int) -> int:
        first = 1_000 + index * STEPS
        return metrics.record_many(
            run=run, rows=[(first + s, f"metric/{n}", s * 0.5) for s in range(STEPS) for n in range(NAMES)]
        )

    return _clock(one, seconds)


def _rollouts(pk: int, seconds: float) -> Done:
    from django.db.models import Max

    from composer_web.core.artifacts import artifacts
    from composer_web.rollouts.dispatch import services
    from composer_web.rollouts.models import Group, Rollout, RolloutState
    from composer_web.tasks.models import TaskVersion
    from sandbox.grading.verdict.report import Verdict
    from tests.browser import episodes

    used = Group.objects.filter(run_id=pk).values("task_version")
    versions = list(TaskVersion.objects.exclude(pk__in=used).select_related("task").order_by("pk")[:BACKLOG])
    newest = Group.objects.filter(run_id=pk).aggregate(newest=Max("prompt_index"))["newest"]  # of a kept database
    first = max(10_000_000, (newest or 0) + 1)
    made = Group.objects.bulk_create(
        [
            Group(
                run_id=pk,
                task_version=version,
                prompt_index=first + n,
                size=GROUP,
                state="dispatched",
                dispatched_version=1,
            )
            for n, version in enumerate(versions)
        ]
    )
    Rollout.objects.bulk_create(
        [Rollout(group=group, sample=s, state=RolloutState.DISPATCHED) for group in made for s in range(GROUP)],
        batch_size=20_000,
    )
    draw = random.Random(pk)
    samples = [
        episodes.trajectory(
            versions[0].bundle, sample=s, verdict=Verdict.PASSED if s % 2 else Verdict.FAILED, version=1, draw=draw
        )
        for s in range(GROUP)
    ]

    def one(index: int) -> int:
        group = made[index]
        claim = services.claim(group_id=group.pk, owner=f"bench/{pk}", seconds=60)
        assert claim is not None, f"group {group.pk} cannot be claimed"
        graded = []
        for trajectory in samples:
            key = f"groups/{group.pk}/1/{trajectory.sample}.json.zst"
            artifacts().put_model(key, trajectory)
            graded.append(services.Graded(trajectory, key))
        accepted = services.accept(
            group=claim.group, held=claim.held, graded=graded, train_key="", oldest_version=1, infra_errors=()
        )
        assert accepted
        return GROUP

    return _clock(one, seconds, len(made))
