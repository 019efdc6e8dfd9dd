"""Trajectories go after their days, by the rules of a deletion that somebody asks for."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from composer_web.accounts.models import AuditEntry, User
from composer_web.core.models import Outbox
from composer_web.env import env
from composer_web.evals.models import Evaluation
from composer_web.review.annotating import annotate
from composer_web.rollouts.models import Group, Rollout
from composer_web.runs.deletion_models import FileDeletion
from composer_web.runs.models import Run
from composer_web.system.tasks import prune
from composer_web.tasks.models import Suite, TaskVersion
from tests.web.making import claim, finish

pytestmark = pytest.mark.django_db
Work = Callable[[], list[FileDeletion]]


@pytest.fixture
def days(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(env(), "trajectory_days", 30)
    return 30


def past(run: Run, days: int) -> None:
    Run.objects.filter(pk=run.pk).update(finished_at=timezone.now() - timedelta(days=days, minutes=1))


def test_by_default_they_are_kept_for_ever(ended: Run) -> None:
    past(ended, 10_000)
    prune()
    assert env().trajectory_days == 0 and not FileDeletion.objects.exists()


def test_after_their_days_they_go_and_annotated_ones_never(
    ended: Run, days: int, people: dict[str, User], work: Work
) -> None:
    first = Rollout.objects.filter(group__run=ended).first()
    annotate(rollout=first, kind="verdict", value="bad", actor=people["reviewer"])
    past(ended, days - 1)
    prune()
    assert work() == []
    past(ended, days)
    prune()
    (done,) = work()
    assert (done.run, done.kind, done.state, done.items, done.by) == (ended, "trajectories", "done", 7, "retention")
    assert not Rollout.objects.filter(pk=first.pk).exclude(deletion=None).exists()
    assert AuditEntry.objects.get(action="trajectories.expire").detail["days"] == days
    prune()  # what is left stays, and is not asked for every hour
    assert work() == [] and FileDeletion.objects.count() == 1


def test_those_of_evaluations_go_too_and_their_scores_stay(running: Run, days: int, work: Work) -> None:
    evaluation = Evaluation.objects.create(
        policy=running.policy_in, suite=Suite.objects.get(), tasks=1, samples=2, temperature=1.0
    )
    version = TaskVersion.objects.first()
    group = Group.objects.create(
        evaluation=evaluation, task_version=version, prompt_index=0, size=2, state="dispatched"
    )
    Rollout.objects.bulk_create(Rollout(group=group, sample=sample) for sample in (0, 1))
    Evaluation.objects.update(state="running")
    claimed = claim(group)
    finish(claimed.group, claimed.held, [True, False])
    long_ago = timezone.now() - timedelta(days=days + 1)
    Evaluation.objects.update(state="finished", finished_at=long_ago, results={"pass1": 0.5})
    prune()
    (done,) = work()
    assert (done.evaluation, done.run, done.state, done.items) == (evaluation, None, "done", 2)
    assert Evaluation.objects.get().results == {"pass1": 0.5}
    assert set(Rollout.objects.values_list("verdict", flat=True)) == {"passed", "failed"}


def test_what_no_worker_does_is_asked_for_again(ended: Run, days: int, work: Work) -> None:
    past(ended, days)
    prune()
    Outbox.objects.filter(task="runs.delete_files").delete()  # its message was lost
    prune()
    assert [one.state for one in work()] == ["done"]


def test_a_use_that_stands_against_it_delays_it(ended: Run, days: int, work: Work) -> None:
    past(ended, days)
    open_one = Evaluation.objects.create(
        run=ended,
        policy=ended.policy_in,
        suite=Suite.objects.get(),
        phase="during",
        tasks=1,
        samples=1,
        temperature=1.0,
    )
    prune()
    assert work() == []
    Evaluation.objects.filter(pk=open_one.pk).update(state="cancelled")
    prune()
    assert [one.items for one in work()] == [8]
