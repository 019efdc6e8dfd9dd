"""Panels of a run's charts page: of the run, its project, the installation, or built in; from page, API and command line."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.core.errors import Denied, UserError
from composer_web.runs.charts import layouts
from composer_web.runs.charts.panels import headline
from composer_web.runs.models import ChartLayout, Run
from tests.web.cli.fixtures import Cli
from tests.web.pool import browser

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]
LOSS = {"title": "Rewards", "keys": ["reward/mean", "reward/best_of_k"], "size": 2, "height": 2, "section": "Learning"}
IDLE = {"title": "Idle", "keys": ["idle/trainer"], "pinned": True}


def test_a_runs_panels_come_before_its_projects_and_those_before_the_built_in(
    draft: Run, people: dict[str, User]
) -> None:
    operator = people["operator"]
    assert layouts.of_run(draft) == (None, "default")
    assert layouts.panels_of(draft) == headline(draft.kind, draft.latest)
    layouts.save(run=draft, scope="project", layout=layouts.parse([IDLE]), actor=operator)
    assert [panel.title for panel in layouts.panels_of(draft)] == ["Idle"]
    layouts.save(run=draft, scope="run", layout=layouts.parse([LOSS, IDLE]), actor=operator)
    layouts.save(run=draft, scope="run", layout=layouts.parse([LOSS, IDLE]), actor=operator)
    assert [panel.title for panel in layouts.panels_of(draft)] == ["Idle", "Rewards"], "pinned ones come first"
    assert ChartLayout.objects.count() == 2
    layouts.reset(run=draft, scope="run", actor=operator)
    assert layouts.of_run(draft)[1] == "project"
    layouts.save(run=draft, scope="installation", layout=layouts.parse([LOSS]), actor=people["admin"])
    layouts.reset(run=draft, scope="project", actor=operator)
    assert layouts.of_run(draft)[1] == "installation"
    assert [(panel.title, panel.height) for panel in layouts.panels_of(draft)] == [("Rewards", 2)]
    for change in (layouts.reset, functools.partial(layouts.save, layout=layouts.parse([IDLE]))):
        with pytest.raises(Denied, match="for its admins"):
            change(run=draft, scope="installation", actor=operator)
    layouts.reset(run=draft, scope="installation", actor=people["admin"])
    assert layouts.of_run(draft) == (None, "default")


def test_sections_stay_together_and_built_in_panels_keep_their_axes() -> None:
    specs = [
        layouts.PanelSpec(title="a", keys=("x/a",), section="One"),
        layouts.PanelSpec(title="b", keys=("x/b",)),
        layouts.PanelSpec(title="c", keys=("x/c",), section="One"),
    ]
    built_in = headline("rl")
    two = next(panel for panel in built_in if panel.right)
    found = layouts.arrange([*specs, layouts.PanelSpec(title="mine", keys=two.shown, size=3)], built_in)
    assert [panel.title for panel in found] == ["a", "c", "b", "mine"]
    assert (found[-1].right, found[-1].labels, found[-1].size) == (two.right, two.labels, 3)


@pytest.mark.parametrize(
    ("panels", "field"),
    [
        ([], "panels"),
        ([{"title": "x", "keys": []}], "panels.0.keys"),
        ([{"title": "x", "keys": ["<b>"]}], "panels.0.keys.0"),
        ([{"title": "x", "keys": ["a"], "size": 9}], "panels.0.size"),
        ([{"title": "x", "keys": ["a"], "height": 0}], "panels.0.height"),
        ([{"title": "x", "keys": ["a"], "colour": "red"}], "panels.0.colour"),
        ("no list", "panels"),
    ],
)
def test_refusals_name_the_panel(panels: object, field: str) -> None:
    with pytest.raises(UserError) as refused:
        layouts.parse(panels)
    assert refused.value.field == field


def test_the_page_saves_and_adds(draft: Run, people: dict[str, User]) -> None:
    page, path = browser(people["operator"]), f"/runs/{draft.pk}/"
    html = page.get(f"{path}charts/").content.decode()
    assert "Built-in panels" in html
    assert "data-grid-room" in html
    added = page.get(f"{path}panel/?key=loss/train&key=loss/heldout&title=Losses").content.decode()
    assert added.count("data-chart ") == 1
    assert "Losses" in added
    for query, reason in (("title=none", "keys"), ("key=los/train", "nearest: loss/train")):
        refused = page.get(f"{path}panel/?{query}")
        assert (refused.status_code, refused.headers["HX-Retarget"]) == (422, "#panel-refused")
        assert reason in refused.content.decode()
    page.post(f"{path}panels/", {"panels": json.dumps([LOSS, IDLE]), "scope": "run"})
    html = page.get(f"{path}charts/").content.decode()
    assert "Panels of this run" in html
    assert html.count("data-chart ") == 2
    assert 'class="charts__section">Learning<' in html
    assert re.search(r"chart--2\s+chart--high-2", html)
    for given, reason in (({"panels": "{"}, "no JSON"), ({"panels": "[]", "scope": "world"}, "use one of run")):
        answer = page.post(f"{path}panels/", given)
        assert (answer.status_code, answer.headers["HX-Retarget"]) == (422, "#panels-refused")
        assert reason in answer.content.decode()
    assert page.post(f"{path}panels/", {"panels": json.dumps([LOSS]), "scope": "installation"}).status_code == 403
    assert "Save as default" not in html
    assert "Save as default" in browser(people["admin"]).get(f"{path}charts/").content.decode()
    page.post(f"{path}panels/", {"reset": "run"})
    assert "Built-in panels" in page.get(f"{path}charts/").content.decode()
    viewer = browser(people["viewer"])
    assert viewer.post(f"{path}panels/", {"panels": "[]"}).status_code == 403
    assert "data-grid " not in viewer.get(f"{path}charts/").content.decode()


def test_api_and_command_line(
    draft: Run, bearer: Bearer, cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"/api/v1/runs/{draft.pk}/charts/panels"
    client = Client(headers=bearer("operator", "read", "operate"))
    assert client.get(address).json()["scope"] == "default"
    saved = client.put(address, json.dumps({"scope": "project", "panels": [LOSS]}), "application/json")
    assert (saved.status_code, saved.json()["scope"]) == (200, "project"), saved.content
    assert client.put(address, json.dumps({"panels": []}), "application/json").status_code == 422
    default = json.dumps({"scope": "installation", "panels": [LOSS]})
    assert client.put(address, default, "application/json").status_code == 403
    narrow = Client(headers=bearer("admin", "operate"))
    assert narrow.put(address, default, "application/json").status_code == 403, "the token is narrower than its owner"
    file = tmp_path / "panels.json"
    file.write_text(json.dumps([IDLE]))
    assert cli("panels", "update", str(draft.pk), str(file))[0] == 0
    assert client.get(address).json()["scope"] == "run"
    assert cli("panels", "delete", str(draft.pk))[0] == 0
    assert client.delete(f"{address}/project").status_code == 204
    assert client.get(address).json()["scope"] == "default"
