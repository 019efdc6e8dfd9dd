"""What rollouts weigh in training, as the pages say it: by the run's algorithm, expected before and trained after."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.core.artifacts import artifacts
from composer_web.policies.models import Policy
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch import advantages, services
from composer_web.rollouts.models import Group, Quarantine
from composer_web.runs import services as runs
from composer_web.tasks.models import Suite
from composer_web.ui.templatetags.ui import num
from tests.web.helpers import as_read
from tests.web.making import SMALL, claim, finish
from trainer.algorithms import ALGORITHMS
from trainer.config import ObjectiveConfig, RunConfig
from trainer.types import TrainGroup

pytestmark = pytest.mark.django_db
PASSES = [True, False, False, True, False]


@pytest.fixture
def played(policy: Policy, make_suite: Callable[..., Suite]) -> Callable[[str], Group]:
    """An accepted group of five of a run with this algorithm."""
    make_suite()

    def make(algorithm: str) -> Group:
        objective = ObjectiveConfig(algorithm=algorithm)  # type: ignore[arg-type]
        stage = SMALL.model_copy(update={"objective": objective, "group_size": len(PASSES)})
        run = runs.create_run(config=RunConfig(name="weighed", seed=3, stage=stage))
        runs.start_run(run=run)
        runs.mark_running(run=run, owner="trainer@test")
        runs.record_version(run=run, version=0)
        services.pump(run_id=run.pk)
        claimed = claim(Group.objects.filter(run=run).earliest("prompt_index"))
        assert finish(claimed.group, claimed.held, PASSES)
        return Group.objects.get(pk=claimed.group.pk)

    return make


@pytest.fixture
def page(people: dict[str, User]) -> Callable[[str], str]:
    client = Client()
    client.force_login(people["viewer"])
    return lambda path: as_read(client.get(path).content)


def row(html: str, name: str) -> list[str]:
    """Cells of one row of the group's table."""
    (found,) = re.findall(rf'<tr>\s?<th scope="row">(?:<[^>]*>)*{name}\b(?:(?!</tr>).)*?</th>(.*?)</tr>', html)
    return re.findall(r"<td>(.*?)</td>", found)


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_pages_give_the_advantage_of_the_algorithm(
    played: Callable[[str], Group], page: Callable[[str], str], algorithm: str
) -> None:
    group = played(algorithm)
    rewards = artifacts().get_model(group.train_key, TrainGroup).rewards
    wanted = [num(value) for value in ALGORITHMS[algorithm].advantages(rewards)]
    assert row(page(f"/groups/{group.pk}/"), "Expected advantage") == wanted
    rollouts = list(selectors.of_group(group))
    for rollout, advantage in zip(rollouts, wanted, strict=True):
        assert f"expected advantage {advantage}" in page(f"/rollouts/{rollout.pk}/")
    services.consume(run=group.run, group_ids=[group.pk], step=1)
    assert row(page(f"/groups/{group.pk}/"), "Advantage") == wanted
    assert f"trained with advantage {wanted[0]}" in page(f"/rollouts/{rollouts[0].pk}/")


def test_what_was_trained_stays_when_a_rollout_is_held_back_later(
    played: Callable[[str], Group], page: Callable[[str], str]
) -> None:
    group = played("rloo")
    services.consume(run=group.run, group_ids=[group.pk], step=1)
    before = row(page(f"/groups/{group.pk}/"), "Advantage")
    first = group.rollouts.earliest("sample")
    Quarantine.objects.create(rollout=first)
    html = page(f"/groups/{group.pk}/")
    assert row(html, "Advantage") == before
    assert "quarantined" in row(html, "Verdict")[0]
    assert f"trained with advantage {before[0]}" in page(f"/rollouts/{first.pk}/")


def test_groups_of_before_are_weighed_without_what_is_held(
    played: Callable[[str], Group], page: Callable[[str], str]
) -> None:
    group = played("grpo")
    Quarantine.objects.create(rollout=group.rollouts.earliest("sample"))
    Group.objects.filter(pk=group.pk).update(weights=None)
    rest = ALGORITHMS["grpo"].advantages([float(passed) for passed in PASSES[1:]])
    assert row(page(f"/groups/{group.pk}/"), "Expected advantage") == ["–", *map(num, rest)]
    services.consume(run=group.run, group_ids=[group.pk], step=1)
    assert row(page(f"/groups/{group.pk}/"), "Expected advantage")[0] == "–"


def test_nobody_trains_on_these(played: Callable[[str], Group]) -> None:
    group = played("composer")
    rollouts = list(selectors.of_group(group))
    group.state = "dropped"
    assert advantages.weights_of(group, rollouts) == {}
    assert advantages.weigh(None, {0: 1.0}) is None
    assert advantages.weigh(group.run, {}) is None
