"""Pages of rollouts: a trajectory in windows, its turns narrowed, side by side with others, and as files."""

from __future__ import annotations

import json
import re

import pytest

from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch.services import pump
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.trajectory import trajectory_store
from tests.browser import seed
from tests.web import seeded
from tests.web.helpers import as_read
from tests.web.seeded import client

pytestmark = pytest.mark.django_db
world = seeded.world


def test_hostile_trajectory_is_only_text(world: seed.World) -> None:
    rollout = Rollout.objects.filter(group__run=world.run, group__prompt_index=0).earliest("pk")
    pair = "&".join(f"pair={pk}" for pk in rollout.group.rollouts.values_list("pk", flat=True)[:2])
    for path in (
        f"/rollouts/{rollout.pk}/",
        f"/rollouts/{rollout.pk}/tokens/",
        f"/rollouts/{rollout.pk}/search/?q=<script>",
        f"/groups/{rollout.group_id}/?{pair}",
    ):
        html = client(world).get(path).content.decode()
        assert "<script>alert" not in html
        assert "<img src=x" not in html
    html = client(world).get(f"/rollouts/{rollout.pk}/").content.decode()
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 5  # message, text, arguments, output, patch
    assert "{{ 7*7 }}" in html
    assert "cut the middle out of outputs in 1 turn " in html
    assert "4096 bytes cut by the harness" in html


def test_trajectory_shows_everything(world: seed.World) -> None:
    rollout = Rollout.objects.filter(group__run=world.run, verdict="failed").latest("pk")
    html = client(world).get(f"/rollouts/{rollout.pk}/").content.decode()
    for text in (
        "Turn 4",
        "edit_file",
        "old_string not found",
        "not found",
        "case-000",
        "diff__old",
        "diff__new",
        "of 6 cases failed",
        "length",
        "memory, processes, disk",
        "finished",
    ):
        assert text in html, text
    position = f"{rollout.sample + 1} of 8"
    assert position in html
    assert ('rel="prev"' in html) == (rollout.sample > 0)
    assert ('rel="next"' in html) == (rollout.sample < 7)


def test_the_outcome_comes_first_and_what_is_read_seldom_comes_folded(world: seed.World) -> None:
    rollout = Rollout.objects.filter(group__run=world.run, verdict="failed").exclude(artifact_key="").latest("pk")
    told = selectors.trajectory(rollout)
    messages = ({"role": "system", "content": "You repair repositories."}, *told.messages)
    trajectory_store.record(rollout.artifact_key, told.model_copy(update={"messages": messages}))
    html = as_read(client(world).get(f"/rollouts/{rollout.pk}/").content)
    parts = (
        'class="figures figures--outcome"',
        'id="report"',
        'id="reward"',
        'id="patch"',
        "<h2>Transcript",
        'id="opening"',
    )
    places = [html.index(part) for part in (*parts, 'id="turns"', "<h2>Details</h2>", 'id="fork"')]
    assert places == sorted(places)
    prompts = re.findall(r'<details class="card call prompt"( open)?><summary><h3>(\w+) prompt</h3>', html)
    assert prompts == [("", "System"), (" open", "User")]


def test_cases_that_passed_are_one_row_until_they_are_asked_for(world: seed.World) -> None:
    report = r'<section class="card" id="report">.*?</section>'
    failed = Rollout.objects.filter(group__run=world.run, verdict="failed").exclude(artifact_key="")
    rollout = next(one for one in failed if 0 < len(_cases(one, "passed")) < 6)
    (html,) = re.findall(report, as_read(client(world).get(f"/rollouts/{rollout.pk}/").content))
    before, folded = html.split('<details class="call">')
    assert re.findall(r'id="case-(case-\d+)"', before) == _cases(rollout, "failed")
    assert folded.startswith(f"<summary>{len(_cases(rollout, 'passed'))} passed</summary>")
    assert re.findall(r'id="case-(case-\d+)"', folded) == _cases(rollout, "passed")
    whole = Rollout.objects.filter(group__run=world.run, verdict="passed").exclude(artifact_key="").latest("pk")
    (html,) = re.findall(report, as_read(client(world).get(f"/rollouts/{whole.pk}/").content))
    assert "id=" not in html.partition("<details")[0].removeprefix('<section class="card" id="report">')


def _cases(rollout: Rollout, status: str) -> list[str]:
    return [case.id for case in selectors.trajectory(rollout).report.cases if case.status == status]


def test_a_long_trajectory_comes_in_windows(world: seed.World) -> None:
    rollout = Rollout.objects.get(group__run=world.run, group__prompt_index=1, sample=0)
    path, operator = f"/rollouts/{rollout.pk}/", client(world)
    html = operator.get(path).content.decode()
    assert html.count("data-turn=") == 20
    assert "Turns from 21 of 152" in html
    html = operator.get(f"{path}?turn=151").content.decode()
    assert 'id="t=151"' in html
    assert 'data-window="7"' in html
    later = operator.get(f"{path}turns/?at=60").content.decode()
    assert (later.count("data-turn="), 'data-window="3"' in later, "data-gap" in later) == (20, True, False)
    assert operator.get(f"{path}turns/?turn=x").status_code == 404
    assert "does not occur" in operator.get(f"{path}search/?q=zebra").content.decode()
    hits = operator.get(f"{path}search/?q=finish").content.decode()
    assert 'href="#t=151"' in hits


