"""The list of rollouts: its one line of filters, snippets of a search, and what is shown beside it."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from composer_web.rollouts.models import Rollout
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
