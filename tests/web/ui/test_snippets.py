"""Commands to copy: what they send is what the page would do."""

from __future__ import annotations

import html
import json
import re
import shlex

import pytest

from composer_web.rollouts.export_models import Export
from composer_web.runs.launch.config_io import load
from composer_web.runs.launch.forms import default_values
from composer_web.runs.models import Run
from opencomposer.commands.exports import Table
from tests.browser import seed
from tests.web import seeded
from tests.web.seeded import client

pytestmark = pytest.mark.django_db
world = seeded.world


def sent(curl: str) -> tuple[str, str]:
    """Path and body of a request by curl."""
    words, _, rest = curl.partition(" <<'EOF'\n")
    url = next(word for word in shlex.split(words) if word.startswith("http://testserver/"))
    return url.removeprefix("http://testserver"), rest.removesuffix("\nEOF\n")


def shown(page: str) -> list[str]:
    return [html.unescape(text) for text in re.findall(r'data-snippet="([^"]*)"', page)]


def test_a_run_is_made_again_by_the_commands_of_its_config_tab(world: seed.World) -> None:
    page = client(world).get(f"/runs/{world.run.pk}/config/").content.decode()
    curl, call = [text for text in shown(page) if "runs" in text.partition("<<")[0]]
    path, body = sent(curl)
    config = json.loads(body) | {"name": "made again"}
    answer = client(world).post(path.replace("start=true", "start=false"), json.dumps(config), "application/json")
    assert answer.status_code == 201, answer.content
    made = Run.objects.get(pk=answer.json()["id"])
    assert made.configuration.stage == world.run.configuration.stage
    assert "opencomposer runs create - --start" in call
    assert load(call.partition("<<'EOF'\n")[2].removesuffix("EOF\n")) == world.run.configuration


def test_the_form_answers_with_the_command_of_what_it_holds(world: seed.World) -> None:
    posted = default_values() | {"name": "by hand", "stage": "rl", "action": "curl"}
    runs = Run.objects.count()
    answer = client(world).post("/runs/new/", posted)
    assert answer["Content-Type"].startswith("text/plain"), answer.content.decode()[:2000]
    path, body = sent(answer.content.decode())
    assert path == "/api/v1/runs?start=true" and json.loads(body)["name"] == "by hand"
    refused = client(world).post("/runs/new/", posted | {"stage.rl.steps": "-1"})
    assert "text/html" in refused["Content-Type"] and Run.objects.count() == runs


def test_an_export_is_asked_for_with_the_filters_of_its_list(world: seed.World) -> None:
    page = client(world).get("/rollouts/?verdict=failed&task=it's&page=1").content.decode()
    curl, call = (text.replace("{what}", "rollouts").replace("{format}", "csv") for text in shown(page))
    path, body = sent(curl)
    answer = client(world).post(path, body, "application/json")
    assert answer.status_code == 201, answer.content
    assert Export.objects.get(pk=answer.json()["id"]).query == "task=it%27s&verdict=failed"
    assert shlex.split(call)[2:6] == ["exports", "create", "rollouts", "verdict=failed"]
    assert "task=it's" in shlex.split(call)


def test_the_command_line_exports_each_table_of_the_pages() -> None:
    from composer_web.rollouts.exports.exported import TABLES

    assert set(Table.__args__) == set(TABLES)  # type: ignore[attr-defined]