def test_chips_narrow_the_turns(world: seed.World) -> None:
    rollout = Rollout.objects.get(group__run=world.run, group__prompt_index=1, sample=0)
    path, operator = f"/rollouts/{rollout.pk}/", client(world)
    html = operator.get(f"{path}?only=tool:finish").content.decode()
    assert html.count("data-turn=") == 1
    assert 'data-only="tool:finish" aria-pressed="true"' in html
    window = operator.get(f"{path}turns/?only=tool:grep&at=40").content.decode()
    assert (window.count("data-turn="), 'data-total="75"' in window) == (20, True)
    assert 'data-turn="80"' in window
    assert "No turn is left" in operator.get(f"{path}?only=summaries,<script>").content.decode()
    one = operator.get(f"{path}turns/?one=151").content.decode()
    assert one.count("data-turn=") == 1
    assert operator.get(f"{path}turns/?one=152").status_code == 404


def test_rollouts_of_a_prompt_side_by_side(world: seed.World) -> None:
    group = Rollout.objects.get(group__run=world.run, group__prompt_index=1, sample=0).group
    first, second = group.rollouts.order_by("sample")[1:3]
    operator, path = client(world), f"/groups/{group.pk}/"
    html = operator.get(path).content.decode()
    assert html.count('name="pair"') == group.size
    assert "Diverges at turn 3" in html
    assert "Part: tests" in html
    both = operator.get(f"{path}?pair={first.pk}&pair={second.pk}").content.decode()
    assert "Side by side</h2>" in both
    assert "identical: grep, read_file" in both
    assert both.count("<h3>Turn 1</h3>") == 1, "identical turns are folded into one"
    assert html.count("Identical in all 8") == 1
    other = group.rollouts.exclude(verdict=first.verdict).earliest("sample")
    apart = operator.get(f"{path}?pair={first.pk}&pair={other.pk}").content.decode()
    assert (apart.count("<h3>Turn 1</h3>"), apart.count("<h3>Turn 3</h3>")) == (1, 2)
    assert '<mark class="differs">' in apart
    assert "Side by side</h2>" not in operator.get(f"{path}?pair={first.pk}&pair=1").content.decode()
    assert operator.get("/groups/999999/").status_code == 404


def test_download_is_the_whole_trajectory(world: seed.World) -> None:
    rollout = Rollout.objects.filter(group__run=world.run).exclude(artifact_key="").latest("pk")
    answer = client(world).get(f"/rollouts/{rollout.pk}/download/")
    assert answer["Content-Disposition"] == f'attachment; filename="rollout-{rollout.pk}.json"'
    assert json.loads(b"".join(answer.streaming_content))["turns"][0]["calls"][0]["name"] == "grep"


def test_a_trajectory_leaves_as_a_page_as_lines_and_as_atif(world: seed.World) -> None:
    rollout = Rollout.objects.filter(group__run=world.run, group__prompt_index=0).earliest("pk")
    operator, path = client(world), f"/rollouts/{rollout.pk}/export/"
    answer = operator.get(f"{path}html/")
    html = b"".join(answer.streaming_content).decode()
    assert answer["Content-Disposition"] == f'attachment; filename="rollout-{rollout.pk}.html"'
    assert html.count("<h3>Turn ") == 4
    assert "default-src 'none'" in html
    assert "{{ 7*7 }}" in html
    assert not re.search(r"<(script|img|link|form|iframe)\b", html)
    lines = [json.loads(line) for line in b"".join(operator.get(f"{path}jsonl/").streaming_content).splitlines()]
    assert [line["type"] for line in lines] == ["trajectory", "turn", "turn", "turn", "turn", "segment"]
    assert lines[1]["calls"][0]["name"] == "grep"
    assert len(lines[5]["tokens"]) == len(lines[5]["logprobs"])
    answer = operator.get(f"{path}atif/")
    assert answer["Content-Disposition"] == f'attachment; filename="rollout-{rollout.pk}.atif.json"'
    atif = json.loads(b"".join(answer.streaming_content))
    assert atif["schema_version"].startswith("ATIF-v1")
    assert [step["source"] for step in atif["steps"]] == ["user", *["agent"] * 4]
    assert operator.get(f"{path}docx/").status_code == 404
    assert operator.get("/rollouts/999999/export/html/").status_code == 404


def test_a_run_as_tasks_and_rollouts(world: seed.World) -> None:
    path, operator = f"/rollouts/waffle/{world.run.pk}/", client(world)
    html = operator.get(path).content.decode()
    assert html.count('aria-label="sample ') >= 32
    assert 'aria-label="sample 0: ' in html
    hardest = operator.get(f"{path}?sort=reward").content.decode()
    means = re.findall(r'of 8</td><td class="num">([-\d.]+)', hardest)
    assert means == sorted(means, key=float)
    assert operator.get("/rollouts/waffle/999999/").status_code == 404
    assert "No prompt of this run" in operator.get(f"/rollouts/waffle/{world.finished.pk}/").content.decode()


def test_open_rollout_says_so(world: seed.World) -> None:
    pump(run_id=world.run.pk)
    rollout = Rollout.objects.filter(group__run=world.run, verdict="").earliest("pk")
    html = client(world).get(f"/rollouts/{rollout.pk}/").content.decode()
    assert "its trajectory appears here turn by turn" in html
    assert client(world).get(f"/rollouts/{rollout.pk}/download/").status_code == 404
