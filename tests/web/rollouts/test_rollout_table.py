"""The list of rollouts: its one line of filters, snippets of a search, and what is shown beside it."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from composer_web.review.models import Annotation, Queue
from composer_web.rollouts.models import Rollout
from composer_web.tasks.models import Task
from tests.browser import seed
from tests.web import seeded
from tests.web.seeded import client

pytestmark = pytest.mark.django_db
world = seeded.world


def test_a_search_shows_where_its_words_stand(world: seed.World) -> None:
    operator = client(world)
    html = operator.get("/rollouts/?text=scale").content.decode()
    assert "Match" in html
    shown = [row.pk for row in operator.get("/rollouts/?text=scale").context["table"].page.object_list.data]
    assert f'id="match-{shown[0]}"' in html
    assert "/rollouts/snippets/?q=scale" in html
    assert 'data-live="rollouts"' not in html, "a refresh would take the snippets away"
    ids = "&".join(f"id={pk}" for pk in shown[:3])
    found = operator.get(f"/rollouts/snippets/?q=scale&{ids}").content.decode()
    assert found.count("<mark>scale</mark>") == 3
    assert found.count("hx-swap-oob") == 3
    assert "Match" not in operator.get("/rollouts/").content.decode()
    hostile = operator.get(f"/rollouts/snippets/?q={quote('<script>')}&{ids}").content.decode()
    assert "<script>" not in hostile


def test_rollouts_without_a_verdict_are_counted_and_not_listed(world: seed.World) -> None:
    operator, path = client(world), f"/runs/{world.run.pk}/rollouts/"
    waiting = set(Rollout.objects.filter(group__run=world.run, verdict="").values_list("pk", flat=True))
    assert waiting
    answer = operator.get(path)
    shown = {row.pk for row in answer.context["table"].page.object_list.data}
    assert shown and not shown & waiting
    assert f"{len(waiting)} rollouts without a verdict yet" in answer.content.decode()
    assert 'href="?verdict=open"' in answer.content.decode()
    answer = operator.get(f"{path}?verdict=open")
    assert {row.pk for row in answer.context["table"].page.object_list.data} == waiting
    assert "without a verdict" not in answer.content.decode()
    overview = operator.get(f"/runs/{world.run.pk}/").content.decode()
    groups = overview.partition('id="run-groups"')[2].partition("</table>")[0]
    assert "Open: " in groups and "badge--busy" not in groups, "no group that has not ended"


def test_the_next_failure_of_a_run_is_one_press_away(world: seed.World) -> None:
    operator = client(world)
    failed = list(Rollout.objects.filter(group__run=world.run, verdict="failed").order_by("-pk"))
    assert len(failed) > 2
    for one, following in zip(failed, [*failed[1:], failed[0]], strict=True):
        assert operator.get(f"/rollouts/{one.pk}/next-failure/")["Location"] == f"/rollouts/{following.pk}/"
    assert "data-next-failure" in operator.get(f"/rollouts/{failed[0].pk}/").content.decode()


def test_filters_in_force_are_chips(world: seed.World) -> None:
    html = client(world).get("/rollouts/?verdict=failed&turns_min=2&text=scale&page=1").content.decode()
    assert 'aria-label="Remove filter Verdict: failed"' in html
    assert 'href="/rollouts/?turns_min=2&amp;text=scale"' in html
    assert html.count("Remove filter") == 2, "the search stands in its own field"
    assert 'value="scale"' in html
    assert html.count('<form class="toolbar__form"') == 1
    assert "filters__more" not in html


def test_what_came_of_a_rollout_is_shown_beside_the_list(world: seed.World) -> None:
    rollout = Rollout.objects.filter(group__run=world.run, verdict="failed").exclude(artifact_key="").latest("pk")
    html = client(world).get(f"/rollouts/{rollout.pk}/preview/").content.decode()
    for words in ("failed", "case-", "<h3>Patch</h3>", rollout.cause):
        assert words in html, words
    assert "<html" not in html


def test_the_ticked_are_annotated_together_or_not_at_all(world: seed.World) -> None:
    reviewer, picked = client(world, "reviewer"), list(Rollout.objects.order_by("pk").values_list("pk", flat=True)[:3])
    assert 'name="rollout"' in reviewer.get("/rollouts/").content.decode()
    assert 'name="rollout"' not in client(world, "viewer").get("/rollouts/").content.decode()

    def act(action: str, **values: str) -> str:
        given = {"rollout": picked, "action": action, "next": "/rollouts/?verdict=failed", **values}
        sender = {"referer": "http://testserver/rollouts/?verdict=failed"}
        answer = reviewer.post("/rollouts/bulk/", given, follow=True, headers=sender)
        assert answer.redirect_chain[-1][0].endswith("/rollouts/?verdict=failed")
        return " ".join(str(message) for message in answer.context["messages"])

    marks = Annotation.objects.filter(rollout__in=picked, removed_at=None)
    before = marks.count()
    assert "3 rollouts: tag leaks" in act("tag", value_tag="leaks")
    assert "3 rollouts: verdict bad" in act("verdict", value_verdict="bad")
    assert "3 rollouts: needs review" in act("needs_review")
    assert "3 rollouts: assignee reviewer" in act("assignee", value_assignee="reviewer")
    assert marks.filter(value="leaks").count() == marks.filter(kind="verdict", value="bad").count() == 3
    assert marks.count() >= before + 6
    assert "choose one of them" in act("assignee", value_assignee="nobody")
    assert "shorten it" in act("tag", value_tag="é")
    assert "action is 'erase'" in act("erase")
    queue = Queue.objects.filter(closed_at=None).earliest("pk")
    assert "no review queue is named" in act("queue")
    held = queue.items.filter(rollout__in=picked).count()
    assert f"{3 - held} added" in act("queue", value_queue=queue.name)
    assert queue.items.filter(rollout__in=picked).count() == 3
    assert reviewer.get("/rollouts/bulk/choices/").content.decode().count("<datalist") == 3
    assert client(world, "viewer").post("/rollouts/bulk/", {"rollout": picked}).status_code == 403


def test_a_run_is_found_by_number_or_name(world: seed.World) -> None:
    operator = client(world)
    of_run = set(Rollout.objects.filter(group__run=world.run).values_list("pk", flat=True))
    for given in (str(world.run.pk), f"%23{world.run.pk}", "SMALL+repositories", quote(world.run.name)):
        answer = operator.get(f"/rollouts/?run={given}")
        assert {row.pk for row in answer.context["table"].page.object_list.data} <= of_run, given
    assert f"Remove filter Run: {world.run.name}" in operator.get(f"/rollouts/?run={world.run.pk}").content.decode()
    for address in ("/rollouts/", "/evaluations/", "/annotations/", "/findings/"):
        assert operator.get(f"{address}?run=small+repositories").status_code == 200
        refused = operator.get(f"{address}?run=nothing+like+it")
        assert refused.status_code == 422 and "choose one of the names" in refused.content.decode()
    several = operator.get("/rollouts/?run=RL")
    assert several.status_code == 422 and f"#{world.run.pk}" in several.content.decode()
    names = operator.get("/runs/names/").content.decode()
    assert f'value="{world.run.name}"' in names


def test_runs_and_tasks_are_shown_beside_their_lists_too(world: seed.World) -> None:
    operator, task = client(world), Task.objects.earliest("pk")
    assert world.run.name in operator.get(f"/runs/{world.run.pk}/preview/").content.decode()
    html = operator.get(f"/tasks/{task.slug}/preview/").content.decode()
    assert task.slug in html and "Instruction" in html and "<html" not in html


def columns(html: str) -> list[str]:
    """Headings of the list's table, in their order."""
    head = html.partition("<thead")[2].partition("</thead>")[0]
    cells = re.findall(r"<th\b[^>]*>(.*?)</th>", head, re.DOTALL)
    texts = [[text.strip() for text in re.findall(r">([^<>]+)<", f">{cell}<") if text.strip()] for cell in cells]
    return [text[0] for text in texts if text]


@pytest.mark.parametrize("path", ["/rollouts/", "/runs/{run}/rollouts/"])
def test_columns_of_rollouts_are_chosen_and_ordered(world: seed.World, path: str) -> None:
    viewer, path = client(world, "viewer"), path.format(run=world.run.pk)
    usual = columns(viewer.get(path).content.decode())
    assert "Verdict" in usual and "Tool calls" not in usual
    html = viewer.get(f"{path}?cols=tool_calls,reward,nonsense").content.decode()
    assert columns(html) == ["Rollout", "Tool calls", "Reward"]
    assert 'value="tool_calls" checked' in html and 'value="verdict"' in html
    assert 'value="verdict" checked' not in html
    searched = viewer.get(f"{path}?cols=tool_errors&text=scale").content.decode()
    assert columns(searched) == ["Rollout", "Match", "Tool errors"], "chosen: not in the way"


def test_columns_of_findings_are_chosen_and_ordered(world: seed.World) -> None:
    html = client(world, "viewer").get("/findings/?cols=state,rule").content.decode()
    assert columns(html) == ["Finding", "State", "Rule"]
    assert 'value="severity"' in html and 'value="severity" checked' not in html
