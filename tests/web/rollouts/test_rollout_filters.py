"""The filters of the rollouts list: on the page, in the API, and for a review queue they find the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.review.filling import found_by
from composer_web.rollouts.dispatch import findings, services
from composer_web.rollouts.models import Finding, Group, Quarantine, Rollout
from composer_web.runs.models import Run
from tests.web.making import claim, finish

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]


@pytest.fixture
def recorded(running: Run, people: dict[str, User]) -> list[Rollout]:
    """Four rollouts: of the first prompt, trained in step 7, with 0 and 3 tool errors; of the second 2 and 40 turns."""
    services.pump(run_id=running.pk)
    groups = list(Group.objects.filter(run=running).order_by("prompt_index")[:2])
    for group in groups:
        claimed = claim(group)
        finish(claimed.group, claimed.held, [True, False])
    services.consume(run=running, group_ids=[groups[0].pk], step=7)
    rows = list(Rollout.objects.filter(group__in=groups).order_by("pk"))
    for row, errors, turns, tokens in zip(rows, (0, 3, 0, 1), (5, 5, 2, 40), (10, 20, 300, 4000), strict=True):
        Rollout.objects.filter(pk=row.pk).update(tool_errors=errors, turns=turns, output_tokens=tokens)
    for row, rule in ((rows[0], "early-exit"), (rows[1], "tampering"), (rows[2], "tampering")):
        made = Finding.objects.create(
            subject="rollout",
            rollout=row,
            group=row.group,
            task_version=row.group.task_version,
            rule=rule,
            rule_version=1,
            severity="low",
            summary="seen",
        )
        if row is rows[2]:
            findings.decide(finding=made, to="dismissed", actor=people["reviewer"])
    Quarantine.objects.create(rollout=rows[1])
    Quarantine.objects.create(rollout=rows[3], state="active")
    return rows


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("finding=any", [0, 1]),
        ("finding=none", [2, 3]),
        ("finding=early-exit", [0]),
        ("quarantined=true", [1, 3]),
        ("quarantined=false", [0, 2]),
        ("tool_errors_min=1", [1, 3]),
        ("tool_errors_max=0&finding=any", [0]),
        ("turns_min=3&turns_max=39", [0, 1]),
        ("tokens_min=300", [2, 3]),
        ("tokens_max=10", [0]),
        ("step_min=7&step_max=7", [0, 1]),
        ("step_min=8", []),
        ("step_max=6", []),
    ],
)
def test_page_api_and_queue_find_the_same(
    recorded: list[Rollout], people: dict[str, User], bearer: Bearer, query: str, wanted: list[int]
) -> None:
    expected = [recorded[place].pk for place in wanted]
    recorded_only = f"{query}&run={recorded[0].group.run_id}&verdict="
    page = Client()
    page.force_login(people["viewer"])
    answer = page.get(f"/rollouts/?{query}")
    shown = [row.pk for row in answer.context["table"].page.object_list.data if row.verdict]
    assert sorted(shown) == expected
    api = Client().get(f"/api/v1/rollouts?{query}", headers=bearer("viewer")).json()
    assert sorted(row["id"] for row in api["items"] if row["verdict"]) == expected
    assert sorted(found_by(recorded_only).exclude(verdict="").values_list("pk", flat=True)) == expected


def test_chips_set_one_filter_beside_the_others(recorded: list[Rollout], people: dict[str, User]) -> None:
    page = Client()
    page.force_login(people["viewer"])
    html = page.get("/rollouts/?verdict=failed&page=1").content.decode()
    assert 'href="/rollouts/?verdict=failed&amp;finding=any"' in html
    html = page.get("/rollouts/?verdict=failed&finding=any&turns_min=5").content.decode()
    assert 'href="/rollouts/?verdict=failed&amp;turns_min=5" aria-current="true"' in html
    assert 'aria-label="Remove filter Turns ≥: 5"' in html, "a filter in force is a chip that takes it back"
    assert 'href="/rollouts/?finding=any&amp;turns_min=5"' in html
    assert 'name="turns_min" value="5"' in html
    assert "Remove filter" not in page.get("/rollouts/").content.decode()


@pytest.mark.parametrize("query", ["finding=made-up", "quarantined=perhaps", "turns_min=few"])
def test_values_that_no_filter_has_are_refused(bearer: Bearer, query: str) -> None:
    answer = Client().get(f"/api/v1/rollouts?{query}", headers=bearer("viewer"))
    assert answer.status_code == 422
    assert query.partition("=")[0] in answer.content.decode()
