"""With what an evaluation's page offers to compare it: evaluations of its run first, and nobody else's by itself."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.evals.models import Evaluation
from composer_web.evals.results.scoring import score
from composer_web.evals.services import create_evaluation, mark_finished, mark_running
from composer_web.runs import services
from composer_web.runs.models import Run
from composer_web.tasks.models import Suite
from tests.web.helpers import as_read

pytestmark = pytest.mark.django_db


@pytest.fixture
def held_out(make_suite: Callable[..., Suite]) -> Suite:
    return make_suite("held-out", 2)


def finished(run: Run | None, like: Run, suite: Suite, version: int) -> Evaluation:
    made = create_evaluation(policy=like.policy_in, run=run, version=version, suite=suite, tasks=2, samples=2)
    mark_running(evaluation=made)
    return mark_finished(evaluation=made, results=score([[True, False]] * 2, samples=2, lost=0, seconds=1.0))


def offered(evaluation: Evaluation, people: dict[str, User]) -> list[tuple[str, list[str]]]:
    """Groups of the choice with the evaluations in them; what is chosen before anybody chooses stands first."""
    viewer = Client()
    viewer.force_login(people["viewer"])
    html = as_read(viewer.get(f"/evaluations/{evaluation.pk}/").content)
    (choice,) = re.findall(r'<select name="before" required>(.*?)</select>', html)
    assert "selected" not in choice
    first = re.findall(r'^<option value="([^"]*)">([^<]*)</option>', choice.strip())
    groups = re.findall(r'<optgroup label="([^"]+)">(.*?)</optgroup>', choice)
    return [(name, [value]) for value, name in first] + [
        (label, re.findall(r'<option value="(\d+)"', inside)) for label, inside in groups
    ]


def test_evaluations_of_the_same_run_come_first(running: Run, held_out: Suite, people: dict[str, User]) -> None:
    other = services.create_run(config=running.configuration)
    mine = [finished(running, running, held_out, version) for version in range(3)]
    theirs = [finished(run, running, held_out, 0) for run in (other, None)]
    assert offered(mine[1], people) == [
        ("This run", [str(mine[2].pk), str(mine[0].pk)]),
        ("Other runs and policies", [str(theirs[1].pk), str(theirs[0].pk)]),
    ]


def test_another_runs_evaluation_is_never_chosen_by_itself(
    running: Run, held_out: Suite, people: dict[str, User]
) -> None:
    other = services.create_run(config=running.configuration)
    mine, theirs = finished(running, running, held_out, 0), finished(other, running, held_out, 0)
    choose = ("Choose an evaluation", [""])
    assert offered(mine, people) == [choose, ("Other runs and policies", [str(theirs.pk)])]
    alone = finished(None, running, held_out, 0)
    assert offered(alone, people) == [choose, ("Same tasks", [str(theirs.pk), str(mine.pk)])]
