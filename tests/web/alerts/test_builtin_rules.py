"""Rules that ship with the product: one for each detector, on until somebody switches it off."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.alerts.models import Alert, Notice, Rule
from composer_web.alerts.rules import builtin, services, watching
from composer_web.core.detectors import detectors
from composer_web.core.errors import UserError
from composer_web.runs import metrics
from composer_web.runs import services as runs
from composer_web.runs.models import Run

pytestmark = pytest.mark.django_db


def test_each_detector_has_a_rule_that_is_on(people: dict[str, User]) -> None:
    services.make_rule(actor=people["operator"], name="Run failed", kind="run_failed")
    assert builtin.ensure() == len(detectors())
    assert builtin.ensure() == 0
    rules = Rule.objects.filter(builtin=True)
    assert set(rules.values_list("detector", flat=True)) == {one.name for one in detectors()}
    assert all(rules.values_list("active", flat=True))
    assert rules.get(detector="run-failed").name == "Run failed (built-in)"


def test_a_builtin_rule_tells_once_and_is_over_with_its_cause(running: Run, people: dict[str, User]) -> None:
    builtin.ensure()
    metrics.record_many(run=running, rows=[(step, "groups/zero_signal", 1.0) for step in range(1, 9)])
    runs.set_progress(run=running, step=8)
    watching.look()
    alert = Alert.objects.get(rule__detector="zero-advantage")
    assert alert.about == f"run:{running.pk}" and alert.step == 8
    assert "100% of the groups" in alert.message and running.name in alert.message
    watching.look()
    assert Notice.objects.filter(alert=alert, user=people["operator"]).count() == 1
    metrics.record_many(run=running, rows=[(step, "groups/zero_signal", 0.0) for step in range(9, 17)])
    runs.set_progress(run=running, step=16)
    watching.look()
    alert.refresh_from_db()
    assert alert.resolved_at is not None


def test_it_is_switched_off_and_not_removed(people: dict[str, User]) -> None:
    builtin.ensure()
    rule = Rule.objects.get(detector="low-disk")
    with pytest.raises(UserError, match="switch it off instead"):
        services.remove_rule(rule=rule, actor=people["operator"])
    services.switch_rule(rule=rule, active=False, actor=people["operator"])
    builtin.ensure()
    assert not Rule.objects.get(detector="low-disk").active
    client = Client()
    client.force_login(people["operator"])
    html = client.get("/alerts/rules/").content.decode()
    assert f"/alerts/rules/{rule.pk}/on/" in html and f"/alerts/rules/{rule.pk}/remove/" not in html


def test_a_rule_of_ones_own_names_a_detector(people: dict[str, User], bearer: Any) -> None:
    wanted = {"name": "mine", "kind": "detector", "detector": "nothing"}
    client, headers = Client(), bearer("operator", "read", "operate")
    answer = client.post("/api/v1/alerts/rules", wanted, content_type="application/json", headers=headers)
    assert answer.status_code == 422 and "zero-advantage" in answer.json()["error"]["message"]
    wanted["detector"] = "zero-advantage"
    answer = client.post("/api/v1/alerts/rules", wanted, content_type="application/json", headers=headers)
    assert answer.status_code == 201 and answer.json()["builtin"] is False
