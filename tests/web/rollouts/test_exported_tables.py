"""Every table that leaves the product as a file: what its list shows, in each format, for whom it shows it."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from django.test import Client
from pyarrow import parquet

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import DEFAULT_PROJECT, Membership, Project, User
from composer_web.accounts.projects import create_project
from composer_web.accounts.services import create_token
from composer_web.core.errors import UserError
from composer_web.evals.models import Evaluation
from composer_web.review.models import Annotation
from composer_web.rollouts.export_models import Export
from composer_web.rollouts.exports import jobs as exports
from composer_web.rollouts.exports.exported import TABLES, table
from composer_web.rollouts.models import Finding, Rollout
from composer_web.runs.models import Metric, Run
from composer_web.tasks.models import Task
from tests.browser.seed import World
from tests.web import seeded
from tests.web.seeded import client

pytestmark = pytest.mark.django_db
world = seeded.world


@pytest.fixture
def told(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(exports, "folder", lambda: tmp_path / "exports")
    monkeypatch.setattr(exports, "CHUNK", 1)  # several reads
    monkeypatch.setattr(exports, "MAX_OPEN", 1_000)
    for rollout in Rollout.objects.order_by("pk")[:2]:
        Annotation.objects.create(rollout=rollout, kind="comment", text="look here", author=world.people["reviewer"])
    return world


def made(owner: User, what: str, form: str, query: str = "") -> Export:
    asked = exports.ask(owner=owner, what=what, format=form, query=query)
    exports.write(asked.pk)
    asked.refresh_from_db()
    assert asked.state == "done", asked.cause
    return asked


def lines(export: Export) -> list[dict[str, Any]]:
    return [json.loads(line) for line in exports.file_of(export).read_text().splitlines()]


def query_of(what: str, world: World) -> str:
    return f"run={Run.objects.earliest('pk').pk}" if what == "metrics" else ""


@pytest.mark.parametrize("what", [what for what in TABLES if what != "leaderboard"])  # `test_benchmark` has one
def test_each_table_in_each_format(told: World, what: str) -> None:
    viewer, query = told.people[table(what).role], query_of(what, told)
    rows = lines(made(viewer, what, "jsonl", query))
    expected = table(what).select(query, asker=viewer).count()
    assert len(rows) == expected > 1, "there is something to tell"
    assert list(rows[0]) == list(table(what).columns)
    with exports.file_of(made(viewer, what, "csv", query)).open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row[next(iter(row))] for row in found] == [str(row[next(iter(row))]) for row in rows]
    typed = parquet.read_table(exports.file_of(made(viewer, what, "parquet", query)))
    assert typed.num_rows == expected
    kinds = {"integer": pa.int64(), "number": pa.float64(), "text": pa.string(), "truth": pa.bool_()}
    for name, column in table(what).columns.items():
        if column.kind in kinds:
            assert typed.schema.field(name).type == kinds[column.kind], name
            assert typed[name].to_pylist() == [row[name] for row in rows], name


def test_metrics_are_those_of_the_runs_that_were_named(told: World) -> None:
    viewer, run = told.people["viewer"], Metric.objects.values_list("run_id", flat=True).first()
    one = Metric.objects.filter(run_id=run).earliest("key__name").key.name
    rows = lines(made(viewer, "metrics", "jsonl", f"run={run}&name={one}&first=2&last=5"))
    steps = Metric.objects.filter(run_id=run, key__name=one, step__range=(2, 5)).order_by("step")
    assert [(row["run"], row["name"], row["step"], row["value"]) for row in rows] == [
        (run, one, metric.step, metric.value) for metric in steps
    ]
    with pytest.raises(UserError, match="run") as error:
        exports.ask(owner=viewer, what="metrics", format="csv", query="")
    assert error.value.field == "run"
    with pytest.raises(UserError, match="run"):
        exports.ask(owner=viewer, what="metrics", format="csv", query="run=999999")
    with pytest.raises(UserError, match="name"):
        exports.ask(owner=viewer, what="metrics", format="csv", query=f"run={run}&name=no/such")


def test_filters_are_those_of_the_list(told: World) -> None:
    viewer = told.people["viewer"]
    high = lines(made(viewer, "findings", "jsonl", "severity=high&page=2"))
    assert len(high) == Finding.objects.filter(severity="high").count() < Finding.objects.count()
    run = Evaluation.objects.exclude(run=None).earliest("pk").run_id
    ours = lines(made(viewer, "evaluations", "jsonl", f"run={run}"))
    assert [row["evaluation"] for row in ours] == list(
        Evaluation.objects.filter(run_id=run).order_by("-pk").values_list("pk", flat=True)
    )
    scored = next(row for row in ours if row["state"] == "finished")
    assert scored["pass1"] == scored["results"]["pass1"] is not None
    task = Task.objects.earliest("pk")
    assert [row["task"] for row in lines(made(viewer, "tasks", "jsonl", f"q={task.slug}"))] == [task.slug]
    for what, wrong, field in (("runs", "state=splendid", "state"), ("tasks", "strength=iron", "strength")):
        with pytest.raises(UserError) as error:
            exports.ask(owner=viewer, what=what, format="csv", query=wrong)
        assert error.value.field == field
    with pytest.raises(UserError, match="what is one of"):
        exports.ask(owner=viewer, what="secrets", format="csv", query="")


@pytest.mark.parametrize(
    ("page", "whats"),
    [
        ("/runs/?state=running", ["runs"]),
        ("/rollouts/", ["rollouts"]),
        ("/findings/", ["findings"]),
        ("/evaluations/", ["evaluations"]),
        ("/tasks/", ["tasks"]),
        ("/gateway/sessions/?version=0", ["sessions"]),
        ("run", ["metrics", "rollouts", "findings", "evaluations"]),
    ],
)
def test_it_is_asked_for_where_the_table_is(told: World, page: str, whats: list[str]) -> None:
    """By a viewer, or who may read the list: from the page's own form to the file."""
    role = table(whats[0]).role
    browser = client(told, role)
    if page == "run":
        page = f"/runs/{Metric.objects.values_list('run_id', flat=True).first()}/"
    text = browser.get(page).content.decode()
    form = re.search(r'<form method="post" action="/rollouts/exports/new/".*?</form>', text, re.S)
    assert form is not None
    offered = re.findall(
        r'name="what" value="([^"]+)"|<option value="(metrics|rollouts|findings|evaluations)"', form[0]
    )
    assert [one or other for one, other in offered] == whats
    query = re.search(r'name="query" value="([^"]*)"', form[0])
    assert query is not None
    for what in whats:
        posted = {"what": what, "format": "jsonl", "query": query[1].replace("&amp;", "&")}
        assert browser.post("/rollouts/exports/new/", posted).url == "/rollouts/exports/"  # type: ignore[attr-defined]
        export = Export.objects.latest("pk")
        assert (export.what, export.owner) == (what, told.people[role])
        exports.write(export.pk)
        listed = browser.get("/rollouts/exports/").content.decode()
        assert f"/rollouts/exports/{export.pk}/file/" in listed and table(what).noun in listed
        answer = browser.get(f"/rollouts/exports/{export.pk}/file/")
        assert answer["Content-Disposition"] == f'attachment; filename="{what}-{export.pk}.jsonl"'
    wrong = browser.post("/rollouts/exports/new/", {"what": whats[0], "format": "xlsx", "query": ""})
    assert wrong.url != "/rollouts/exports/"  # type: ignore[attr-defined]
    assert Client().post("/rollouts/exports/new/", {"what": whats[0], "format": "csv"}).url.startswith("/login/")  # type: ignore[attr-defined]


