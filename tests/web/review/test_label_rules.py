"""Labels that a run's own configuration names: answers that keep rollouts and tasks out, and answers that pay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from pydantic import ValidationError

from composer_web.accounts.models import User
from composer_web.accounts.services import create_user
from composer_web.core.artifacts import artifacts
from composer_web.core.errors import UserError
from composer_web.policies.models import Policy
from composer_web.review import annotating as annotations
from composer_web.review import services as review
from composer_web.review.models import Queue, QueueItem
from composer_web.review.questions import EXAMPLE
from composer_web.rollouts.dispatch import scheduling
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group, Rollout
from composer_web.rollouts.selectors import in_quarantine
from composer_web.runs import services
from composer_web.runs.models import Run
from composer_web.tasks.models import Suite
from composer_web.ui.templatetags.ui import num
from tests.web.conftest import PASSWORD
from tests.web.helpers import as_read
from tests.web.making import SMALL, claim, finish
from trainer.config import LabelRule, LabelsConfig, RunConfig
from trainer.toy.preset import toy_rl
from trainer.types import TrainGroup

pytestmark = pytest.mark.django_db
GOOD = {"verdict": "right", "quality": "5"}
POOR = {"verdict": "wrong", "quality": "1"}


@pytest.fixture
def queue(people: dict[str, User]) -> Queue:
    return review.create_queue(name="quality", questionnaire=EXAMPLE, reviewers=2, actor=people["operator"])


@pytest.fixture
def reviewers(people: dict[str, User]) -> tuple[User, User]:
    return people["reviewer"], create_user(username="second", password=PASSWORD, role="reviewer")


@pytest.fixture
def labelled_run(queue: Queue, policy: Policy, make_suite: Callable[..., Suite]) -> Callable[..., Run]:
    """A running run with these settings of `stage.labels`; four rollouts of each of its prompts."""
    make_suite()

    def make(**labels: Any) -> Run:
        stage = SMALL.model_copy(update={"labels": LabelsConfig(**labels), "group_size": 4})
        run = services.create_run(config=RunConfig(name="watched", seed=3, stage=stage))
        services.start_run(run=run)
        services.mark_running(run=run, owner="trainer@test")
        services.record_version(run=run, version=0)
        return run

    return make


def played(run: Run) -> Group:
    """The first prompt's group, accepted: two rollouts passed, two failed."""
    rollouts.pump(run_id=run.pk)
    claimed = claim(Group.objects.filter(run=run).earliest("prompt_index"))
    assert finish(claimed.group, claimed.held, [True, False, True, False])
    return Group.objects.get(pk=claimed.group.pk)


def say(queue: Queue, rollout: Rollout, answers: dict[str, Any], *people: User) -> None:
    item = QueueItem.objects.get(queue=queue, rollout=rollout)
    for person in people:
        review.label(item=item, answers=answers, actor=person)


def trained(group: Group) -> TrainGroup:
    group.refresh_from_db()
    return artifacts().get_model(group.train_key, TrainGroup)


def places(run: Run) -> dict[int, str]:
    return {place.prompt: place.state for place, _ in scheduling.entries(run)}


def test_an_answer_leaves_the_rollout_out(
    labelled_run: Callable[..., Run], queue: Queue, reviewers: tuple[User, User], people: dict[str, User]
) -> None:
    run = labelled_run(exclude="quality:flags=reward_hack, quality:verdict=wrong")
    group = played(run)
    review.fill(queue=queue, rollouts=group.rollouts.all(), actor=people["operator"])
    first, other = group.rollouts.order_by("sample")[:2]
    say(queue, first, POOR, reviewers[0])
    assert not in_quarantine(first), "the second reviewer has not said anything"
    say(queue, first, POOR, reviewers[1])
    assert in_quarantine(first)
    assert len(trained(group).rewards) == 3
    say(queue, other, GOOD, *reviewers)
    assert not in_quarantine(other)
    group.refresh_from_db()
    rollouts.consume(run=run, group_ids=[group.pk], step=1)
    third = group.rollouts.order_by("sample")[2]
    say(queue, third, POOR, *reviewers)
    assert not in_quarantine(third), "it was trained on"
    assert len(trained(group).rewards) == 3


def test_an_annotation_leaves_the_rollout_or_its_task_out(
    labelled_run: Callable[..., Run], people: dict[str, User]
) -> None:
    run = labelled_run(exclude="annotations:verdict=bad,annotations:tag=reward-hack")
    group = played(run)
    first, second, third = group.rollouts.order_by("sample")[:3]
    annotations.annotate(rollout=first, kind="verdict", value="unsure", actor=people["reviewer"])
    assert not in_quarantine(first)
    annotations.annotate(rollout=first, kind="verdict", value="bad", actor=people["reviewer"])
    assert in_quarantine(first)
    annotations.annotate(rollout=second, kind="verdict", value="good", actor=people["operator"])
    annotations.annotate(rollout=second, kind="verdict", value="bad", actor=people["reviewer"])
    assert not in_quarantine(second), "people disagree about it"
    annotations.annotate(rollout=third, kind="tag", value="reward-hack", actor=people["operator"])
    assert in_quarantine(third)
    assert len(trained(group).rewards) == 2
    wary = labelled_run(exclude_tasks="annotations:tag=reward-hack")
    rollouts.pump(run_id=wary.pk)
    assert not Group.objects.filter(run=wary, task_version=group.task_version_id).exists()
    for rule in ("annotations:comment=x", "annotations:verdict=great"):
        with pytest.raises(UserError, match="annotations:verdict"):
            labelled_run(exclude=rule)


