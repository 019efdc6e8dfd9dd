"""Ticked findings and evaluations: one service call each, one message, and what is offered for which state."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from composer_web.accounts.models import AuditEntry
from composer_web.core.models import Outbox
from composer_web.evals import services as evals
from composer_web.evals.models import Evaluation
from composer_web.policies.models import Policy
from composer_web.rollouts.dispatch import findings
from composer_web.rollouts.models import Finding
from composer_web.tasks.models import Suite
from tests.browser import benchmark, seed
from tests.web import seeded
from tests.web.seeded import client, count_queries

pytestmark = pytest.mark.django_db
world = seeded.world


def send(visitor: Client, path: str, **given: object) -> tuple[str, list[str]]:
    """Where the answer leads, and its messages."""
    answer = visitor.post(path, given, follow=True)
    return answer.redirect_chain[-1][0], [str(message) for message in answer.context["messages"]]


def allowed(html: str, pk: int) -> set[str]:
    found = re.search(rf'value="{pk}" aria-label="Select [^"]+" data-allows="([^"]*)"', html)
    assert found is not None
    return set(found[1].split())


def test_findings_are_decided_together(world: seed.World) -> None:
    reviewer, picked = client(world, "reviewer"), list(Finding.objects.filter(state="open").order_by("pk")[:3])
    assert len(picked) == 3
    findings.decide(finding=picked[2], to="confirmed", actor=world.people["reviewer"])
    ids = [finding.pk for finding in picked]
    html = reviewer.get("/findings/").content.decode()
    assert allowed(html, ids[0]) == {"confirmed", "dismissed"} and allowed(html, ids[2]) == {"open", "dismissed"}
    back = "/findings/?severity=high"
    to, said = send(
        reviewer, "/findings/bulk/confirmed/", finding=[*ids, 999_999, "x"], note="seen together", next=back
    )
    assert to == "/findings/", "a refusal leads to the page that the form was sent from, here unknown"
    assert len(said) == 1 and said[0].startswith("2 findings confirmed. 2 refused: ")
    assert f"finding {ids[2]}: " in said[0] and "finding 999999: there is no finding 999999" in said[0]
    assert set(Finding.objects.filter(pk__in=ids).values_list("state", flat=True)) == {"confirmed"}
    assert set(Finding.objects.filter(pk__in=ids[:2]).values_list("note", flat=True)) == {"seen together"}
    assert (
        AuditEntry.objects.filter(action="finding.confirmed", target__in=[f"finding:{pk}" for pk in ids]).count() == 3
    )
    assert send(reviewer, "/findings/bulk/dismissed/", finding=ids[:1], next=back) == (back, ["1 finding dismissed."])
    assert send(reviewer, "/findings/bulk/open/", finding=ids, next=back) == (back, ["3 findings open again."])
    assert send(reviewer, "/findings/bulk/open/", next="https://elsewhere.example/") == (
        "/findings/",
        ["Nothing is selected."],
    )
    _, said = send(reviewer, "/findings/bulk/confirmed/", finding=ids[:1], note="x" * 2001)
    assert "1 refused" in said[0] and "2000 characters" in said[0]
    assert Finding.objects.get(pk=ids[0]).state == "open"


def test_only_reviewers_decide_findings(world: seed.World) -> None:
    finding, viewer = Finding.objects.filter(state="open").earliest("pk"), client(world, "viewer")
    assert viewer.post("/findings/bulk/confirmed/", {"finding": [finding.pk]}).status_code == 403
    assert client(world, "reviewer").post("/findings/bulk/erased/", {"finding": [finding.pk]}).status_code == 404
    assert client(world, "reviewer").get("/findings/bulk/confirmed/").status_code == 405
    finding.refresh_from_db()
    assert finding.state == "open"
    html = viewer.get("/findings/").content.decode()
    assert "data-tick" not in html and 'id="bulk"' not in html


def test_boxes_of_findings_ask_nothing(world: seed.World) -> None:
    """Findings on runs, groups and tasks have other columns: their boxes read none of them."""
    before = count_queries(client(world, "reviewer"), "/findings/")
    run = world.run
    for number in range(4):
        Finding.objects.create(
            subject="run", run=run, rule="drift", rule_version=1, key=f"k{number}", severity="low", summary="it changes"
        )
    assert count_queries(client(world, "reviewer"), "/findings/") == before


@pytest.fixture
def pending(world: seed.World) -> list[Evaluation]:
    policy, suite = Policy.objects.get(name="base"), Suite.objects.get(name="held-out")
    return [
        evals.create_evaluation(policy=policy, version=0, suite=suite, tasks=2, samples=2, seed=number)
        for number in (1, 2)
    ]


def test_evaluations_are_stopped_together(world: seed.World, pending: list[Evaluation]) -> None:
    operator, finished = client(world), Evaluation.objects.filter(state="finished").earliest("pk")
    ids = [one.pk for one in pending]
    html = operator.get("/evaluations/").content.decode()
    assert allowed(html, ids[0]) == {"stop"} and allowed(html, finished.pk) == {"grade"}
    assert f'aria-label="Select evaluation {ids[0]}"' in html
    _, said = send(operator, "/evaluations/bulk/stop/", evaluation=[*ids, finished.pk])
    assert len(said) == 1 and said[0].startswith(f"2 evaluations stopped. 1 refused: evaluation {finished.pk}: ")
    assert set(Evaluation.objects.filter(pk__in=ids).values_list("state", flat=True)) == {"cancelled"}
    assert Evaluation.objects.get(pk=finished.pk).state == "finished"
    assert allowed(operator.get("/evaluations/").content.decode(), ids[0]) == set()
    dropped = [row.kwargs.get("evaluation_id") for row in Outbox.objects.filter(task="rollouts.drop_open")]
    assert set(ids) <= set(dropped)


def test_evaluations_are_graded_together(world: seed.World, pending: list[Evaluation]) -> None:
    operator, endpoint = client(world), benchmark.remote(world.people["operator"])
    ids = list(Evaluation.objects.filter(state="finished").order_by("pk").values_list("pk", flat=True)[:2])
    assert f"<option>{endpoint.name}</option>" in operator.get("/evaluations/").content.decode()
    given = {"evaluation": [*ids, pending[0].pk], "grader": ""}
    _, said = send(operator, "/evaluations/bulk/grade/", **given)
    assert said[0].startswith("2 evaluations queued for grading. 1 refused: ") and "is pending" in said[0]
    graded = [row.kwargs.get("evaluation_id") for row in Outbox.objects.filter(task="evals.grade")]
    assert set(ids) <= set(graded) and pending[0].pk not in graded
    _, said = send(operator, "/evaluations/bulk/grade/", evaluation=ids, grader="nobody")
    assert said[0].startswith("2 refused: ")
    viewer = client(world, "viewer")
    assert viewer.post("/evaluations/bulk/grade/", given).status_code == 403
    assert operator.post("/evaluations/bulk/erase/", given).status_code == 404
    html = viewer.get("/evaluations/").content.decode()
    assert "data-tick" not in html and 'id="bulk"' not in html
