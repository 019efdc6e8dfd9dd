"""Reports: their text, their writes, pages, API and command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import AuditEntry, User
from composer_web.core.errors import Conflict, UserError
from composer_web.runs import metrics, services
from composer_web.runs.models import Report, Run
from composer_web.runs.reports import services as reports
from composer_web.runs.reports.text import render
from tests.web.cli.fixtures import Cli
from tests.web.making import SMALL
from tests.web.pool import browser
from trainer.config import RunConfig

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]


@pytest.fixture
def measured(draft: Run) -> Run:
    metrics.record(run=draft, step=1, values={"reward/mean": 0.5, "custom/loss_of_mine": 1.0})
    return draft


def panel(*runs: int, **changes: Any) -> dict[str, Any]:
    return {"kind": "panel", "title": "Reward", "keys": ["reward/mean"], "runs": list(runs), **changes}


def text(words: str) -> dict[str, Any]:
    return {"kind": "text", "text": words}


@pytest.mark.parametrize(
    ("given", "holds", "lacks"),
    [
        ("# Title", "<h2>Title</h2>", "<h1"),
        ("<script>alert(1)</script>", "&lt;script&gt;", "<script"),
        ("a <img src=x onerror=alert(1)> b", "&lt;img", "<img"),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))", "href"),
        ("[x](data:text/html;base64,PHNjcmlwdD4=)", "[x](data:", "href"),
        ("[x](//evil.example)", "[x](//evil.example)", "href"),
        ("![x](https://evil.example/pixel.png)", 'href="https://evil.example/pixel.png"', "<img"),
        ("[run](/runs/3/)", 'href="/runs/3/" rel="noopener nofollow"', "target"),
        ("| a | b |\n|--|--:|\n| 1 | 2 |", '<td class="num">2</td>', "style="),
    ],
)
def test_text_is_markdown_that_cannot_act(given: str, holds: str, lacks: str) -> None:
    html = render(given)
    assert holds in html
    assert lacks not in html


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ({"kind": "picture"}, "blocks.0"),
        (panel(), "blocks.0.runs"),
        (panel(1, axis="place"), "blocks.0.axis"),
        (panel(1, smoothing=1), "blocks.0.smoothing"),
        (panel(1, colour="red"), "blocks.0.colour"),
        (panel(1, 1), "blocks.0"),
        (panel(*range(1, 9)), "blocks.0"),
        (panel(99), "blocks.0.runs"),
        (text("a\x00"), "blocks.0.text"),
    ],
)
def test_refusals_name_the_block(block: dict[str, Any], field: str, people: dict[str, User]) -> None:
    with pytest.raises(UserError) as refused:
        reports.create_report(title="x", blocks=[block], actor=people["operator"])
    assert refused.value.field == field
    assert not Report.objects.exists()


def test_an_unknown_metric_is_refused_with_the_nearest(measured: Run, people: dict[str, User]) -> None:
    with pytest.raises(UserError, match=r"nearest: custom/loss_of_mine"):
        reports.create_report(
            title="x", blocks=[panel(measured.pk, keys=["custom/los_of_mine"])], actor=people["operator"]
        )
    made = reports.create_report(
        title="x", blocks=[panel(measured.pk, keys=["custom/loss_of_mine"])], actor=people["operator"]
    )
    assert reports.content_of(made).run_ids == {measured.pk}


def test_writes_are_audited_and_an_older_version_is_refused(measured: Run, people: dict[str, User]) -> None:
    operator = people["operator"]
    made = reports.create_report(title=" Week 1 ", blocks=[text("one")], actor=operator)
    assert (made.title, made.version) == ("Week 1", 1)
    saved = reports.update_report(report=made, blocks=[text("two"), panel(measured.pk)], version=1, actor=operator)
    assert saved.version == 2
    with pytest.raises(Conflict, match="version 2, yours began with 1"):
        reports.update_report(report=made, title="other", version=1, actor=operator)
    for title in ("", "x" * 121):
        with pytest.raises(UserError) as refused:
            reports.update_report(report=made, title=title, actor=operator)
        assert refused.value.field == "title"
    entry = AuditEntry.objects.filter(action="report.update").latest("pk")
    assert entry.changes[0]["before"]["blocks"] == [text("one")]
    reports.delete_report(report=saved, actor=operator)
    assert AuditEntry.objects.filter(action="report.delete").exists()
    with pytest.raises(IntegrityError):
        Report.objects.create(title="")


def test_viewers_read_and_operators_write(measured: Run, people: dict[str, User]) -> None:
    made = reports.create_report(
        title="Week 1",
        blocks=[text("**one**"), panel(measured.pk, axis="time", smoothing=0.6)],
        actor=people["operator"],
    )
    viewer, operator = browser(people["viewer"]), browser(people["operator"])
    html = viewer.get(f"/reports/{made.pk}/").content.decode()
    assert "<strong>one</strong>" in html and 'data-axis="time" data-smooth="0.6"' in html
    assert f"http://testserver/reports/{made.pk}/</span>" in html
    assert "Delete" not in html and "data-add-to-report" not in html
    assert "Week 1" in viewer.get("/reports/").content.decode()
    for path in (f"/reports/{made.pk}/edit/", "/reports/new/", "/reports/add/"):
        assert viewer.get(path).status_code == 403, path
    assert viewer.post(f"/reports/{made.pk}/delete/").status_code == 403
    assert operator.post(f"/reports/{made.pk}/delete/").status_code == 302
    assert not Report.objects.exists()


def form(*blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """What the editor posts for these blocks."""
    found: dict[str, Any] = {"block": [f"b{at}" for at in range(len(blocks))], "title": "Week 1", **fields}
    for at, block in enumerate(blocks):
        found |= {f"b{at}.{name}": value for name, value in block.items()}
    return found


def test_the_editor_saves_what_is_right_and_keeps_what_is_not(measured: Run, people: dict[str, User]) -> None:
    page = browser(people["operator"])
    one = {"kind": "text", "text": "first"}
    two = {"kind": "panel", "key": "reward/mean", "run": f"{measured.name} #{measured.pk}", "axis": "tokens"}
    answer = page.post("/reports/new/", form(one, two))
    made = Report.objects.get()
    assert answer.headers["Location"] == f"/reports/{made.pk}/"
    assert [block["kind"] for block in made.blocks] == ["text", "panel"]
    assert made.blocks[1] | {"keys": ["reward/mean"], "runs": [measured.pk], "axis": "tokens"} == made.blocks[1]

    wrong = [{"kind": "panel", "key": "rewards/mean", "run": "no such run"}, {"kind": "panel", "title": "Empty"}]
    path = f"/reports/{made.pk}/edit/"
    typed = form({**one, "text": "typed <b>"}, *wrong, version=1)
    refused = page.post(path, typed, headers={"HX-Request": "true"})
    html = refused.content.decode()
    assert (refused.status_code, refused.headers["HX-Retarget"]) == (422, "#report-editor")
    for shown in ("typed &lt;b&gt;</textarea>", 'value="rewards/mean"', 'value="no such run"', "nearest: reward/mean"):
        assert shown in html, shown
    refused = page.post(path, form(wrong[1], title="", version=1), headers={"HX-Request": "true"})
    html = refused.content.decode()
    for shown in ("a title has 1 to 120 characters", "choose at least one metric", "choose at least one run"):
        assert shown in html, shown

    reports.update_report(report=made, title="By another", actor=people["admin"])
    html = page.post(path, form(one, version=1), headers={"HX-Request": "true"}).content.decode()
    assert "saved meanwhile" in html and 'name="version" value="2"' in html
    saved = page.post(path, form(one, version=2), headers={"HX-Request": "true"})
    assert saved.headers["HX-Redirect"] == f"/reports/{made.pk}/"
    assert Report.objects.get().title == "Week 1"


def test_a_panel_is_added_from_a_chart(measured: Run, people: dict[str, User]) -> None:
    page = browser(people["operator"])
    given = {
        "title": "Reward",
        "key": ["reward/mean"],
        "run": [measured.pk],
        "axis": "time",
        "smoothing": "0.5",
        "group": "",
    }
    assert "New report" in page.get("/reports/add/", given).content.decode()
    html = page.post("/reports/add/", given | {"report": "", "name": ""}).content.decode()
    assert "a title has 1 to" in html and 'name="key" value="reward/mean"' in html
    assert "Panel added to" in page.post("/reports/add/", given | {"report": "", "name": "Mine"}).content.decode()
    made = Report.objects.get()
    page.post("/reports/add/", given | {"report": made.pk, "title": "Again"})
    made.refresh_from_db()
    assert [(block["title"], block["axis"], block["smoothing"]) for block in made.blocks] == [
        ("Reward", "time", 0.5),
        ("Again", "time", 0.5),
    ]
    missing = page.post("/reports/add/", given | {"report": 10**6})
    assert "there is no report 1000000" in missing.content.decode()


def test_reading_asks_as_often_however_many_panels(measured: Run, people: dict[str, User]) -> None:
    others = [services.create_run(config=RunConfig(name=f"r{n}", stage=SMALL)) for n in range(4)]
    one = reports.create_report(title="one", blocks=[panel(measured.pk)], actor=people["operator"])
    many = reports.create_report(
        title="many",
        blocks=[panel(measured.pk, *(run.pk for run in others), group="all") for _ in range(8)],
        actor=people["operator"],
    )
    page = browser(people["operator"])
    for end in ("", "edit/"):
        counts = []
        for report in (one, many):
            page.get(f"/reports/{report.pk}/{end}")
            with CaptureQueriesContext(connection) as seen:
                assert page.get(f"/reports/{report.pk}/{end}").status_code == 200
            counts.append(len(seen))
        assert counts[0] == counts[1], (end, counts)


def test_api_and_command_line(measured: Run, bearer: Bearer, cli: Cli, tmp_path: Path) -> None:
    client = Client(headers=bearer("operator", "read", "operate"))
    body = {"title": "Week 1", "blocks": [text("one"), panel(measured.pk)]}
    made = client.post("/api/v1/reports", json.dumps(body), "application/json")
    assert made.status_code == 201, made.content
    address = f"/api/v1/reports/{made.json()['id']}"
    assert client.get(address).json()["blocks"][1]["runs"] == [measured.pk]
    wrong = client.patch(address, json.dumps({"blocks": [panel(99)]}), "application/json")
    assert (wrong.status_code, wrong.json()["error"]["field"]) == (422, "blocks.0.runs")
    assert client.patch(address, json.dumps({"title": "b", "version": 9}), "application/json").status_code == 409
    file = tmp_path / "blocks.json"
    file.write_text(json.dumps([text("two")]))
    assert cli("reports", "update", str(made.json()["id"]), "--blocks", str(file), "--title", "Week 2")[0] == 0
    assert cli("reports", "create", "Other", "--blocks", str(file))[0] == 0
    status, listed = cli("reports", "list", "--json")
    assert status == 0 and [one["title"] for one in json.loads(listed)] == ["Other", "Week 2"]
    assert json.loads(cli("reports", "get", str(made.json()["id"]), "--json")[1])["blocks"] == [text("two")]
    assert cli("reports", "delete", str(made.json()["id"]))[0] == 0
    assert client.get(address).status_code == 404