def test_another_projects_rows_are_in_no_file(told: World) -> None:
    """Asked for in a project of one's own; what is elsewhere is neither counted nor told."""
    viewer = told.people["viewer"]
    other = create_project(slug="elsewhere", name="Elsewhere", actor=None)
    Membership.objects.create(project=other, user=viewer, role="viewer")
    viewer.__dict__.pop("placed", None)
    Project.objects.filter(pk=DEFAULT_PROJECT).update(library=False)
    inside = Access(viewer.pk, "viewer", other.pk, other.pk)
    for what in ("runs", "rollouts", "findings", "evaluations", "leaderboard", "tasks"):
        with acting(inside):
            asked = exports.ask(owner=viewer, what=what, format="jsonl", query="")
        exports.write(asked.pk)
        asked.refresh_from_db()
        assert (asked.state, asked.rows, asked.project_id) == ("done", 0, other.pk), what
    elsewhere = query_of("metrics", told)
    with acting(inside), pytest.raises(UserError, match="run"):
        exports.ask(owner=viewer, what="metrics", format="csv", query=elsewhere)
    Project.objects.filter(pk=DEFAULT_PROJECT).update(library=True)
    with acting(Access(viewer.pk, "viewer", other.pk, other.pk, (DEFAULT_PROJECT,))):
        asked = exports.ask(owner=viewer, what="tasks", format="jsonl", query="")
    exports.write(asked.pk)
    asked.refresh_from_db()
    assert asked.rows == Task.objects.count(), "what a library shares is told, as its list shows it"
    Project.objects.filter(pk=DEFAULT_PROJECT).update(library=False)
    asked = exports.ask(owner=viewer, what="runs", format="jsonl", query="")
    Membership.objects.filter(user=viewer).delete()
    User.objects.filter(pk=viewer.pk).update(is_active=False)
    exports.write(asked.pk)
    asked.refresh_from_db()
    assert (asked.state, "may not read" in asked.cause) == ("failed", True)
    User.objects.filter(pk=viewer.pk).update(is_active=True)


