"""The runs table: what people say of runs, saved views, facets, columns, and how often it asks the database."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from composer_web.accounts.models import AuditEntry, User
from composer_web.core.errors import UserError
from composer_web.runs import labels, services
from composer_web.runs import metrics as run_metrics
from composer_web.runs.http.tables import MAX_METRICS
from composer_web.runs.models import Run
from composer_web.ui import saved_views
from composer_web.ui.models import SavedView
from tests.web.cli.support import Cli, data
from tests.web.helpers import as_read
from tests.web.making import SMALL
from trainer.config import RunConfig

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]


def visitor(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


@pytest.fixture
def three(draft: Run, people: dict[str, User]) -> list[Run]:
    names = ("second", "third")
    made = [services.create_run(config=RunConfig(name=n, stage=SMALL), actor=people["operator"]) for n in names]
    return [draft, *made]


def test_tags_notes_and_archive_of_one_run(draft: Run, people: dict[str, User]) -> None:
    operator, viewer = visitor(people["operator"]), visitor(people["viewer"])
    body = {"tags": "Baseline, lr:low baseline", "notes": "<b>look</b> at entropy"}
    assert viewer.post(f"/runs/{draft.pk}/labels/", body).status_code == 403
    html = operator.post(f"/runs/{draft.pk}/labels/", body, follow=True).content.decode()
    assert "&lt;b&gt;look&lt;/b&gt; at entropy" in html and "baseline" in html
    draft.refresh_from_db()
    assert draft.tags == ["baseline", "lr:low"]
    refused = operator.post(f"/runs/{draft.pk}/labels/", {"tags": "no/tag", "notes": "x"}, follow=True)
    assert "is no tag" in refused.content.decode()
    draft.refresh_from_db()
    assert draft.notes == "<b>look</b> at entropy"  # neither was changed
    assert [e.detail["after"] for e in AuditEntry.objects.filter(action="run.tags")] == [["baseline", "lr:low"]]
    operator.post(f"/runs/{draft.pk}/archive/")
    assert "The only run is archived" in operator.get("/runs/").content.decode()
    assert draft.name in operator.get("/runs/?archived=only").content.decode()
    assert "Restore" in operator.get(f"/runs/{draft.pk}/").content.decode()
    operator.post(f"/runs/{draft.pk}/restore/")
    assert draft.name in operator.get("/runs/").content.decode()


def test_a_list_of_which_everything_is_archived_says_so_and_leads_there(
    three: list[Run], people: dict[str, User], cli: Cli
) -> None:
    """Also the part that a live page fetches; and what is hidden by filters too is not counted."""
    operator = visitor(people["operator"])

    def said(query: str, **headers: str) -> str:
        return " ".join(operator.get(f"/runs/?{query}", headers=headers).content.decode().split())

    for run in three[:2]:
        labels.set_tags(run=run, tags=["old"])
        labels.archive_run(run=run)
    assert "are archived" not in said("") and "third" in said("")
    narrowed = said("tag=old&page=1")
    assert "All 2 runs that match are archived" in narrowed and "clear the filters" in narrowed
    assert 'href="?tag=old&amp;archived=only"' in narrowed
    assert "No run matches" in said("tag=new") and "No run matches" in said("tag=new&archived=only")
    assert "The only run that matches is archived" in said("q=second")
    labels.archive_run(run=three[2])
    for html in (said(""), said("sort=-name"), said("", **{"HX-Request": "true"})):
        assert "All 3 runs are archived" in html and "No runs yet" not in html and "clear the filters" not in html
        assert 'archived=only"' in html and "Show the archived runs" in html
    for run in three:
        assert f">{run.name}</a>" in said("archived=only")
    home = " ".join(operator.get("/").content.decode().split())
    assert "Earlier runs" not in home
    assert "Start a run" not in home, "a run was made, though no list shows it"
    assert data(cli("runs", "list", "--json")) == []
    assert len(data(cli("runs", "list", "--archived", "only", "--json"))) == 3


def test_live_runs_are_never_archived(running: Run, people: dict[str, User]) -> None:
    html = visitor(people["operator"]).post(f"/runs/{running.pk}/archive/", follow=True).content.decode()
    assert "stop it first" in html
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.filter(pk=running.pk).update(archived_at=timezone.now())
    services.mark_failed(run=running, cause="broken")
    labels.archive_run(run=running)
    services.resume_run(run=running)  # comes back to the lists by itself
    running.refresh_from_db()
    assert running.archived_at is None


def test_bulk_tags_and_archive(three: list[Run], people: dict[str, User]) -> None:
    operator = visitor(people["operator"])
    picked = [run.pk for run in three[:2]]
    assert visitor(people["viewer"]).post("/runs/bulk/tags/", {"run": picked, "tags": "a"}).status_code == 403
    operator.post("/runs/bulk/tags/", {"run": [*picked, "x"], "tags": "a b", "action": "tag"})
    operator.post("/runs/bulk/tags/", {"run": picked[:1], "tags": "b", "action": "untag"})
    assert [run.tags for run in Run.objects.order_by("pk")] == [["a"], ["a", "b"], []]
    assert "no tag" in operator.post("/runs/bulk/tags/", {"run": picked, "tags": "é"}, follow=True).content.decode()
    many = " ".join(f"t{i}" for i in range(19))
    assert (
        "at most 20 tags"
        in operator.post("/runs/bulk/tags/", {"run": picked, "tags": many}, follow=True).content.decode()
    )
    assert [len(run.tags) for run in Run.objects.order_by("pk")] == [1, 2, 0]  # all or none
    operator.post("/runs/bulk/archive/", {"run": picked})
    assert Run.objects.filter(archived_at=None).get() == three[2]


def test_labels_by_api_and_command(
    three: list[Run], bearer: Bearer, cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    headers = bearer("operator", "operate")
    path = f"/api/v1/runs/{three[0].pk}"
    send: dict[str, Any] = {"content_type": "application/json", "headers": headers}
    assert Client().patch(path, json.dumps({"tags": ["a"]}), **send).json()["tags"] == ["a"]
    assert Client().patch(path, json.dumps({"notes": "n"}), **send).json()["tags"] == ["a"]
    assert Client().patch(path, json.dumps({"tags": ["no tag!"]}), **send).status_code == 422
    listed = Client().get("/api/v1/runs?tag=a", headers=headers).json()["items"]
    assert [(run["id"], run["notes"]) for run in listed] == [(three[0].pk, "n")]
    assert Client().post(f"{path}/archive", headers=headers).json()["archived_at"]
    assert Client().post(f"{path}/archive", headers=headers).status_code == 409
    assert len(Client().get("/api/v1/runs", headers=headers).json()["items"]) == 2
    assert len(Client().get("/api/v1/runs?archived=all", headers=headers).json()["items"]) == 3
    update = ("runs", "update", str(three[1].pk), "--json")
    assert data(cli(*update, "--tags", "x,y", "--notes", "why", "--archived"))[0]["tags"] == ["x", "y"]
    assert cli(*update, "--archived")[0] == 1
    assert "archived already" in capsys.readouterr().err
    assert data(cli(*update, "--no-archived"))[0]["notes"] == "why"


def test_a_saved_view_is_an_address(three: list[Run], people: dict[str, User], bearer: Bearer) -> None:
    operator, viewer = visitor(people["operator"]), visitor(people["viewer"])
    query = "state=draft&cols=state,seed&sort=-name&page=3&project=other"
    kept = "cols=state%2Cseed&sort=-name&state=draft"
    made = viewer.post("/views/", {"table": "runs", "name": "mine", "query": query})
    view = SavedView.objects.get()
    assert sorted(view.query.split("&")) == kept.split("&") and made["Location"] == f"/runs/?{view.query}"
    assert "mine" in viewer.get("/runs/").content.decode()
    assert ">mine" not in operator.get("/runs/").content.decode()
    viewer.post("/views/", {"table": "runs", "name": "mine", "query": "tag=a", "shared": "on"})  # replaces it
    assert SavedView.objects.get().query == "tag=a"
    assert 'href="/runs/?tag=a"' in operator.get("/runs/").content.decode()
    assert operator.post(f"/views/{view.pk}/delete/").status_code in (302, 404)
    assert SavedView.objects.exists()  # not the operator's
    headers = bearer("operator")
    body = {"table": "runs", "name": "api", "query": "kind=rl", "shared": False}
    added = Client().post("/api/v1/views", json.dumps(body), content_type="application/json", headers=headers)
    assert added.status_code == 201 and added.json()["owner"] == "operator"
    assert {v["name"] for v in Client().get("/api/v1/views", headers=headers).json()} == {"mine", "api"}
    assert Client().delete(f"/api/v1/views/{view.pk}", headers=headers).status_code == 404
    assert Client().delete(f"/api/v1/views/{added.json()['id']}", headers=headers).status_code == 204
    visitor(people["admin"]).post(f"/views/{view.pk}/delete/")  # an admin may clear shared ones
    assert not SavedView.objects.exists()


def test_every_list_with_views_saves_its_own(people: dict[str, User]) -> None:
    viewer = visitor(people["viewer"])
    for table, address in saved_views.PAGES.items():
        made = viewer.post("/views/", {"table": table, "name": f"{table} by age", "query": "sort=-created_at"})
        assert made["Location"] == f"{reverse(address)}?sort=-created_at"
        page = viewer.get(reverse(address)).content.decode()
        assert f'href="{reverse(address)}?sort=-created_at"' in page and page.count("Delete view ") == 1
    refused = viewer.post("/views/", {"table": "policies", "name": "mine", "query": ""}, follow=True)
    assert "views are saved of runs, rollouts" in refused.content.decode()
    assert SavedView.objects.count() == len(saved_views.PAGES)


def test_views_have_bounds(people: dict[str, User]) -> None:
    with pytest.raises(UserError, match="1 to 60"):
        saved_views.save(table="runs", name=" ", query="", shared=False, owner=people["viewer"])
    for number in range(saved_views.MAX):
        saved_views.save(table="runs", name=str(number), query="", shared=False, owner=people["viewer"])
    with pytest.raises(UserError, match="delete one first"):
        saved_views.save(table="runs", name="more", query="", shared=False, owner=people["viewer"])
    saved_views.save(table="runs", name="7", query="kind=rl", shared=False, owner=people["viewer"])


def test_columns_and_facets_follow_the_address(three: list[Run], people: dict[str, User]) -> None:
    operator = visitor(people["operator"])
    labels.set_tags(run=three[0], tags=["a"])
    labels.set_notes(run=three[0], notes="remember")
    html = operator.get("/runs/?cols=seed,notes,nonsense").content.decode()
    assert "<td>3</td>" in html and "remember" in html and 'class="meter"' not in html
    assert 'class="meter"' in operator.get("/runs/").content.decode()
    found = operator.get("/runs/facets/?tag=a").content.decode()
    assert 'href="?"' in found  # the chosen tag is given up by the same link
    assert "by=operator" not in found  # the one tagged run has no author
    assert "by=operator&amp;tag=" not in found
    everyone = operator.get("/runs/facets/").content.decode()
    assert 'href="?by=operator"' in everyone and 'href="?state=draft"' in everyone and 'href="?tag=a"' in everyone
    assert "third" not in operator.get("/runs/?tag=a").content.decode().partition("<main")[2]
    assert "small" in operator.get("/runs/?q=remember").content.decode()


def test_any_metric_is_a_column_with_a_curve_and_columns_keep_their_order(
    three: list[Run], people: dict[str, User]
) -> None:
    for step in range(100):
        run_metrics.record(run=three[0], step=step, values={"policy/entropy": 1.0 - step / 100})
    Run.objects.filter(pk=three[0].pk).update(step=99)
    run_metrics.record(run=three[1], step=0, values={"policy/entropy": 7.5})
    viewer = visitor(people["viewer"])
    address = "/runs/?cols=seed,metric:policy/entropy,state&sort=-metric:policy/entropy"
    html = viewer.get(address).content.decode()
    head = html.partition("<thead>")[2].partition("</thead>")[0]
    assert head.index(">Seed<") < head.index("ntropy<") < head.index(">State<")
    assert html.count('class="spark"') == 1, "a curve has two points at least"
    assert "policy/entropy from 0.985 to 0.02" in html, html[html.index('aria-label="policy/entropy') :][:120]
    assert '<option\n          value="policy/entropy">' in html
    second, small, third = (html.index(f">{three[n].name}</a>") for n in (1, 0, 2))
    assert second < small < third, "those without a value are last"
    many = ",".join(f"metric:m{n}" for n in range(20))
    assert viewer.get(f"/runs/?cols={many}").content.decode().count("<th ") <= 2 + MAX_METRICS
    assert 'value="metric:m3" checked' in viewer.get(f"/runs/?cols={many}").content.decode()


def test_a_best_of_k_is_sorted_among_runs_of_its_k(three: list[Run], people: dict[str, User]) -> None:
    """Best of 16 says nothing beside best of 4: the runs of one K stand together, those without a value last."""
    for run, (samples, best) in zip(three, ((4, 0.9), (16, 0.5), (16, 0.6)), strict=True):
        raw = {**run.config, "stage": {**run.config["stage"], "eval_samples": samples}}
        Run.objects.filter(pk=run.pk).update(config=raw)
        run_metrics.record(run=run, step=3, values={"eval/best_of_k": best})
    none = services.create_run(config=three[0].configuration.model_copy(update={"name": "not-evaluated"}))
    viewer = visitor(people["viewer"])

    def order(query: str) -> list[int]:
        html = viewer.get(f"/runs/?{query}").content.decode()
        body = html[html.index("<tbody") :]
        return sorted((run.pk for run in (*three, none)), key=lambda pk: body.index(f'href="/runs/{pk}/"'))

    a, b, c = (run.pk for run in three)
    assert (
        order("cols=best&sort=-best")
        == order("sort=-metric:eval/best_of_k&cols=metric:eval/best_of_k")
        == [c, b, a, none.pk]
    )
    assert order("cols=best&sort=best") == [b, c, a, none.pk]
    shown = viewer.get("/runs/?cols=metric:eval/best_of_k").content.decode()
    assert re.search(r"60\.0.% of 16<", shown) and re.search(r"90\.0.% of 4<", shown)


def test_the_best_runs_are_found_by_their_metrics(three: list[Run], people: dict[str, User], bearer: Bearer) -> None:
    """Sorted by a stored last value, those without one last in either order; filtered by the least that is asked for."""
    measured = {three[0].pk: {"eval/pass1": 0.25, "reward/mean": -1.5}, three[2].pk: {"eval/pass1": 0.75}}
    for pk, values in measured.items():
        run_metrics.record(run=Run.objects.get(pk=pk), step=3, values=values)
    viewer = visitor(people["viewer"])

    def order(query: str) -> list[str]:
        html = viewer.get(f"/runs/?{query}").content.decode()
        return sorted((run.name for run in three if f">{run.name}</a>" in html), key=lambda n: html.index(f">{n}</a>"))

    small, second, third = (run.name for run in three)
    assert order("sort=-pass1") == [third, small, second]
    assert order("sort=pass1") == [small, third, second]
    assert order("cols=reward&sort=-reward") == [small, third, second]
    assert order("pass1=0.5") == [third]
    assert order("pass1=0.25&reward=-2") == [small]
    today = timezone.localdate()
    assert len(order(f"since={today}")) == 3
    assert order(f"since={today + timedelta(days=1)}") == []
    assert 'type="date"' in viewer.get("/runs/").content.decode()
    headers = bearer("viewer")
    listed = Client().get("/api/v1/runs?pass1=0.5", headers=headers).json()["items"]
    assert [run["name"] for run in listed] == [third]
    assert Client().get("/api/v1/runs?pass1=much", headers=headers).status_code == 422


def test_a_best_of_k_says_of_which_k(three: list[Run], people: dict[str, User]) -> None:
    """Runs of different K stand in one column: a best of 2 is no worse than a best of 8 that is higher."""
    wide = SMALL.model_copy(update={"group_size": 8, "eval_samples": 4})
    other = services.create_run(config=RunConfig(name="wide", stage=wide))
    for run in (three[0], other):
        run_metrics.record(run=run, step=1, values={"eval/best_of_k": 0.81, "reward/best_of_k": 0.75})
    html = as_read(visitor(people["viewer"]).get("/runs/?cols=best,best_reward").content)
    assert [_numbers(html, run.name) for run in (three[0], other, three[1])] == [
        ["81.0 % of 2", "0.75 of 2"],
        ["81.0 % of 4", "0.75 of 8"],
        ["–", "–"],
    ]


def _numbers(html: str, name: str) -> list[str]:
    """The numbers in the row of this run."""
    (row,) = (part for part in html.split("<tr")[1:] if f">{name}</a>" in part)
    return [found.replace("\u202f", " ") for found in re.findall(r'<td class="num">([^<]*)</td>', row)]


Points = list[tuple[int, float]]


@given(st.lists(st.lists(st.tuples(st.integers(0, 99), st.floats(-1e6, 1e6)), max_size=70), max_size=5))
def test_the_curve_kept_with_a_run_is_the_end_of_its_metric(batches: list[Points]) -> None:
    """Also where steps are trained again, come late, or out of order."""
    kept: list[list[float]] = []
    table: dict[int, float] = {}
    for batch in batches:
        table |= dict(batch)
        kept = run_metrics.carried_on([(int(step), value) for step, value in kept], dict(batch))
    assert kept == [[step, table[step]] for step in sorted(table)[-run_metrics.POINTS :]]


def test_the_curve_is_kept_as_metrics_come_and_drawn_without_reading_them(
    running: Run, people: dict[str, User]
) -> None:
    for step in range(1, 51):
        run_metrics.record(run=running, step=step, values={"reward/mean": step / 64, "loss/train": 9.0})
    run_metrics.record(run=running, step=49, values={"reward/mean": 0.0})
    running.refresh_from_db()
    assert running.curve == [[s, s / 64] for s in range(11, 49)] + [[49, 0.0], [50, 50 / 64]]
    viewer = visitor(people["viewer"])
    for path in ("/runs/", "/"):
        with CaptureQueriesContext(connection) as seen:
            html = viewer.get(path).content.decode()
        assert "<polyline" in html or "<path" in html
        assert not [query["sql"] for query in seen if "FROM runs_metric m" in query["sql"]]


def test_queries_do_not_grow_with_rows(three: list[Run], people: dict[str, User]) -> None:
    operator = visitor(people["operator"])

    def count(path: str) -> int:
        operator.get(path)
        with CaptureQueriesContext(connection) as seen:
            assert operator.get(path).status_code == 200
        return len(seen)

    paths = (
        "/runs/",
        "/runs/?cols=tags,best,wall,notes,code_version",
        "/runs/?sort=-pass1&pass1=0&reward=0&since=2026-01-01",
        "/runs/facets/",
        "/runs/sweeps/",
        "/runs/templates/",
    )
    before = {path: count(path) for path in paths}
    for number in range(4):
        run = services.create_run(config=RunConfig(name=f"more {number}", stage=SMALL), actor=people["operator"])
        labels.set_tags(run=run, tags=[f"t{number}"])
        saved_views.save(table="runs", name=str(number), query="", shared=True, owner=people["viewer"])
    assert {path: count(path) for path in paths} == before
    assert max(before.values()) <= 12, before
