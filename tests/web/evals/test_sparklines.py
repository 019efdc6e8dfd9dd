"""pass@1 of a policy by version, in a column of evaluations: what compares stands in one line, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.evals import services
from composer_web.evals.models import Evaluation
from composer_web.evals.results.scoring import score
from composer_web.evals.results.sparklines import POINTS, sparklines
from composer_web.policies.models import Policy
from composer_web.tasks.models import Suite
from tests.web.seeded import count_queries
from trainer.config import HarnessConfig, SamplingConfig
from trainer.rollouts.interruption import Interruption

pytestmark = pytest.mark.django_db
USUAL: dict[str, Any] = {"tasks": 2, "samples": 4, "sampling": SamplingConfig(), "harness": HarnessConfig()}


@pytest.fixture
def suites(make_suite: Callable[..., Suite]) -> tuple[Suite, Suite]:
    return make_suite("held-out", 4), make_suite("second", 4)


def evaluated(policy: Policy, version: int, passed: int, *, suite: Suite, **given: Any) -> Evaluation:
    """A finished evaluation with `passed` of 4 rollouts of each task."""
    made = services.create_evaluation(
        policy=policy,
        version=version,
        suite=suite,
        **{**USUAL, **given},
    )
    services.mark_running(evaluation=made)
    rollouts = [[place < passed for place in range(4)]] * 2
    return services.mark_finished(evaluation=made, results=score(rollouts, samples=4, lost=0, seconds=1.0))


def test_a_curve_goes_by_version_up_to_its_own(policy: Policy, suites: tuple[Suite, Suite]) -> None:
    suite, _ = suites
    last = evaluated(policy, 8, 4, suite=suite)  # first evaluated, last of the curve
    first = evaluated(policy, 0, 1, suite=suite)
    middle = evaluated(policy, 4, 2, suite=suite)
    found = sparklines([one.pk for one in (first, middle, last)])
    assert found == {first.pk: [0.25], middle.pk: [0.25, 0.5], last.pk: [0.25, 0.5, 1.0]}
    assert sparklines([middle.pk]) == {middle.pk: [0.25, 0.5]}, "also of versions that are not on the page"
    assert sparklines([]) == {}


def test_only_what_compares_is_in_one_curve(policy: Policy, suites: tuple[Suite, Suite]) -> None:
    suite, second = suites
    other = Policy.objects.create(name="other", base_dir=policy.base_dir, toy=True)
    made = [
        evaluated(policy, 0, 1, suite=suite),
        evaluated(policy, 1, 2, suite=second),
        evaluated(policy, 2, 3, suite=suite, tasks=3),
        evaluated(policy, 3, 4, suite=suite, samples=2),
        evaluated(policy, 4, 1, suite=suite, sampling=SamplingConfig(temperature=0.5)),
        evaluated(policy, 5, 2, suite=suite, effort="high"),
        evaluated(policy, 6, 3, suite=suite, interruption=Interruption(after_turns=1)),
        evaluated(other, 7, 4, suite=suite),
    ]
    found = sparklines([one.pk for one in made])
    assert {pk: len(points) for pk, points in found.items()} == {one.pk: 1 for one in made}


def test_evaluations_without_a_score_have_no_point(policy: Policy, suites: tuple[Suite, Suite]) -> None:
    suite, _ = suites
    evaluated(policy, 0, 1, suite=suite)
    open_one = services.create_evaluation(policy=policy, version=1, suite=suite, **USUAL)
    failed = services.create_evaluation(policy=policy, version=2, suite=suite, **USUAL)
    services.mark_failed(evaluation=failed, cause="no engine")
    assert sparklines([open_one.pk, failed.pk]) == {}


def test_a_long_curve_keeps_its_newest_points(policy: Policy, suites: tuple[Suite, Suite]) -> None:
    suite, _ = suites
    made = [evaluated(policy, version, version % 5, suite=suite) for version in range(POINTS + 3)]
    (points,) = sparklines([made[-1].pk]).values()
    assert points == [(version % 5) / 4 for version in range(3, POINTS + 3)]


def test_the_column_is_chosen_and_costs_one_query(
    policy: Policy, suites: tuple[Suite, Suite], people: dict[str, User]
) -> None:
    suite, _ = suites
    for version in range(3):
        evaluated(policy, version, version, suite=suite)
    reader = Client()
    reader.force_login(people["viewer"])
    usual = reader.get("/evaluations/").content.decode()
    assert 'value="history"' in usual and 'class="spark"' not in usual
    html = reader.get("/evaluations/?cols=policy,history").content.decode()
    assert html.count('class="spark"') == 2, "one point is no line"
    assert "pass@1 from 0 to 0.5" in html and "pass@1 by version" in html
    queries = count_queries(reader, "/evaluations/?cols=policy,history")
    assert queries == count_queries(reader, "/evaluations/?cols=policy") + 1
    for version in range(3, 6):
        evaluated(policy, version, 1, suite=suite)
    assert count_queries(reader, "/evaluations/?cols=policy,history") == queries
