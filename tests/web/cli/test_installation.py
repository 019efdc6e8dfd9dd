"""Commands on promotion, the gateway, alerts, quotas and the audit log: each command against the real API."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer_web.accounts.models import Project, User
from composer_web.accounts.projects import create_project
from composer_web.alerts.models import Delivery, Notice, Rule
from composer_web.alerts.rules import services as alerts
from composer_web.alerts.rules import watching
from composer_web.gateway.models import Session, SignalRow
from composer_web.gateway.serving import recording
from composer_web.policies.models import Policy
from composer_web.policies.promotion import services as promotion
from composer_web.quotas.models import Quota
from composer_web.runs.models import Run
from composer_web.runs.services import mark_failed
from tests.web.alerts.test_alerts import Receiver, receiver
from tests.web.cli.support import Cli, data, error
from tests.web.evals.test_evals_promotion import held_out, versions

__all__ = ["held_out", "receiver", "versions"]  # fixtures
pytestmark = pytest.mark.django_db


def test_promotions(versions: Policy, cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("promotions", "list") == (0, "nothing\n")
    assert data(cli("gateway", "get", "--json"))["promoted"] is None
    (made,) = data(cli("promotions", "create", "base@1", "--note", "first", "--json"))
    assert (made["promoted"], made["kind"], made["note"], made["created_by"]) == (
        "base@1",
        "promote",
        "first",
        "operator",
    )
    assert cli("promotions", "delete", "--json")[0] == 1
    assert error(capsys)["code"] == "conflict"
    (made,) = data(cli("canaries", "create", "base@2", "0.25", "--json"))
    assert (made["canary"], made["canary_share"]) == ("base@2", 0.25)
    status = data(cli("gateway", "get", "--json"))
    assert (status["promoted"], status["canary"], status["canary_share"]) == ("base@1", "base@2", 0.25)
    assert data(cli("canaries", "stop", "--json"))[0]["canary"] is None
    data(cli("promotions", "create", "base@2", "--json"))
    assert data(cli("promotions", "delete", "--note", "worse in use", "--json"))[0]["promoted"] == "base@1"
    kinds = [one["kind"] for one in data(cli("promotions", "list", "--json"))]
    assert kinds == ["rollback", "promote", "end", "canary", "promote"]
    assert "base@1" in cli("promotions", "list", "--limit", "1")[1]
    now = promotion.current()
    assert now is not None and now.version == 1


def test_a_gate_from_a_file(
    versions: Policy, held_out: object, cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gate.json"
    file.write_text('{"rules": [{"suite": "held-out", "min_score": 0.5}]}')
    assert data(cli("gate", "update", str(file), "--json"))["rules"][0]["min_score"] == 0.5
    assert data(cli("gate", "get", "--json"))["rules"][0]["suite"] == "held-out"
    assert cli("promotions", "create", "base@1", "--json")[0] == 1
    assert error(capsys)["code"] == "gate_shut"
    assert cli("gate", "update", str(tmp_path / "none"))[0] == 2


def test_sessions_of_the_gateway(
    exchange: Callable[..., recording.Exchange],
    line: Callable[[str, str], Cli],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, user in (("a", "ada"), ("b", "ada"), ("c", "bob")):
        recording.record(exchange(f"Fix {name}", session=name, user=user))
    cli, client = line("operator", "operate"), line("viewer", "gateway")
    assert [one["client_id"] for one in data(cli("sessions", "list", "--json"))] == ["c", "b", "a"]
    (found,) = data(cli("sessions", "list", "--q", "fix b", "--json"))
    pk = str(found["id"])
    assert data(cli("sessions", "get", pk, "--json"))["recorded"][0]["text"] == "done"
    assert cli("sessions", "list", "--signal", "smile", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"signal"}

    assert data(client("signals", "create", "b", "accept", "--turn", "0", "--signal-id", "1", "--json")) == [
        {"new": 1, "known": 0}
    ]
    again = client("signals", "create", "b", "accept", "--turn", "0", "--signal-id", "1", "--json")
    assert data(again) == [{"new": 0, "known": 1}]
    assert client("signals", "create", "b", "edit_kept", "--value", "0.5")[0] == 2
    assert "--after" in capsys.readouterr().err
    data(client("signals", "create", "b", "edit_kept", "--value", "0.5", "--after", "2 commits", "--json"))
    assert SignalRow.objects.count() == 2
    assert cli("signals", "create", "b", "accept")[0] == 1, "the scope of its own"
    assert [one["client_id"] for one in data(cli("sessions", "list", "--signal", "accept", "--json"))] == ["b"]

    file = tmp_path / "sessions.jsonl"
    assert cli("exports", "create", "sessions", "-o", str(file)) == (0, "")
    assert [json.loads(row)["client_id"] for row in file.read_text().splitlines()] == ["c", "b", "a"]
    (asked,) = data(cli("exports", "list", "--json"))
    assert (asked["what"], asked["rows"]) == ("sessions", 3)
    assert json.loads(cli("sessions", "get", pk, "--format", "atif")[1])["agent"]["name"] == "gateway"
    assert line("viewer", "read")("exports", "create", "sessions", "--json")[0] == 1, "reviewers may"
    assert error(capsys)["code"] == "forbidden"

    assert data(client("sessions", "delete", "--own", "a", "--json")) == {"deleted": "a"}
    assert data(cli("sessions", "delete", pk, "--json")) == {"deleted": int(pk)}
    assert data(cli("sessions", "delete", "--user", "bob", "--json")) == [{"sessions": 1}]
    assert not Session.objects.exists()
    assert cli("exports", "get", str(asked["id"]), "--json")[0] == 1, "the file went with them"
    assert "ask for the export again" in error(capsys)["message"]


def test_how_the_gateway_behaves(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    changed = data(cli("gateway", "update", "retention_days=7", "recording=true", "--json"))
    assert (changed["retention_days"], changed["recording"]) == (7, True)
    assert data(cli("gateway", "get", "--json"))["settings"] == changed
    assert cli("gateway", "update", "retention_days=0", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"retention_days"}
    assert cli("gateway", "update", "retention_days")[0] == 2


def test_alerts_from_rule_to_acknowledgement(running: Run, cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    (rule,) = data(
        cli("alert-rules", "create", "failed", "run_failed", "--role", "viewer", "--email", "a@b.example", "--json")
    )
    assert Rule.objects.get(pk=rule["id"]).emails == ["a@b.example"]
    assert cli("alert-rules", "create", "loss", "metric", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"metric"}
    words = ("--metric", "loss", "--threshold", "1.5", "--comparison", "above", "--window", "3")
    data(cli("alert-rules", "create", "loss", "metric", *words, "--json"))
    assert [one["name"] for one in data(cli("alert-rules", "list", "--json"))] == ["failed", "loss"]
    mark_failed(run=running, cause="out of memory")
    watching.look()
    (alert,) = data(cli("alerts", "list", "--state", "open", "--json"))
    assert (alert["about"], alert["rule_id"]) == (f"run:{running.pk}", rule["id"])
    (notice,) = data(cli("notices", "list", "--unread", "--json"))
    assert (notice["rule"], notice["alert_id"]) == ("failed", alert["id"])
    assert data(cli("notices", "update", str(notice["id"]), "--json")) == [{"read": 1}]
    assert data(cli("notices", "list", "--unread", "--json")) == []
    others = Notice.objects.exclude(user__username="operator")
    assert others.filter(read_at=None).count() == others.count() == 3
    assert cli("notices", "update", str(others[0].pk), "--json")[0] == 1, "somebody else's"
    assert error(capsys)["code"] == "not_found"
    assert data(cli("notices", "update", "--json")) == [{"read": 0}]

    (delivery,) = data(cli("deliveries", "list", "--json"))
    assert (delivery["email"], delivery["state"]) == ("a@b.example", "waiting")
    assert cli("deliveries", "start", str(delivery["id"]), "--json")[0] == 1
    assert error(capsys)["code"] == "conflict"
    Delivery.objects.update(state="failed", tries=6)
    assert data(cli("deliveries", "start", str(delivery["id"]), "--json"))[0]["tries"] == 0

    pk = str(rule["id"])
    assert data(cli("alert-rules", "stop", pk, "--json"))[0]["active"] is False
    assert data(cli("alerts", "list", "--state", "open", "--json")) == []
    assert data(cli("alert-rules", "start", pk, "--json"))[0]["active"] is True
    assert data(cli("alert-rules", "delete", pk, "--json")) == {"deleted": rule["id"]}
    assert [row.name for row in Rule.objects.all()] == ["loss"]


def test_webhooks(receiver: Receiver, cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    made = data(
        cli("webhooks", "create", "ci", receiver.url, "--event", "run.finished", "--event", "run.failed", "--json")
    )
    assert made["secret"].startswith("whsec_") and made["events"] == ["run.finished", "run.failed"]
    pk = str(made["id"])
    assert data(cli("webhooks", "update", pk, "--event", "policy.promoted", "--json"))[0]["events"] == [
        "policy.promoted"
    ]
    assert cli("webhooks", "update", pk, "--event", "policy", "--json")[0] == 1
    assert "events.0" in error(capsys)["fields"]
    assert data(cli("webhooks", "stop", pk, "--json"))[0]["active"] is False
    assert data(cli("webhooks", "start", pk, "--json"))[0]["active"] is True
    assert data(cli("deliveries", "create", pk, "--json"))[0]["webhook_id"] == made["id"]
    (shown,) = data(cli("webhooks", "list", "--json"))
    assert shown["name"] == "ci" and "secret" not in shown
    assert cli("webhooks", "create", "inside", "http://10.0.0.7/", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"url"}


def test_quotas(people: dict[str, User], line: Callable[[str, str], Cli], capsys: pytest.CaptureFixture[str]) -> None:
    project = create_project(slug="ours", name="Ours", actor=people["admin"])
    cli = line("admin", "admin")
    (made,) = data(cli("quotas", "update", "project:ours", "--gpus", "4", "--gpu-share", "0.5", "--json"))
    assert (made["project"], made["gpus"], made["gpu_share"], made["storage_gib"]) == ("ours", 4, 0.5, None)
    data(cli("quotas", "update", "person:operator", "--concurrent-rollouts", "64", "--json"))
    data(cli("quotas", "update", "everybody", "--storage-gib", "10", "--json"))
    shown: list[dict[str, Any]] = data(cli("quotas", "list", "--json"))
    assert [(one["username"], one["project"]) for one in shown] == [("", "ours"), ("operator", ""), ("", "")]
    data(cli("quotas", "update", "project:ours", "--json"))
    assert not Quota.objects.filter(project=Project.objects.get(pk=project.pk)).exists(), "no limit is no quota"
    assert cli("quotas", "update", "ours", "--gpus", "1")[0] == 2
    assert "person:NAME" in capsys.readouterr().err
    assert cli("quotas", "update", "everybody", "--gpus", "0", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"gpus"}
    assert line("operator", "operate")("quotas", "update", "everybody", "--gpus", "1")[0] == 1, "admins do"


def test_the_audit_log(
    people: dict[str, User], line: Callable[[str, str], Cli], capsys: pytest.CaptureFixture[str]
) -> None:
    cli = line("admin", "admin")
    rule = alerts.make_rule(actor=people["operator"], name="failed", kind="run_failed")
    alerts.switch_rule(rule=rule, active=False, actor=people["operator"])
    found = data(cli("audit", "list", "--who", "operator", "--action", "alert_rule.", "--json"))
    assert [one["action"] for one in found] == ["alert_rule.off", "alert_rule.create"]
    assert found[0]["changes"][0]["after"] == {"active": False}
    assert data(cli("audit", "list", "--target", f"alert_rule:{rule.pk}", "--until", "2001-01-01", "--json")) == []
    assert "alert_rule.off" in cli("audit", "list")[1]
    assert cli("audit", "list", "--since", "yesterday", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"since"}
    assert line("operator", "operate")("audit", "list")[0] == 1, "admins do"
