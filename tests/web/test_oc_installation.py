"""`oc` on promotion, the gateway, alerts, quotas and the audit log: each command against the real API."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer_web.accounts.models import Project, User
from composer_web.accounts.projects import create_project
from composer_web.accounts.services import create_token
from composer_web.alerts import services as alerts
from composer_web.alerts import watching
from composer_web.alerts.models import Delivery, Notice, Rule
from composer_web.gateway import recording
from composer_web.gateway.models import Session, SignalRow
from composer_web.ops.models import Quota
from composer_web.policies import promotion
from composer_web.policies.models import Policy
from composer_web.runs.models import Run
from composer_web.runs.services import mark_failed
from oc.cli import main
from tests.web.test_alerts import Receiver, receiver
from tests.web.test_evals_promotion import held_out, versions
from tests.web.test_oc import Oc, connected, data, oc
from tests.web.test_oc_curation import error

__all__ = ["held_out", "oc", "receiver", "versions"]  # fixtures
pytestmark = pytest.mark.django_db


@pytest.fixture
def line(people: dict[str, User]) -> Callable[[str, str], Oc]:
    """line(role, scope): the command line of that person."""

    def of(role: str, scope: str) -> Oc:
        _, secret = create_token(user=people[role], name="oc", scopes=[scope])

        def call(*words: str) -> tuple[int, str]:
            out = io.StringIO()
            return main(words, client=connected(secret), out=out), out.getvalue()

        return call

    return of


def test_promotions(versions: Policy, oc: Oc, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert oc("promotions", "list") == (0, "nothing\n")
    assert data(oc("gateway", "status", "--json"))["promoted"] is None
    (made,) = data(oc("promotions", "promote", "base@1", "--note", "first", "--json"))
    assert (made["promoted"], made["kind"], made["note"], made["created_by"]) == (
        "base@1",
        "promote",
        "first",
        "operator",
    )
    assert oc("promotions", "rollback", "--json")[0] == 1
    assert error(capsys)["code"] == "conflict"
    (made,) = data(oc("promotions", "canary", "base@2", "0.25", "--json"))
    assert (made["canary"], made["canary_share"]) == ("base@2", 0.25)
    status = data(oc("gateway", "status", "--json"))
    assert (status["promoted"], status["canary"], status["canary_share"]) == ("base@1", "base@2", 0.25)
    assert data(oc("promotions", "end-canary", "--json"))[0]["canary"] is None
    data(oc("promotions", "promote", "base@2", "--json"))
    assert data(oc("promotions", "rollback", "--note", "worse in use", "--json"))[0]["promoted"] == "base@1"
    kinds = [one["kind"] for one in data(oc("promotions", "list", "--json"))]
    assert kinds == ["rollback", "promote", "end", "canary", "promote"]
    assert "base@1" in oc("promotions", "list", "--limit", "1")[1]
    now = promotion.current()
    assert now is not None and now.version == 1


def test_a_gate_from_a_file(
    versions: Policy, held_out: object, oc: Oc, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gate.json"
    file.write_text('{"rules": [{"suite": "held-out", "least": 0.5}]}')
    assert data(oc("promotions", "set-gate", str(file), "--json"))["rules"][0]["least"] == 0.5
    assert data(oc("promotions", "gate", "--json"))["rules"][0]["suite"] == "held-out"
    assert oc("promotions", "promote", "base@1", "--json")[0] == 1
    assert error(capsys)["code"] == "gate_shut"
    assert oc("promotions", "set-gate", str(tmp_path / "none"))[0] == 2


def test_sessions_of_the_gateway(
    exchange: Callable[..., recording.Exchange],
    line: Callable[[str, str], Oc],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, user in (("a", "ada"), ("b", "ada"), ("c", "bob")):
        recording.record(exchange(f"Fix {name}", session=name, user=user))
    oc, client = line("operator", "operate"), line("viewer", "gateway")
    assert [one["client_id"] for one in data(oc("gateway", "sessions", "--json"))] == ["c", "b", "a"]
    (found,) = data(oc("gateway", "sessions", "--q", "fix b", "--json"))
    pk = str(found["id"])
    assert data(oc("gateway", "show", pk, "--json"))["recorded"][0]["text"] == "done"
    assert oc("gateway", "sessions", "--signal", "smile", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"signal"}

    assert data(client("gateway", "signal", "b", "accept", "--turn", "0", "--signal-id", "1", "--json")) == [
        {"new": 1, "known": 0}
    ]
    again = client("gateway", "signal", "b", "accept", "--turn", "0", "--signal-id", "1", "--json")
    assert data(again) == [{"new": 0, "known": 1}]
    assert client("gateway", "signal", "b", "edit_kept", "--value", "0.5")[0] == 2
    assert "--after" in capsys.readouterr().err
    data(client("gateway", "signal", "b", "edit_kept", "--value", "0.5", "--after", "2 commits", "--json"))
    assert SignalRow.objects.count() == 2
    assert oc("gateway", "signal", "b", "accept")[0] == 1, "the scope of its own"
    assert [one["client_id"] for one in data(oc("gateway", "sessions", "--signal", "accept", "--json"))] == ["b"]

    file = tmp_path / "sessions.jsonl"
    assert oc("gateway", "export", "-o", str(file)) == (0, "")
    assert [json.loads(row)["client_id"] for row in file.read_text().splitlines()] == ["c", "b", "a"]
    (asked,) = data(oc("exports", "list", "--json"))
    assert (asked["what"], asked["rows"]) == ("sessions", 3)
    assert json.loads(oc("gateway", "export", "--session", pk)[1])["agent"]["name"] == "gateway"
    assert line("viewer", "read")("gateway", "export", "--json")[0] == 1, "reviewers may"
    assert error(capsys)["code"] == "forbidden"

    assert data(client("gateway", "delete-own", "a", "--json")) == {"deleted": "a"}
    assert data(oc("gateway", "delete", pk, "--json")) == {"deleted": int(pk)}
    assert data(oc("gateway", "erase", "bob", "--json")) == [{"sessions": 1}]
    assert not Session.objects.exists()
    assert oc("exports", "fetch", str(asked["id"]), "--json")[0] == 1, "the file went with them"
    assert "ask for the export again" in error(capsys)["message"]


def test_how_the_gateway_behaves(oc: Oc, capsys: pytest.CaptureFixture[str]) -> None:
    changed = data(oc("gateway", "set", "retention_days=7", "recording=true", "--json"))
    assert (changed["retention_days"], changed["recording"]) == (7, True)
    assert data(oc("gateway", "status", "--json"))["settings"] == changed
    assert oc("gateway", "set", "retention_days=0", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"retention_days"}
    assert oc("gateway", "set", "retention_days")[0] == 2


def test_alerts_from_rule_to_acknowledgement(running: Run, oc: Oc, capsys: pytest.CaptureFixture[str]) -> None:
    (rule,) = data(
        oc("alerts", "create", "failed", "run_failed", "--role", "viewer", "--emails", "a@b.example", "--json")
    )
    assert Rule.objects.get(pk=rule["id"]).emails == ["a@b.example"]
    assert oc("alerts", "create", "loss", "metric", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"metric"}
    words = ("--metric", "loss", "--threshold", "1.5", "--comparison", "above", "--window", "3")
    data(oc("alerts", "create", "loss", "metric", *words, "--json"))
    assert [one["name"] for one in data(oc("alerts", "rules", "--json"))] == ["failed", "loss"]
    mark_failed(run=running, cause="out of memory")
    watching.look()
    (alert,) = data(oc("alerts", "list", "--state", "open", "--json"))
    assert (alert["about"], alert["rule_id"]) == (f"run:{running.pk}", rule["id"])
    (notice,) = data(oc("alerts", "notices", "--unread", "--json"))
    assert (notice["rule"], notice["alert_id"]) == ("failed", alert["id"])
    assert data(oc("alerts", "ack", str(notice["id"]), "--json")) == [{"read": 1}]
    assert data(oc("alerts", "notices", "--unread", "--json")) == []
    others = Notice.objects.exclude(user__username="operator")
    assert others.filter(read_at=None).count() == others.count() == 3
    assert oc("alerts", "ack", str(others[0].pk), "--json")[0] == 1, "somebody else's"
    assert error(capsys)["code"] == "not_found"
    assert data(oc("alerts", "ack", "--json")) == [{"read": 0}]

    (delivery,) = data(oc("alerts", "deliveries", "--json"))
    assert (delivery["email"], delivery["state"]) == ("a@b.example", "waiting")
    assert oc("alerts", "repeat", str(delivery["id"]), "--json")[0] == 1
    assert error(capsys)["code"] == "conflict"
    Delivery.objects.update(state="failed", tries=6)
    assert data(oc("alerts", "repeat", str(delivery["id"]), "--json"))[0]["tries"] == 0

    pk = str(rule["id"])
    assert data(oc("alerts", "off", pk, "--json"))[0]["active"] is False
    assert data(oc("alerts", "list", "--state", "open", "--json")) == []
    assert data(oc("alerts", "on", pk, "--json"))[0]["active"] is True
    assert data(oc("alerts", "remove", pk, "--json")) == {"removed": rule["id"]}
    assert [row.name for row in Rule.objects.all()] == ["loss"]


def test_webhooks(receiver: Receiver, oc: Oc, capsys: pytest.CaptureFixture[str]) -> None:
    made = data(oc("webhooks", "add", "ci", receiver.url, "--events", "run.finished", "run.failed", "--json"))
    assert made["secret"].startswith("whsec_") and made["events"] == ["run.finished", "run.failed"]
    pk = str(made["id"])
    assert data(oc("webhooks", "events", pk, "policy.promoted", "--json"))[0]["events"] == ["policy.promoted"]
    assert oc("webhooks", "events", pk, "policy", "--json")[0] == 1
    assert "events.0" in error(capsys)["fields"]
    assert data(oc("webhooks", "off", pk, "--json"))[0]["active"] is False
    assert data(oc("webhooks", "on", pk, "--json"))[0]["active"] is True
    assert data(oc("webhooks", "test", pk, "--json"))[0]["webhook_id"] == made["id"]
    (shown,) = data(oc("webhooks", "list", "--json"))
    assert shown["name"] == "ci" and "secret" not in shown
    assert oc("webhooks", "add", "inside", "http://10.0.0.7/", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"url"}


def test_quotas(people: dict[str, User], line: Callable[[str, str], Oc], capsys: pytest.CaptureFixture[str]) -> None:
    project = create_project(slug="ours", name="Ours", actor=people["admin"])
    oc = line("admin", "admin")
    (made,) = data(oc("quotas", "set", "project:ours", "--gpus", "4", "--gpu-share", "0.5", "--json"))
    assert (made["project"], made["gpus"], made["gpu_share"], made["storage_gib"]) == ("ours", 4, 0.5, None)
    data(oc("quotas", "set", "person:operator", "--concurrent-rollouts", "64", "--json"))
    data(oc("quotas", "set", "everybody", "--storage-gib", "10", "--json"))
    shown: list[dict[str, Any]] = data(oc("quotas", "list", "--json"))
    assert [(one["username"], one["project"]) for one in shown] == [("", "ours"), ("operator", ""), ("", "")]
    data(oc("quotas", "set", "project:ours", "--json"))
    assert not Quota.objects.filter(project=Project.objects.get(pk=project.pk)).exists(), "no limit is no quota"
    assert oc("quotas", "set", "ours", "--gpus", "1")[0] == 2
    assert "person:NAME" in capsys.readouterr().err
    assert oc("quotas", "set", "everybody", "--gpus", "0", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"gpus"}
    assert line("operator", "operate")("quotas", "set", "everybody", "--gpus", "1")[0] == 1, "admins do"


def test_the_audit_log(
    people: dict[str, User], line: Callable[[str, str], Oc], capsys: pytest.CaptureFixture[str]
) -> None:
    oc = line("admin", "admin")
    rule = alerts.make_rule(actor=people["operator"], name="failed", kind="run_failed")
    alerts.switch_rule(rule=rule, active=False, actor=people["operator"])
    found = data(oc("audit", "list", "--who", "operator", "--action", "alert_rule.", "--json"))
    assert [one["action"] for one in found] == ["alert_rule.off", "alert_rule.create"]
    assert found[0]["changes"][0]["after"] == {"active": False}
    assert data(oc("audit", "list", "--target", f"alert_rule:{rule.pk}", "--until", "2001-01-01", "--json")) == []
    assert "alert_rule.off" in oc("audit", "list")[1]
    assert oc("audit", "list", "--since", "yesterday", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"since"}
    assert line("operator", "operate")("audit", "list")[0] == 1, "admins do"