def test_a_task_that_reviewers_call_unfair_is_not_dispatched(
    labelled_run: Callable[..., Run], queue: Queue, reviewers: tuple[User, User], people: dict[str, User]
) -> None:
    earlier = played(labelled_run())
    review.fill(queue=queue, rollouts=earlier.rollouts.all(), actor=people["operator"])
    for person in reviewers:
        say(queue, earlier.rollouts.earliest("sample"), {**POOR, "flags": ["bad_task"]}, person)
    plain, wary = labelled_run(), labelled_run(exclude_tasks="quality:flags=bad_task")
    for run in (plain, wary):
        rollouts.pump(run_id=run.pk)
    unfair = earlier.task_version_id
    assert Group.objects.filter(run=plain, task_version=unfair).exists()
    assert not Group.objects.filter(run=wary, task_version=unfair).exists()
    assert Group.objects.filter(run=wary).count() == Group.objects.filter(run=plain).count()


def test_answers_pay_and_groups_wait_for_them(
    labelled_run: Callable[..., Run], queue: Queue, reviewers: tuple[User, User], people: dict[str, User]
) -> None:
    run = labelled_run(reward="quality:quality", reward_weight=2.0)
    group = played(run)
    rows = list(group.rollouts.order_by("sample"))
    assert list(queue.items.order_by("rollout__sample").values_list("rollout", flat=True)) == [row.pk for row in rows]
    before = trained(group).rewards
    assert places(run)[group.prompt_index] == "open"
    for row in rows[:3]:
        say(queue, row, GOOD if row is rows[0] else POOR, *reviewers)
    assert places(run)[group.prompt_index] == "open", "one rollout lacks its reviewers"
    say(queue, rows[3], {**GOOD, "quality": "3"}, reviewers[0])
    say(queue, rows[3], POOR, reviewers[1])
    assert places(run)[group.prompt_index] == "accepted"
    made = trained(group)
    assert made.rewards == pytest.approx([before[0] + 2.0, before[1], before[2], before[3] + 0.5])
    mean = sum(made.rewards) / 4
    assert made.samples[0].advantages[-1] == pytest.approx(made.rewards[0] - mean)
    group.refresh_from_db()
    assert (group.mean_reward, group.best_reward) == pytest.approx((mean, max(made.rewards)))
    weights = [[reward, sample.advantages[-1]] for reward, sample in zip(made.rewards, made.samples, strict=True)]
    assert [group.weights[str(row.sample)] for row in rows] == weights
    page = Client()
    page.force_login(people["viewer"])
    html = page.get(f"/groups/{group.pk}/").content.decode()
    assert "Reward with the reviewers' part" in html
    assert "Expected advantage" in html
    html = as_read(page.get(f"/rollouts/{rows[0].pk}/").content)
    assert f"{num(made.rewards[0])} with the reviewers' reward. Group mean {num(mean)}" in html
    rows[0].refresh_from_db()
    assert rows[0].reward == pytest.approx(before[0]), "the record of the rollout stays as it was"
    say(queue, rows[0], POOR, *reviewers)  # changed minds count as long as the group is not trained on
    assert trained(group).rewards == pytest.approx([before[0], before[1], before[2], before[3] + 0.5])


def test_a_closed_queue_holds_nothing_back(
    labelled_run: Callable[..., Run], queue: Queue, people: dict[str, User]
) -> None:
    run = labelled_run(reward="quality:verdict")
    group = played(run)
    assert places(run)[group.prompt_index] == "open"
    review.set_closed(queue=queue, closed=True, actor=people["operator"])
    assert places(run)[group.prompt_index] == "accepted"


@pytest.mark.parametrize(
    ("labels", "field", "words"),
    [
        ({"exclude": "none:flags=x"}, "exclude", "no review queue 'none'"),
        ({"exclude": "quality:flags=x"}, "exclude", "reward_hack, bad_task, eager; found 'x'"),
        ({"exclude_tasks": "quality:note=x"}, "exclude_tasks", "answered in words"),
        ({"reward": "quality:flags"}, "reward", "gives no reward"),
    ],
)
def test_what_no_queue_asks_is_refused(
    draft: Run, queue: Queue, labels: dict[str, str], field: str, words: str
) -> None:
    stage = SMALL.model_copy(update={"labels": LabelsConfig(**labels)})
    with pytest.raises(UserError, match=words) as refusal:
        services.check_config(RunConfig(name="x", stage=stage))
    assert refusal.value.field == f"stage.labels.{field}"


def test_the_form_of_a_run_has_them(client: Client, draft: Run, people: dict[str, User]) -> None:
    client.force_login(people["operator"])
    text = client.get("/runs/new/").content.decode()
    assert all(f"stage.rl.labels.{name}" in text for name in LabelsConfig.model_fields)


def test_the_words_of_a_rule() -> None:
    found = LabelsConfig(exclude=" a:b=c ,my-queue:flags=reward_hack")
    assert found.excluded == (LabelRule("a", "b", "c"), LabelRule("my-queue", "flags", "reward_hack"))
    assert (LabelsConfig().excluded, LabelsConfig().paid) == ((), None)
    for wrong in ({"exclude": "a:b"}, {"exclude": "a=b"}, {"reward": "a"}, {"reward": "a:b", "reward_weight": 0}):
        with pytest.raises(ValidationError):
            toy_rl(labels=LabelsConfig(**wrong))
