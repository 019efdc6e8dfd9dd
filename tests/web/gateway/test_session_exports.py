"""Recorded sessions as export files: for reviewers only, and gone with the first session in them that has to go."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.db.models import ProtectedError
from django.test import Client
from django.utils import timezone
from pyarrow import parquet

from composer_web.accounts.models import AuditEntry, User
from composer_web.gateway import export_links
from composer_web.gateway.http import exported
from composer_web.gateway.models import Session, SessionExport
from composer_web.gateway.serving import recording
from composer_web.gateway.sessions import exporting, selectors
from composer_web.rollouts.export_models import Export
from composer_web.rollouts.exports import jobs as exports
from tests.web.helpers import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
Exchange = Callable[..., recording.Exchange]
Bearer = Callable[..., dict[str, str]]
SECRET = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(exports, "folder", lambda: tmp_path / "exports")
    monkeypatch.setattr(exported, "AT_ONCE", 1)  # several reads
    return tmp_path / "exports"


@pytest.fixture
def recorded(exchange: Exchange, folder: Path) -> dict[str, int]:
    """The client's names of three sessions → their numbers: two of `ada`, one of `bob`."""
    for name, user in (("a", "ada"), ("b", "bob"), ("c", "ada")):
        recording.record(exchange(f"Fix {name} with {SECRET}", f"done {name}", session=name, user=user))
    return dict(Session.objects.values_list("client_id", "pk"))


def made(owner: User, query: str = "", form: str = "jsonl") -> Export:
    asked = exports.ask(owner=owner, what="sessions", format=form, query=query)
    exports.write(asked.pk)
    asked.refresh_from_db()
    return asked


def lines(export: Export) -> list[dict[str, Any]]:
    return [json.loads(line) for line in exports.file_of(export).read_text().splitlines()]


def aside(call: Callable[[], Any]) -> Future[Any]:
    """In a thread of its own, with a connection of its own."""

    def work() -> Any:
        try:
            return call()
        finally:
            connections.close_all()

    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(work)
    finally:
        pool.shutdown(wait=False)


def waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        return bool(cursor.fetchone()[0])


# --- who, and what ----------------------------------------------------------------------------------------------


def test_the_file_has_what_the_filters_leave_without_secrets(
    recorded: dict[str, int], people: dict[str, User], folder: Path
) -> None:
    everything = made(people["reviewer"])
    assert (everything.state, everything.rows, everything.total) == ("done", 3, 3), everything.cause
    rows = lines(everything)
    assert [row["client_id"] for row in rows] == ["c", "b", "a"]
    assert (
        SECRET not in exports.file_of(everything).read_text()
        and "[redacted:token]" in rows[0]["turns"][0]["messages"][0]["content"]
    )
    one = exporting.document(selectors.get(recorded["b"]))
    assert rows[1] == json.loads(json.dumps({**one, "opened_at": one["opened_at"].isoformat()}))
    assert rows[1]["turns"][0]["token_ids"] and list(rows[1]) == list(exported.SESSIONS.columns)
    assert [row["client_id"] for row in lines(made(people["reviewer"], "q=fix+b"))] == ["b"]
    typed = parquet.read_table(exports.file_of(made(people["reviewer"], form="parquet")))
    assert typed["id"].to_pylist() == [row["id"] for row in rows]
    assert json.loads(typed["turns"][1].as_py()) == rows[1]["turns"]
    assert made(people["reviewer"], form="csv").state == "done"


