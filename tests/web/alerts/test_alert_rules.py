"""Rules about findings and lost rollouts: what raises them, and what does not."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.alerts.models import Alert, Notice
from composer_web.alerts.rules import services, watching
from composer_web.rollouts.dispatch.services import pump
from composer_web.rollouts.models import Finding, Group, Rollout
from composer_web.runs.models import Run

pytestmark = pytest.mark.django_db


def found(run: Run, severity: str, **fields: Any) -> Finding:
    given = {
        "subject": "run",
        "rule": "edits_tests",
        "rule_version": 1,
        "summary": "it edits the tests",
        "key": severity,
    }
    return Finding.objects.create(run=run, severity=severity, **{**given, **fields})


def ended(group: Group, verdicts: list[str]) -> None:
    """More rollouts of the group, with these verdicts."""
    for verdict in verdicts:
        made = Rollout.objects.create(group=group, sample=1000 + Rollout.objects.count())
        lost = verdict == "infra_error"
        if not lost:
            Rollout.objects.filter(pk=made.pk).update(state="running")
        state = "lost" if lost else "graded"
        Rollout.objects.filter(pk=made.pk).update(state=state, verdict=verdict, finished_at=timezone.now())


def test_a_finding_of_its_severity_or_above_is_told_until_somebody_decides(
    people: dict[str, User], running: Run
) -> None:
    found(running, "high", key="before")
    rule = services.make_rule(actor=people["operator"], name="cheats", kind="finding", severity="medium")
    found(running, "low")
    assert watching.look() == 0, "what was there before the rule, and what is below its severity"
    told = found(running, "high")
    found(running, "medium")
    assert watching.look() == 2
    alert = Alert.objects.get(rule=rule, about=f"finding:{told.pk}")
    assert "high finding edits_tests: it edits the tests" in alert.message
    assert Notice.objects.filter(alert=alert, user=people["operator"]).count() == 1
    Finding.objects.filter(pk=told.pk).update(state="dismissed", decided_at=timezone.now())
    assert watching.look() == 1
    alert.refresh_from_db()
    assert alert.state == "resolved"


def test_findings_of_other_runs_are_left_alone(people: dict[str, User], running: Run) -> None:
    services.make_rule(actor=people["operator"], name="cheats", kind="finding", severity="low", run_name="another")
    found(running, "high")
    assert watching.look() == 0


def test_a_share_of_lost_rollouts_is_told_from_ten_on(people: dict[str, User], running: Run) -> None:
    services.make_rule(actor=people["operator"], name="lost", kind="infra_share", threshold=0.3, window=10)
    pump(run_id=running.pk)
    group = Group.objects.filter(run=running)[0]
    ended(group, ["infra_error"] * 4 + ["failed"] * 5)
    assert watching.look() == 0, "nine say nothing"
    ended(group, ["failed"])
    assert watching.look() == 1
    assert "4 of 10 rollouts of run" in Alert.objects.get().message
    ended(group, ["failed"] * 10)
    assert watching.look() == 0
