"""The frame around pages: which entry of the sidebar is marked, icons of the sprite, and the header of a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.template import Context
from django.test import Client, RequestFactory

from composer_web.accounts.models import User
from composer_web.runs import services
from composer_web.runs.models import Run, RunState
from composer_web.ui.templatetags import states
from composer_web.ui.templatetags.nav import current_entry, help_page
from scripts import icons

ROOT = Path(icons.__file__).resolve().parents[1]
IN_TEMPLATES = re.compile(r'{% icon "([\w-]+)"')
IN_MODULES = re.compile(r"\bicon\(([^)]+)\)")


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("/", "Home"),
        ("/runs/3/charts/", "Runs"),
        ("/groups/4/", "Rollouts"),
        ("/evaluations/3/", "Evaluations"),
        ("/evaluations/releases/", "Leaderboards"),
        ("/tasks/review/", "Tasks"),
    ],
)
def test_the_longest_prefix_is_current(path: str, label: str) -> None:
    entry = current_entry(path)
    assert entry is not None and entry.label == label


def test_pages_outside_of_the_sidebar_mark_nothing() -> None:
    assert current_entry("/tokens/") is None
    assert current_entry("/runsome/") is None


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("/runs/3/", "concepts/step/"),
        ("/runs/3/charts/", "guides/reports/"),
        ("/runs/3/rollouts/", "concepts/rollout/"),
        ("/runs/3/evals/", "guides/benchmark/"),
        ("/runs/3/config/", "reference/configuration/"),
        ("/runs/3/logs/", "how-to/debugging/"),
        ("/runs/3/system/", "guides/operations/"),
        ("/nowhere/", ""),
    ],
)
def test_each_tab_of_a_run_has_its_own_help(path: str, page: str) -> None:
    assert help_page(Context({"request": RequestFactory().get(path)})) == f"/help/{page}"


def test_the_sprite_is_what_its_script_makes() -> None:
    found = finders.find("img/icons.svg")
    assert found is not None
    assert Path(found).read_text() == icons.sprite(icons.source()), "run `python -m scripts.icons`"


def test_every_icon_that_templates_name_is_in_the_sprite() -> None:
    templates = [file.read_text() for file in (ROOT / "templates").rglob("*.html")]
    calls = [call for file in (ROOT / "static" / "js").rglob("*.js") for call in IN_MODULES.findall(file.read_text())]
    named = {name for text in templates for name in IN_TEMPLATES.findall(text)}
    named |= {name for call in calls for name in re.findall(r'"([a-z][\w-]+)"', call) if name != "good"}
    assert len(named) > 10
    assert named <= set(icons.ICONS)


@pytest.mark.django_db
def test_every_tab_of_a_run_keeps_its_frame(running: Run, people: dict[str, User]) -> None:
    client = Client()
    client.force_login(people["viewer"])
    services.add_event(run=running, kind="checkpoint", message="checkpoint of step 1 saved", step=1)
    overview = client.get(f"/runs/{running.pk}/").content.decode()
    frame = overview[overview.index('aria-label="Run"') :]
    tabs = re.findall(r'<a href="([^"]+)"', frame[: frame.index("</nav>")])
    assert len(tabs) == 7
    for address in tabs:
        html = client.get(address).content.decode()
        assert re.search(rf'href="{address}"\s+aria-current="page"', html), address
        assert html.count("<h1") == 1, address
        assert re.search(rf'data-run="{running.pk}"[^>]*aria-current="true"', html), "among the recent runs, and marked"
    here = {"HX-Current-URL": f"http://testserver/runs/{running.pk}/logs/?level=error"}
    assert 'aria-current="true"' in client.get("/runs/recent/", headers=here).content.decode()
    elsewhere = {"HX-Current-URL": "http://testserver/tasks/"}
    assert 'aria-current="true"' not in client.get("/runs/recent/", headers=elsewhere).content.decode()
    switch = client.get(f"/runs/switch/?run={running.pk}&tab=charts").content.decode()
    assert f"/runs/{running.pk}/" not in switch and "There is no other run" in switch


@pytest.mark.django_db
def test_the_switcher_stays_on_the_tab(running: Run, people: dict[str, User]) -> None:
    client = Client()
    client.force_login(people["viewer"])
    other = services.create_run(config=running.configuration.model_copy(update={"name": "another"}))
    assert f'href="/runs/{other.pk}/logs/"' in client.get(f"/runs/switch/?run={running.pk}&tab=logs").content.decode()
    assert f'href="/runs/{other.pk}/"' in client.get("/runs/switch/?run=x&tab=none").content.decode()


@pytest.mark.django_db
def test_events_are_searched_by_text_level_and_kind(running: Run, people: dict[str, User]) -> None:
    client = Client()
    client.force_login(people["viewer"])
    services.add_event(run=running, kind="checkpoint", message="checkpoint of step 1 saved", step=1)
    services.add_event(run=running, kind="infra", level="warning", message="an engine was lost")
    path = f"/runs/{running.pk}/logs/"
    assert "checkpoint of step 1" in client.get(path).content.decode()
    only = client.get(f"{path}?level=warning").content.decode()
    assert "an engine was lost" in only and "checkpoint of step 1" not in only
    assert "checkpoint of step 1" in client.get(f"{path}?q=STEP+1&kind=checkpoint").content.decode()
    assert "No event matches" in client.get(f"{path}?q=nothing-like-it").content.decode()


def test_every_state_of_a_run_has_a_meaning() -> None:
    assert set(RunState.values) == states.MEANINGS["run"].keys()
    html = states.state("running")
    assert 'popovertarget="state-run-running"' in html and 'id="state-run-running" popover' in html
    assert "<button" not in states.state("unheard-of")
