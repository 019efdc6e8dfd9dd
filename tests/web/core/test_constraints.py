"""What the database refuses, whoever asks."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from composer_web.accounts.models import AuditEntry
from composer_web.accounts.services import audit
from composer_web.rollouts.dispatch import services
from composer_web.rollouts.models import Group, Rollout
from composer_web.runs.models import Run, TrainBatch
from composer_web.tasks.models import TaskVersion
from tests.web.making import claim, finish

pytestmark = pytest.mark.django_db


@pytest.fixture
def accepted(running: Run) -> Group:
    services.pump(run_id=running.pk)
    group = Group.objects.filter(run=running).earliest("prompt_index")
    assert finish(*_pair(group), [True, False])
    group.refresh_from_db()
    return group


def _pair(group: Group):  # type: ignore[no-untyped-def]
    claimed = claim(group)
    return claimed.group, claimed.held


def test_a_prompt_is_used_once(accepted: Group) -> None:
    other = TaskVersion.objects.exclude(groups__run=accepted.run).first()
    for changes in ({"task_version": other}, {"prompt_index": 99}):
        values = {"task_version": accepted.task_version, "prompt_index": accepted.prompt_index, **changes}
        with pytest.raises(IntegrityError), transaction.atomic():
            Group.objects.create(run=accepted.run, size=2, **values)


def test_a_group_has_one_owner(accepted: Group) -> None:
    with pytest.raises(IntegrityError, match="group_has_one_owner"), transaction.atomic():
        Group.objects.create(task_version=accepted.task_version, prompt_index=1, size=2)


def test_a_sample_has_one_rollout(accepted: Group) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Rollout.objects.create(group=accepted, sample=0)


@pytest.mark.parametrize(
    "change", [{"verdict": "failed"}, {"reward": 0.5}, {"artifact_key": "x"}, {"state": "dispatched", "verdict": ""}]
)
def test_a_verdict_never_changes(accepted: Group, change: dict[str, object]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Rollout.objects.filter(group=accepted, verdict="passed").update(**change)


def test_an_infra_error_has_no_reward(running: Run) -> None:
    services.pump(run_id=running.pk)
    rollout = Rollout.objects.earliest("pk")
    with pytest.raises(IntegrityError, match="rollout_infra_has_no_reward"), transaction.atomic():
        Rollout.objects.filter(pk=rollout.pk).update(state="lost", verdict="infra_error", reward=0.0)


def test_a_task_bundle_is_frozen(running: Run) -> None:
    version = TaskVersion.objects.earliest("pk")
    for change in ({"spec": {}}, {"bundle_hash": "0" * 64}):
        with pytest.raises(IntegrityError, match="may not change"), transaction.atomic():
            TaskVersion.objects.filter(pk=version.pk).update(**change)


def test_a_started_runs_configuration_is_frozen(running: Run) -> None:
    with pytest.raises(IntegrityError, match="may not change"), transaction.atomic():
        Run.objects.filter(pk=running.pk).update(seed=99)


def test_batches_and_audit_are_append_only(running: Run) -> None:
    TrainBatch.objects.create(run=running, step=1, group_ids=[1])
    audit(actor=None, action="test.entry")
    for model in (TrainBatch, AuditEntry):
        with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
            model.objects.all().delete()
