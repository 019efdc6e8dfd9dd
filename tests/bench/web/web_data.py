"""The installation that `tests.bench.web.web` looks at: many runs and metric points, one long trajectory really stored."""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping
from dataclasses import dataclass

from django.db import connection, transaction

from composer_web.accounts.models import User
from composer_web.core.artifacts import artifacts
from composer_web.rollouts.models import Rollout
from composer_web.runs.models import Run
from sandbox.grading.verdict.report import Verdict
from tests.bench.web.tables_data import BENCH, RUNS, Size
from tests.bench.web.tables_data import fill as fill_tables
from tests.browser import episodes

METRICS = 200
"""Names of metrics of a run."""
LONGEST = 10_000
"""Steps of the largest run."""
TURNS = 2_000

MORE_RUNS = """
INSERT INTO runs_run (name, kind, config, state, policy_in_id, policy_in_version, seed, code_version, step, steps_total,
                      policy_version, phase, latest, curve, failure, recoveries, created_at, started_at, finished_at)
SELECT 'earlier ' || n, kind, config, 'finished', policy_in_id, 0, n, code_version, 200, 200, 200, '', latest, curve, '', 0,
       now() - n * interval '3 hours', now() - n * interval '3 hours', now() - n * interval '2 hours'
FROM runs_run, generate_series(%(first)s, %(runs)s) n WHERE id = 1
"""
KEYS = """
INSERT INTO runs_metrickey (name) SELECT 'other/' || n FROM generate_series(1, %(names)s) n ON CONFLICT DO NOTHING
"""
POINTS = """
INSERT INTO runs_metric (run_id, key_id, step, value, at)
SELECT r.id, k.id, s, sin(s / 50.0) + random() / 10, r.started_at + s * interval '2 seconds'
FROM (SELECT id, started_at FROM runs_run WHERE id = ANY(%(ids)s) ORDER BY id) r,
     (SELECT id FROM runs_metrickey ORDER BY id LIMIT %(names)s) k, generate_series(%(after)s + 1, %(steps)s) s
ON CONFLICT DO NOTHING
"""
AT_ONCE = 50
"""Runs of one statement."""
HAVE = 200
"""Steps that the runs of `tables_data` have already."""


@dataclass(frozen=True, slots=True)
class World:
    user: User
    largest: int
    """Run with METRICS × LONGEST points."""
    trajectory: int
    """Rollout of TURNS turns."""
    said: str
    conditions: Mapping[str, object]


def world(arguments: argparse.Namespace) -> World:
    """What a migrated database holds; an empty one is filled."""
    user = User.objects.filter(username=BENCH).first() or _fill(arguments)
    rollout = Rollout.objects.filter(turns=TURNS).order_by("pk").first()
    assert rollout is not None, "the database was filled by something else"
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*), pg_database_size(current_database()) FROM runs_metric")
        points, size = cursor.fetchone()
    conditions = {
        "runs": Run.objects.count(),
        "metric_points": points,
        "rollouts": Rollout.objects.count(),
        "database_mb": size >> 20,
        "fsync": "off",
    }
    said = ", ".join(f"{name} {value}" for name, value in conditions.items())
    return World(user, _largest(), rollout.pk, said, conditions)


def _largest() -> int:
    return Run.objects.filter(state="running").order_by("pk").values_list("pk", flat=True)[0]


def _fill(arguments: argparse.Namespace) -> User:
    user = fill_tables(Size(arguments.tasks, arguments.rollouts))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(MORE_RUNS, {"first": RUNS + 1, "runs": max(arguments.runs, RUNS)})
        cursor.execute(KEYS, {"names": METRICS})
    ids = list(Run.objects.order_by("pk").values_list("pk", flat=True))
    largest = _largest()
    Run.objects.filter(pk=largest).update(step=LONGEST, steps_total=LONGEST * 2)
    _points([largest], steps=LONGEST, after=HAVE)
    each = max(0, (arguments.points - METRICS * LONGEST) // (len(ids) * METRICS))
    later = [pk for pk in ids if pk > RUNS]
    for at in range(0, len(later), AT_ONCE):
        _points(later[at : at + AT_ONCE], steps=each, after=0)
    _long_trajectory()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    return user


def _points(ids: list[int], *, steps: int, after: int) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(POINTS, {"ids": ids, "names": METRICS, "steps": steps, "after": after})


def _long_trajectory() -> None:
    """Give one recorded rollout a trajectory of TURNS turns."""
    rollout = Rollout.objects.filter(verdict="passed").order_by("pk").select_related("group__task_version").first()
    assert rollout is not None
    made = episodes.trajectory(
        rollout.group.task_version.bundle,
        sample=rollout.sample,
        verdict=Verdict.PASSED,
        version=1,
        rounds=(TURNS - 2) // 2,
        draw=random.Random(3),
    )
    assert len(made.turns) == TURNS
    artifacts().put_model(rollout.artifact_key, made)
    Rollout.objects.filter(pk=rollout.pk).update(turns=TURNS, output_tokens=made.output_tokens)
