"""The audit log: what was before and after, by whom and from where; nobody can change it; page, API and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

import pytest
from django.db import DatabaseError, transaction
from django.test import Client

from composer_web.accounts.models import AuditEntry, User
from composer_web.accounts.services import audit, create_token, set_role
from composer_web.runs import services
from composer_web.runs.models import Run

pytestmark = pytest.mark.django_db


def visitor(user: User) -> Client:
    made = Client()
    made.force_login(user)
    return made


def test_the_database_tells_before_and_after(people: dict[str, User]) -> None:
    set_role(user=people["viewer"], role="reviewer", by=people["admin"])
    (change,) = [
        c for c in AuditEntry.objects.latest("pk").changes if c["row"] == f"accounts_user:{people['viewer'].pk}"
    ]
    assert change == {
        "row": f"accounts_user:{people['viewer'].pk}",
        "before": {"role": "viewer"},
        "after": {"role": "reviewer"},
    }
    audit(actor=None, action="test.nothing")
    assert AuditEntry.objects.latest("pk").changes == []  # each change is told once


def test_secrets_are_only_said_to_have_changed(people: dict[str, User]) -> None:
    people["viewer"].set_password("another horse battery")
    people["viewer"].save()
    audit(actor=people["admin"], action="user.password")
    entry = AuditEntry.objects.latest("pk")
    assert entry.changes[-1]["after"] == {"password": "changed"}
    assert "pbkdf2" not in str(AuditEntry.objects.values_list("changes", "detail"))


def test_many_changes_are_counted(people: dict[str, User]) -> None:
    audit(actor=None, action="test.before")
    for number in range(45):
        User.objects.filter(pk=people["viewer"].pk).update(email=f"{number}@example.org")
    audit(actor=None, action="test.after")
    changes = AuditEntry.objects.latest("pk").changes
    assert len(changes) == 41
    assert changes[-1] == {"more": 5}


def test_entries_cannot_be_changed_or_removed(people: dict[str, User]) -> None:
    rows = AuditEntry.objects.filter(action="user.create")
    assert rows.exists()
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        rows.update(action="nothing")
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        rows.delete()


def test_it_tells_from_where(people: dict[str, User], draft: Run, bearer: Callable[..., dict[str, str]]) -> None:
    services.start_run(run=draft)
    answer = Client().post(f"/api/v1/runs/{draft.pk}/stop", headers=bearer("operator", "operate"))
    assert answer.status_code == 200, answer.content
    entry = AuditEntry.objects.get(action="run.cancelled")
    assert (entry.actor, entry.via, entry.address) == (people["operator"], "token", "127.0.0.1")
    assert entry.credential.startswith("test (oc_")
    assert {
        "row": f"runs_run:{draft.pk}",
        "before": {"state": "queued"},
        "after": {"state": "cancelled"},
    } in entry.changes


def test_a_change_of_which_no_service_tells_is_there_too(people: dict[str, User], draft: Run) -> None:
    before = AuditEntry.objects.count()
    visitor(people["operator"]).post("/system/fidelity/measure/")
    entry = AuditEntry.objects.latest("pk")
    assert (entry.action, entry.target, entry.via) == ("request.post", "/system/fidelity/measure/", "page")
    visitor(people["operator"]).post("/runs/new/check/", {})  # changes nothing
    Client().post("/system/fidelity/measure/")  # nobody
    assert AuditEntry.objects.count() == before + 1


def test_admins_read_it(people: dict[str, User], bearer: Callable[..., dict[str, str]]) -> None:
    audit(actor=people["operator"], action="run.tested", target="run:7", note="<script>alert(1)</script>")
    create_token(user=people["viewer"], name="=cmd|calc", scopes=["read"])
    admin = visitor(people["admin"])
    html = admin.get("/audit/").content.decode()
    assert "run.tested" in html
    assert '<a href="/runs/7/">run:7</a>' in html
    assert "<script>alert" not in html
    assert "run.tested" not in admin.get("/audit/?action=user").content.decode()
    assert "run.tested" in admin.get("/audit/?target=run:7&who=operator").content.decode()
    assert "No entry matches" in admin.get("/audit/?target=run:8").content.decode()
    for role in ("viewer", "reviewer", "operator"):
        assert visitor(people[role]).get("/audit/").status_code == 403
        assert visitor(people[role]).get("/audit/export.csv").status_code == 403
        assert Client().get("/api/v1/audit", headers=bearer(role)).status_code == 403
    assert Client().get("/audit/").status_code == 302
    found = Client().get("/api/v1/audit?target=run:7", headers=bearer("admin", "admin")).json()
    assert [(e["action"], e["actor_name"]) for e in found["items"]] == [("run.tested", "operator")]
    assert Client().get("/api/v1/audit?colour=red", headers=bearer("admin", "admin")).status_code == 422


def test_csv_has_the_same_rows_and_no_formulas(people: dict[str, User]) -> None:
    audit(actor=people["operator"], action="run.tested", target="=HYPERLINK(1)")
    answer = visitor(people["admin"]).get("/audit/export.csv?action=run")
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))  # type: ignore[attr-defined]
    assert [(row["action"], row["target"]) for row in rows] == [("run.tested", "'=HYPERLINK(1)")]
    assert visitor(people["admin"]).get("/audit/export.csv?since=never").status_code == 422


def test_the_page_asks_the_database_the_same_number_of_times(
    people: dict[str, User], django_assert_max_num_queries: Callable[..., object]
) -> None:
    admin = visitor(people["admin"])
    for number in range(30):
        audit(actor=people["operator"], action="run.tested", target=f"run:{number}")
    with django_assert_max_num_queries(7):  # type: ignore[attr-defined]
        assert admin.get("/audit/").status_code == 200
