"""Exports of rollout lists: written by a worker, for whoever asked, until they expire."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone
from pyarrow import parquet

from composer_web.accounts.models import DEFAULT_PROJECT, User
from composer_web.core.artifacts import artifacts
from composer_web.core.errors import NotFound, UserError
from composer_web.core.models import Outbox
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.export_models import Export
from composer_web.rollouts.exports import jobs as exports
from composer_web.rollouts.models import Group, Rollout
from composer_web.rollouts.worker.tasks import export as export_task
from composer_web.runs.models import Run
from tests.web.doubling import fill
from tests.web.making import claim, finish

pytestmark = pytest.mark.django_db


@pytest.fixture
def graded(running: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Four graded rollouts, one of them with a cause that a spreadsheet would run."""
    monkeypatch.setattr(exports, "folder", lambda: tmp_path / "exports")
    rollouts.pump(run_id=running.pk)
    for group in Group.objects.filter(run=running, state="dispatched").order_by("pk")[:2]:
        claimed = claim(group)
        finish(claimed.group, claimed.held, [True, False])
    Rollout.objects.filter(verdict="failed").update(cause='=HYPERLINK("http://evil")')
    return running


def content(export: Export) -> bytes:
    return exports.file_of(export).read_bytes()


def test_an_export_holds_what_the_filters_leave(
    graded: Run, people: dict[str, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "CHUNK", 1)  # several reads
    made = exports.ask(owner=people["viewer"], format="csv", query=f"run={graded.pk}&verdict=failed&page=2")
    assert Outbox.objects.filter(task="rollouts.export", kwargs={"export_id": made.pk}).exists()
    export_task(export_id=made.pk)
    made.refresh_from_db()
    assert (made.state, made.rows, made.total) == ("done", 2, 2)
    rows = list(csv.DictReader(io.StringIO(content(made).decode())))
    assert [row["verdict"] for row in rows] == ["failed", "failed"]
    assert rows[0]["cause"] == '\'=HYPERLINK("http://evil")'
    assert int(rows[0]["rollout"]) > int(rows[1]["rollout"])
    before = content(made)
    export_task(export_id=made.pk)  # delivered twice
    assert content(made) == before
    lines = exports.ask(owner=people["viewer"], format="jsonl", query=f"run={graded.pk}&reward_min=1")
    exports.write(lines.pk)
    parsed = [json.loads(line) for line in content(lines).decode().splitlines()]
    assert [(row["reward"], row["run"], row["reward_parts"][0]["name"]) for row in parsed] == [
        (1.0, graded.pk, "tests")
    ] * 2


def test_parquet_has_typed_columns(graded: Run, people: dict[str, User]) -> None:
    made = exports.ask(owner=people["viewer"], format="parquet", query="")
    exports.write(made.pk)
    table = parquet.read_table(exports.file_of(made))
    assert table.num_rows == Rollout.objects.count()
    assert str(table.schema.field("rollout").type) == "int64"
    assert str(table.schema.field("reward").type) == "double"
    assert sorted(filter(None, table["verdict"].to_pylist())) == ["failed", "failed", "passed", "passed"]


@pytest.mark.parametrize("format", [pytest.param("csv", marks=pytest.mark.slow), "jsonl", "parquet"])
def test_a_chunk_is_in_memory_at_a_time_and_no_trajectory_is_read(
    graded: Run, people: dict[str, User], monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """Against the same export with all of its rows in one chunk."""
    fill(Rollout, 2_400, project=DEFAULT_PROJECT)
    artifacts().remove_tree("groups")

    def peak(chunk: int) -> int:
        """Bytes of Python objects at the same time."""
        monkeypatch.setattr(exports, "CHUNK", chunk)
        made = exports.ask(owner=people["viewer"], format=format, query="")
        tracemalloc.start()
        try:
            exports.write(made.pk)
            found = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        made.refresh_from_db()
        assert (made.state, made.rows) == ("done", Rollout.objects.count())
        return found

    peak(200)  # imports
    assert peak(200) < peak(10_000) / 4


def test_what_cannot_be_exported_is_refused_with_the_field(graded: Run, people: dict[str, User]) -> None:
    with pytest.raises(UserError, match="csv, jsonl or parquet"):
        exports.ask(owner=people["viewer"], format="xlsx", query="")
    with pytest.raises(UserError, match="verdict"):
        exports.ask(owner=people["viewer"], format="csv", query="verdict=splendid")
    with pytest.raises(UserError, match="too many filters"):
        exports.ask(owner=people["viewer"], format="csv", query="a&" * 2000)
    for _ in range(exports.MAX_OPEN):
        exports.ask(owner=people["viewer"], format="csv", query="")
    with pytest.raises(UserError, match="wait for one of them"):
        exports.ask(owner=people["viewer"], format="csv", query="")


def test_a_full_disk_is_the_cause_that_is_shown(
    graded: Run, people: dict[str, User], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(exports, "folder", lambda: tmp_path / "file")
    made = exports.ask(owner=people["viewer"], format="csv", query="")
    exports.write(made.pk)
    made.refresh_from_db()
    assert (made.state, "File exists" in made.cause) == ("failed", True)


def test_exports_expire_with_their_files(graded: Run, people: dict[str, User]) -> None:
    made = exports.ask(owner=people["viewer"], format="csv", query="")
    exports.write(made.pk)
    assert exports.expire() == 0
    stray = exports.folder() / "rollouts-999999.csv"
    stray.write_text("left behind")
    Export.objects.filter(pk=made.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert exports.expire() == 1
    assert list(exports.folder().iterdir()) == []


def test_only_who_asked_gets_the_file(
    graded: Run, people: dict[str, User], bearer: Callable[..., dict[str, str]]
) -> None:
    browser = Client()
    browser.force_login(people["viewer"])
    assert (
        browser.post("/rollouts/exports/new/", {"format": "csv", "query": "verdict=passed"}).url == "/rollouts/exports/"
    )
    made = Export.objects.get()
    assert browser.get(f"/rollouts/exports/{made.pk}/file/").status_code == 404  # not written yet
    assert 'hx-trigger="every 2s"' in browser.get("/rollouts/exports/").content.decode()
    exports.write(made.pk)
    page = browser.get("/rollouts/exports/").content.decode()
    assert f"/rollouts/exports/{made.pk}/file/" in page
    assert "every 2s" not in page
    answer = browser.get(f"/rollouts/exports/{made.pk}/file/")
    assert answer["Content-Disposition"] == f'attachment; filename="rollouts-{made.pk}.csv"'
    assert b"".join(answer.streaming_content) == content(made)  # type: ignore[attr-defined]
    other = Client()
    other.force_login(people["operator"])
    assert other.get(f"/rollouts/exports/{made.pk}/file/").status_code == 404
    with pytest.raises(NotFound):
        exports.of(people["operator"], made.pk)
    assert exports.of(people["admin"], made.pk) == made
    api = Client()
    asked = api.post(
        "/api/v1/exports", {"format": "jsonl", "query": "verdict=failed"}, content_type="application/json",
        headers=bearer("reviewer"),
    )  # fmt: skip
    assert (asked.status_code, asked.json()["state"]) == (201, "waiting")
    assert api.get(f"/api/v1/exports/{asked.json()['id']}", headers=bearer("operator")).status_code == 404
