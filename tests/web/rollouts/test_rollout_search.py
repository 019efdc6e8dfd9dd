"""Search across trajectories: what is recorded is found by its words, and a query of the list can be kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.core.artifacts import artifacts
from composer_web.core.queue import leases
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group, Rollout, RolloutText
from composer_web.rollouts.search import fulltext
from composer_web.runs.models import Run
from sandbox.harness.types import ToolCall, ToolResult
from tests.web.making import claim, trajectory
from trainer.types import Trajectory, Turn

pytestmark = pytest.mark.django_db


def said(group: Group, sample: int, text: str, output: str = "") -> Trajectory:
    turn = Turn(
        index=0,
        text=text,
        token_start=1,
        token_end=3,
        calls=(ToolCall(id="c", name="terminal", arguments={"command": "pytest -q tests/test_scale.py"}),),
        results=(ToolResult(call_id="c", output=output, seconds=0.1),),
    )
    return trajectory(group, sample, passed=True).model_copy(update={"turns": (turn,)})


@pytest.fixture
def recorded(running: Run) -> list[Rollout]:
    """Two rollouts of one group, accepted by a worker."""
    rollouts.pump(run_id=running.pk)
    claimed = claim(Group.objects.filter(run=running).earliest("pk"))
    return finish(
        claimed.group,
        claimed.held,
        said(
            claimed.group,
            0,
            "The method scale_values drops the last item",
            "E  IndexError: list index\x00 out of range",
        ),
        said(claimed.group, 1, "I give up, it's späte Zeit", "<script>alert(1)</script>"),
    )


def finish(group: Group, held: leases.Held, *made: Trajectory) -> list[Rollout]:
    graded = []
    for item in made:
        key = f"groups/{group.pk}/{item.sample}.json.zst"
        artifacts().put_model(key, item)
        graded.append(rollouts.Graded(item, key))
    assert rollouts.accept(group=group, held=held, graded=graded, train_key="x", oldest_version=0, infra_errors=())
    return list(group.rollouts.order_by("sample"))


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        ("indexerror", [0]),
        ("SCALE_VALUES", [0]),
        ('"last item"', [0]),
        ('"item last"', []),
        ("tests/test_scale.py", [0, 1]),
        ("test_scale.py", [0, 1]),
        ("pytest -indexerror", [1]),
        ("indexerror OR späte", [0, 1]),
        ("<script>alert(1)", [1]),
        ("zebra", []),
        ("-", []),
        ('"', []),
        ("' ; drop table & | ! :* <->", []),
    ],
)
def test_rollouts_are_found_by_their_words(recorded: list[Rollout], text: str, samples: list[int]) -> None:
    found = fulltext.holding(Rollout.objects.all(), text).order_by("sample")
    assert list(found.values_list("sample", flat=True)) == samples


def test_page_and_api_narrow_by_the_same_words(
    recorded: list[Rollout], people: dict[str, User], bearer: Callable[..., dict[str, str]]
) -> None:
    browser = Client()
    browser.force_login(people["viewer"])
    html = browser.get("/rollouts/", {"text": "IndexError"}).content.decode()
    assert f'href="/rollouts/{recorded[0].pk}/?q=IndexError"' in html
    assert f"/rollouts/{recorded[1].pk}/" not in html
    answer = Client().get("/api/v1/rollouts", {"text": '"give up"'}, headers=bearer("viewer"))
    assert [row["id"] for row in answer.json()["items"]] == [recorded[1].pk]
    assert Client().get("/api/v1/rollouts", {"text": "x" * 500}, headers=bearer("viewer")).status_code == 422


def test_a_very_long_rollout_is_indexed_in_part_and_says_so(recorded: list[Rollout]) -> None:
    huge = said(recorded[0].group, 0, "needle at the start", "word " * 400_000 + "haystack")
    fulltext.index([(recorded[0].pk, huge)])
    kept = RolloutText.objects.get(pk=recorded[0].pk)
    assert kept.missing > 1_000_000
    assert fulltext.holding(Rollout.objects.all(), "needle").exists()
    assert not fulltext.holding(Rollout.objects.all(), "haystack").exists()
