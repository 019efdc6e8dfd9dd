"""One rollout and one group closely over HTTP and from a terminal: the same as their pages say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from composer_web.accounts.services import create_token
from composer_web.rollouts.models import Group, Rollout
from tests.browser.seed import World
from tests.web import seeded
from tests.web.cli.support import command_line, data
from tests.web.seeded import client

pytestmark = pytest.mark.django_db
world = seeded.world


def get(page: Client, path: str, expected: int = 200) -> Any:
    answer = page.get(path)
    assert answer.status_code == expected, answer.content
    return answer.json()


def long(world: World) -> Rollout:
    return Rollout.objects.get(group__run=world.run, group__prompt_index=1, sample=0)


def test_tokens_are_those_of_the_lens(world: World) -> None:
    page, pk = client(world, "viewer"), long(world).pk
    for query in ("turn=130", "segment=0", "segment=0&at=1500"):
        assert get(page, f"/api/v1/rollouts/{pk}/tokens?{query}") == get(page, f"/rollouts/{pk}/tokens/?{query}")
    found = get(page, f"/api/v1/rollouts/{pk}/tokens?turn=130")
    assert any(found["sampled"]) and any(value is not None for value in found["advantages"])
    assert len({len(found[name]) for name in ("texts", "ids", "sampled", "versions", "logprobs", "weights")}) == 1
    for query in ("", "?turn=1&segment=0"):
        assert "one of them" in get(page, f"/api/v1/rollouts/{pk}/tokens{query}", 422)["error"]["message"]
    assert "152 turns" in get(page, f"/api/v1/rollouts/{pk}/tokens?turn=9999", 404)["error"]["message"]


def test_a_search_finds_what_the_page_finds(world: World) -> None:
    page, pk = client(world, "viewer"), long(world).pk
    found = get(page, f"/api/v1/rollouts/{pk}/search?q=EDIT")
    assert found["total"] >= len(found["hits"]) > 0 and {hit["match"].casefold() for hit in found["hits"]} == {"edit"}
    shown = page.get(f"/rollouts/{pk}/search/?q=EDIT").content.decode()
    assert shown.count("<mark>") == len(found["hits"])
    assert get(page, f"/api/v1/rollouts/{pk}/search?q=no such text")["hits"] == []
    get(page, f"/api/v1/rollouts/{pk}/search?q=", 422)


@pytest.mark.parametrize("form", ["html", "jsonl"])
def test_the_whole_is_the_file_of_the_page(world: World, form: str) -> None:
    page, pk = client(world, "viewer"), long(world).pk
    mine, its = page.get(f"/api/v1/rollouts/{pk}/whole/{form}"), page.get(f"/rollouts/{pk}/export/{form}/")
    assert mine.status_code == its.status_code == 200
    assert mine.getvalue() == its.getvalue() and mine["Content-Type"] == its["Content-Type"]
    assert get(page, f"/api/v1/rollouts/{pk}/whole/exe", 422)["error"]["message"].startswith("format")


def test_a_group_tells_what_its_rollouts_weigh_and_where_they_part(world: World) -> None:
    page, group = client(world, "viewer"), Group.objects.get(run=world.run, prompt_index=1)
    found = get(page, f"/api/v1/groups/{group.pk}/comparison")
    shown = page.get(f"/groups/{group.pk}/").context
    assert [one["rollout"] for one in found["columns"]] == [column.rollout.pk for column in shown["columns"]]
    assert [one["advantage"] for one in found["columns"]] == [
        column.weight.advantage if column.weight else None for column in shown["columns"]
    ]
    assert any(one["advantage"] for one in found["columns"]), "there is something to tell"
    assert found["parting"] == shown["ways"].parting is not None
    assert all(len(row) == len(found["columns"]) for row in found["ways"])
    assert len(set(found["ways"][found["parting"]])) > 1


def test_one_that_is_not_recorded_is_refused_in_words(world: World) -> None:
    pk = Rollout.objects.filter(artifact_key="").earliest("pk").pk
    for path in ("tokens?turn=0", "search?q=a", "whole/jsonl"):
        assert (
            "recorded trajectory"
            in get(client(world, "viewer"), f"/api/v1/rollouts/{pk}/{path}", 404)["error"]["message"]
        )


def test_from_a_terminal(world: World) -> None:
    _, secret = create_token(user=world.people["viewer"], name="cli", scopes=["read"])
    cli, rollout = command_line(secret), long(world)
    pk = str(rollout.pk)
    assert data(cli("rollout-tokens", "get", pk, "--turn", "130", "--at", "0", "--json"))["sampled"]
    assert data(cli("rollouts", "get", pk, "--search", "edit", "--json"))
    assert data(cli("groups", "get", str(rollout.group_id), "--compare", "--json"))["columns"]
    written = cli("trajectories", "get", pk, "--format", "jsonl")[1]
    assert json.loads(written.splitlines()[0])["type"] == "trajectory"