def test_by_api(told: World) -> None:
    def bearer(role: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {create_token(user=told.people[role], name='t', scopes=['read'])[1]}"}

    api, run = Client(), query_of("metrics", told)

    def ask(**body: Any) -> Any:
        return api.post("/api/v1/exports", body, content_type="application/json", headers=bearer("viewer"))

    asked = ask(what="metrics", format="parquet", query=run)
    assert (asked.status_code, asked.json()["what"]) == (201, "metrics")
    refused = ask(what="metrics", format="parquet")
    assert (refused.status_code, list(refused.json()["error"]["fields"])) == (422, ["run"])
    assert ask(what="users", format="csv").status_code == 422
    pk = asked.json()["id"]
    assert api.get("/api/v1/exports", headers=bearer("viewer")).json()["items"][0]["id"] == pk
    assert pk not in [one["id"] for one in api.get("/api/v1/exports", headers=bearer("operator")).json()["items"]]
    assert api.get("/api/v1/exports").status_code == 401


@pytest.mark.parametrize(
    ("what", "query", "words"),
    [
        (
            "rollouts",
            "verdict=infra_error&run=12&reward_min=0.5&sort=-reward",
            "Run: 12 · Verdict: infra error · Reward ≥ 0.5",
        ),
        ("runs", "kind=rl&archived=all", "Stage: RL · Archived: shown too"),
        ("metrics", "run=3&run=4&name=reward/mean", "Run: 3, 4 · Metric: reward/mean"),
        ("tasks", "", "all"),
    ],
)
def test_its_row_names_the_filters_as_the_list_does(told: World, what: str, query: str, words: str) -> None:
    owner = told.people["viewer"]
    Export.objects.create(owner=owner, what=what, format="csv", query=query, state="failed", cause="the disk is full")
    assert f">{words}</" in client(told, "viewer").get("/rollouts/exports/").content.decode()
