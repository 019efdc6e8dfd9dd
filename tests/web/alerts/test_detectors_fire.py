"""Detectors of the installation fire once on rows that the services wrote: what they say, and where that leads."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from django.test import Client
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.alerts.models import Alert, Notice
from composer_web.alerts.rules import builtin, watching
from composer_web.core.models import WorkerHeartbeat
from composer_web.env import env
from composer_web.policies.models import Policy
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group
from composer_web.runs import services
from composer_web.tasks import reviewing
from composer_web.tasks.models import Suite
from sandbox.grading.verdict.outcomes import Cause, Loss
from tests.web.helpers import as_read
from tests.web.making import SMALL, claim, trajectory
from trainer.config import RunConfig

pytestmark = pytest.mark.django_db


class Told(NamedTuple):
    about: str
    message: str
    link: str
    """Address to which the row of the home page leads."""
    shown: str
    """Text of that row."""


@pytest.fixture
def told(people: dict[str, User]) -> Callable[[str], Told]:
    """told("low-disk"): the one alert of this rule after two looks, and its row on the home page."""

    def look(detector: str) -> Told:
        builtin.ensure()
        watching.look()
        watching.look()
        alert = Alert.objects.get(rule__detector=detector)
        assert alert.resolved_at is None
        assert Notice.objects.filter(alert=alert, user=people["operator"]).count() == 1, "told once"
        operator = Client()
        operator.force_login(people["operator"])
        html = as_read(operator.get("/").content)
        rows = re.findall(r'<a class="attention__row" href="([^"]+)"[^>]*>(.*?)</a>', html)
        title = alert.message.partition(" of run ")[0].partition(":")[0]
        ((link, inside),) = ((link, inside) for link, inside in rows if title in inside)
        assert operator.get(link.replace("&amp;", "&")).status_code == 200
        return Told(alert.about, alert.message, link, " ".join(re.sub(r"<[^>]+>", " ", inside).split()))

    return look


def test_a_disk_that_is_nearly_full(told: Callable[[str], Told], monkeypatch: pytest.MonkeyPatch) -> None:
    total = 200 * 2**30
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=total, used=total, free=2**30 // 2))
    found = told("low-disk")
    assert found.about == "disk" and found.link == "/system/"
    sentence = f"0.5 of 200 GiB are free below {env().data}"
    assert found.message.startswith(f"Low disk space: {sentence}. Delete old checkpoints")
    assert sentence[1:] in found.shown


def test_a_process_that_fell_silent_and_was_not_replaced(told: Callable[[str], Told]) -> None:
    now = timezone.now()
    silent = now - timedelta(minutes=10)
    for name, kind, beat in (
        ("roll@a/1", "rollout", silent),
        ("train@a/2", "train", silent),
        ("train@a/3", "train", now),
    ):
        WorkerHeartbeat.objects.create(name=name, kind=kind, pid=1, started_at=beat, beat_at=beat)
    found = told("worker-offline")
    assert found.about == "worker:roll@a/1" and found.link == "/system/"
    sentence = f"the rollout process roll@a/1 has not reported since {silent:%H:%M:%S} UTC"
    assert found.message.startswith(f"Process offline: {sentence}. The supervisor restarts it")
    assert sentence[1:] in found.shown


def test_a_run_that_loses_rollouts_to_infrastructure(
    told: Callable[[str], Told], policy: Policy, make_suite: Callable[..., Suite]
) -> None:
    make_suite()
    stage = SMALL.model_copy(update={"group_size": 12, "max_in_flight_groups": 2})
    run = services.start_run(run=services.create_run(config=RunConfig(name="unlucky", stage=stage)))
    services.mark_running(run=run, owner="trainer@test")
    services.record_version(run=run, version=0)
    rollouts.pump(run_id=run.pk)
    group = Group.objects.filter(run=run).earliest("prompt_index")
    down = Loss(Cause.ENGINE_FAILED, "inference is down")
    for _ in range(rollouts.MAX_ATTEMPTS):
        claimed = claim(group)
        passes = [True, False] * 5 + [None] * 2
        graded = [
            rollouts.Graded(trajectory(group, sample, passed=passed), f"groups/x/{sample}")
            for sample, passed in enumerate(passes)
        ]
        rollouts.fail(group=group, held=claimed.held, loss=down, graded=graded, infra_errors=[down] * 2)
    found = told("infra-errors")
    assert found.about == f"run:{run.pk}" and found.link == f"/runs/{run.pk}/rollouts/?verdict=infra_error"
    sentence = "2 of 12 rollouts of the last 30 min are infra errors"
    assert found.message.startswith(f"Infra errors of run {run.pk} (unlucky): {sentence}. Read the causes")
    assert sentence in found.shown and "unlucky" in found.shown


def test_tasks_about_which_reviewers_disagree(
    told: Callable[[str], Told], make_suite: Callable[..., Suite], people: dict[str, User]
) -> None:
    suite = make_suite()
    for member in suite.memberships.order_by("position")[:2]:
        for decision, reviewer in (("accept", "reviewer"), ("reject", "admin")):
            chosen = reviewing.as_decision(decision)
            reviewing.review(version=member.task_version, decision=chosen, actor=people[reviewer])
    found = told("disputed-tasks")
    assert found.about == f"project:{suite.project_id}" and found.link == "/tasks/disagreements/"
    assert found.message == "Reviewers disagree: reviewers disagree about 2 tasks. Read both reviews and decide."
    assert "eviewers disagree about 2 tasks" in found.shown
