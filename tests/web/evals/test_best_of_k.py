"""One K a curve: evaluations with different numbers of samples are never joined in one line."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import pytest
from django.db import connection

from composer_web.evals.models import Evaluation
from composer_web.evals.results.scoring import best_at, score
from composer_web.evals.services import for_version, mark_finished, mark_running
from composer_web.policies.models import Policy
from composer_web.runs import metrics, services
from composer_web.runs.charts.panels import RL
from composer_web.runs.charts.series import buckets
from composer_web.runs.models import Run
from composer_web.tasks.models import Suite
from tests.web.making import SMALL
from trainer.config import RunConfig

SOLVED_ONCE_IN_FOUR = [True, False, False, False]
"""A constant policy: best of 2 is 1/2 of such samples, best of 8 of two of them is higher."""


@pytest.fixture
def run(policy: Policy, make_suite: Callable[..., Suite]) -> Run:
    make_suite()
    make_suite("held-out", 2)
    stage = SMALL.model_copy(update={"steps": 4, "eval_suite": "held-out", "eval_every": 2, "eval_samples": 8})
    made = services.create_run(config=RunConfig(name="evaluated", stage=stage))
    services.start_run(run=made)
    services.mark_running(run=made, owner="trainer@test")
    return made


def evaluate(run: Run, version: int) -> Evaluation:
    made = for_version(run=run, version=version)
    assert made is not None
    mark_running(evaluation=made)
    tasks = [(SOLVED_ONCE_IN_FOUR * 2)[: made.samples], (SOLVED_ONCE_IN_FOUR * 2)[-made.samples :]]
    return mark_finished(evaluation=made, results=score(tasks, samples=made.samples, lost=0, seconds=1.0))


def points(run: Run, name: str) -> dict[int, float]:
    return {bucket.last: bucket.value for bucket in buckets(run, [name])[name]}


@pytest.mark.django_db
def test_each_curve_of_a_run_has_one_k(run: Run) -> None:
    assert [evaluate(run, version).samples for version in (0, 2, 4)] == [8, 2, 8]
    assert sorted(points(run, "eval/best_of_k")) == [0, 4]
    assert sorted(points(run, "eval/best_of/8")) == [0, 4]
    assert sorted(points(run, "eval/best_of/2")) == [0, 2, 4]
    assert points(run, "eval/best_of/2")[0] == pytest.approx(1 - (6 / 8) * (5 / 7))
    run.refresh_from_db()
    panel = next(panel for panel in RL if panel.title == "Held-out evaluation").of_run(run.latest)
    assert dict(zip(panel.keys, panel.labels, strict=True)) == {
        "eval/pass1": "pass@1", "eval/best_of/2": "best of 2", "eval/best_of/4": "best of 4", "eval/best_of/8": "best of 8",
    }  # fmt: skip


@pytest.mark.django_db
def test_curves_of_older_runs_are_taken_apart(run: Run) -> None:
    for version in (0, 2):
        made = evaluate(run, version)
        metrics.record(run=run, step=version, values={"eval/best_of_k": 0.9 if made.samples == 8 else 0.44})
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM runs_metric USING runs_metrickey k WHERE k.id = key_id AND k.name LIKE 'eval/best_of/%%'"
        )
        move = importlib.import_module("composer_web.evals.migrations.0008_best_of_k").MOVE
        cursor.execute(move)
        cursor.execute(move)
    assert points(run, "eval/best_of_k") == points(run, "eval/best_of/8") == {0: 0.9}
    assert points(run, "eval/best_of/2") == {2: 0.44}
    run.refresh_from_db()
    assert run.latest["eval/best_of_k"] == 0.9


def test_a_k_counts_the_tasks_that_have_as_many_verdicts() -> None:
    assert best_at([[True, False], [False]], samples=2) == {"2": 1.0}
    assert best_at([[False]], samples=2) == {}
    assert best_at([[True]], samples=1) == {"1": 1.0}