def test_it_is_for_reviewers_when_asked_for_written_and_fetched(
    recorded: dict[str, int], people: dict[str, User], bearer: Bearer
) -> None:
    api, body = Client(), {"what": "sessions"}

    def ask(headers: dict[str, str]) -> Any:
        return api.post("/api/v1/exports", body, content_type="application/json", headers=headers)

    for headers in (bearer("viewer", "read"), bearer("operator", "read")):
        refused = ask(headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
        assert "role reviewer" in refused.json()["error"]["message"]
    browsers = {role: Client() for role in ("viewer", "reviewer")}
    for role, browser in browsers.items():
        browser.force_login(people[role])
    form = {"what": "sessions", "format": "jsonl", "query": ""}
    assert browsers["viewer"].post("/rollouts/exports/new/", form).status_code == 403
    assert not Export.objects.exists()
    assert 'name="what" value="sessions"' in browsers["reviewer"].get("/gateway/sessions/").content.decode()
    assert browsers["reviewer"].post("/rollouts/exports/new/", form).status_code == 302
    asked = ask(bearer("reviewer", "review"))
    assert asked.status_code == 201
    first, second = Export.objects.order_by("pk")
    exports.write(first.pk)
    page, call = f"/rollouts/exports/{first.pk}/file/", f"/api/v1/exports/{first.pk}/file"
    review, read = bearer("reviewer", "review"), bearer("reviewer", "read")
    assert browsers["reviewer"].get(page).status_code == 200
    assert api.get(call, headers=review).status_code == 200
    assert api.get(call, headers=read).status_code == 403, "a token that only reads"
    assert api.get(call, headers=bearer("operator", "operate")).status_code == 404, "somebody else's"

    User.objects.filter(pk=people["reviewer"].pk).update(role="viewer")
    assert browsers["reviewer"].get(page).status_code == 403
    assert page not in browsers["reviewer"].get("/rollouts/exports/").content.decode()
    assert api.get(call, headers=review).status_code == 403
    exports.write(second.pk)
    second.refresh_from_db()
    assert (second.state, "role reviewer" in second.cause) == ("failed", True)
    assert not exports.file_of(second).exists()


# --- deletion ---------------------------------------------------------------------------------------------------


def _erase(recorded: dict[str, int], actor: User) -> None:
    assert recording.erase(user="ada", actor=actor) == 2


def _delete(recorded: dict[str, int], actor: User) -> None:
    recording.delete(session=Session.objects.get(pk=recorded["a"]), actor=actor)


def _expire(recorded: dict[str, int], actor: User) -> None:
    Session.objects.filter(pk=recorded["a"]).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert recording.expire() == 1


@pytest.mark.parametrize(("end", "why"), [(_erase, "user's data"), (_delete, "was deleted"), (_expire, "days of a")])
def test_every_file_that_holds_a_deleted_session_goes_with_it(
    recorded: dict[str, int], people: dict[str, User], folder: Path, end: Callable[..., None], why: str
) -> None:
    whole, others, waiting = made(people["reviewer"]), made(people["reviewer"], "q=fix+b"), made(people["admin"])
    end(recorded, people["operator"])
    assert [file.name for file in folder.iterdir()] == [exports.file_of(others).name], "only that of bob is there"
    for export in (whole, waiting):
        export.refresh_from_db()
        assert (export.state, export.bytes, export.expires_at) == ("void", 0, None)
        assert why in export.cause and "ask for the export again" in export.cause
    assert {one.target for one in AuditEntry.objects.filter(action="export.void")} == {
        f"export:{one.pk}" for one in (whole, waiting)
    }
    assert list(SessionExport.objects.values_list("export", flat=True)) == [others.pk]
    browser = Client()
    browser.force_login(people["reviewer"])
    gone = browser.get(f"/api/v1/exports/{whole.pk}/file")
    assert gone.status_code == 404 and "ask for the export again" in gone.json()["error"]["message"]
    assert browser.get(f"/rollouts/exports/{whole.pk}/file/").status_code == 404
    listed = browser.get("/rollouts/exports/").content.decode()
    assert why in listed.replace("&#x27;", "'") and f"/rollouts/exports/{whole.pk}/file/" not in listed
    again = made(people["reviewer"])
    assert recorded["a"] not in [row["id"] for row in lines(again)] and again.state == "done"
    Export.objects.filter(pk=whole.pk).update(finished_at=timezone.now() - exports.KEPT - timedelta(days=1))
    exports.expire()
    assert set(Export.objects.values_list("pk", flat=True)) == {others.pk, waiting.pk, again.pk}
    assert len(list(folder.iterdir())) == 2


def test_nobody_deletes_a_session_past_its_exports(recorded: dict[str, int], people: dict[str, User]) -> None:
    made(people["reviewer"])
    with pytest.raises(ProtectedError):
        Session.objects.get(pk=recorded["a"]).delete()


@pytest.mark.parametrize("moment", ["before it is noted", "before it is read", "after it is written"])
def test_a_deletion_while_the_file_is_written(
    recorded: dict[str, int], people: dict[str, User], folder: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """In the middle of a page of the file, at each step of it. The file is never there with what was erased in it."""
    hold, noted = export_links.hold, len(recorded) - 1 if moment == "before it is noted" else 1

    def at_this_moment(export: int, keys: list[int]) -> list[int]:
        due = SessionExport.objects.filter(export=export).count() == noted
        if moment == "before it is read":
            found = hold(export, keys)
            if due:
                aside(lambda: _erase(recorded, people["operator"])).result(30)
            return found
        if due:  # the first one, of ada, is in the half of the file that is there
            assert exports.part_of(Export.objects.get(pk=export)).exists()
            aside(lambda: _erase(recorded, people["operator"])).result(30)
            assert not list(folder.iterdir()), "not even the half of it"
        return hold(export, keys)

    monkeypatch.setattr(export_links, "hold", at_this_moment)
    asked = exports.ask(owner=people["reviewer"], what="sessions", format="jsonl", query="")
    assert "deleted meanwhile" in exports.write(asked.pk)
    asked.refresh_from_db()
    assert (asked.state, list(folder.iterdir())) == ("void", [])
    assert "nothing to do" in exports.write(asked.pk), "delivered again"
    monkeypatch.setattr(export_links, "hold", hold)
    assert [row["client_id"] for row in lines(made(people["reviewer"]))] == ["b"]


def test_a_deletion_in_the_moment_in_which_the_file_gets_its_name(
    recorded: dict[str, int], people: dict[str, User], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion waits for the row of the export, finds it done, and takes the file."""
    still, begun = exports.update_running, list[Future[Any]]()

    def finishing(export: Export, **values: Any) -> None:
        still(export, **values)
        if values.get("state") == "done":
            begun.append(aside(lambda: _erase(recorded, people["operator"])))
            eventually(waits_for_a_lock, seconds=30, what="the deletion that waits")

    monkeypatch.setattr(exports, "update_running", finishing)
    asked = exports.ask(owner=people["reviewer"], what="sessions", format="jsonl", query="")
    assert exports.write(asked.pk) == "3 rows"
    begun[0].result(30)
    asked.refresh_from_db()
    assert (asked.state, list(folder.iterdir())) == ("void", [])


def test_what_is_being_deleted_is_left_out(recorded: dict[str, int], people: dict[str, User], folder: Path) -> None:
    """The worker meets the deletion before its end, and waits: the file has the rest, and stays."""
    asked = exports.ask(owner=people["reviewer"], what="sessions", format="jsonl", query="")
    with transaction.atomic():
        _erase(recorded, people["operator"])
        writing = aside(lambda: exports.write(asked.pk))
        eventually(waits_for_a_lock, seconds=30, what="the worker that waits")
    assert writing.result(30) == "1 rows"
    asked.refresh_from_db()
    assert asked.state == "done" and [row["client_id"] for row in lines(asked)] == ["b"]


def test_the_sweeper_leaves_what_is_being_written(
    recorded: dict[str, int], people: dict[str, User], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And takes what a dead worker left of an export that has no file."""
    hold = export_links.hold

    def swept(export: int, keys: list[int]) -> list[int]:
        exports.expire()
        return hold(export, keys)

    monkeypatch.setattr(export_links, "hold", swept)
    export = made(people["reviewer"])
    assert export.state == "done" and len(lines(export)) == 3
    exports.part_of(export).write_text("left")
    Export.objects.filter(pk=export.pk).update(state="failed", cause="x", expires_at=None)
    exports.expire()
    assert not list(folder.iterdir())
