"""Evaluations that are asked for and cancelled on pages: who may, what is refused, and where the form leads."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.test import Client

from composer_web.accounts.models import AuditEntry, Project, User
from composer_web.accounts.projects import create_project, set_member
from composer_web.accounts.services import create_user
from composer_web.core.models import Outbox
from composer_web.evals import services
from composer_web.evals.models import Evaluation
from composer_web.policies.models import Policy
from composer_web.policies.promotion import gate
from composer_web.tasks.models import Suite
from tests.web.evals.test_evals_promotion import held_out, scored, versions

__all__ = ["held_out", "versions"]  # fixtures
pytestmark = pytest.mark.django_db
ASK = "/policies/base/evaluate/"


@pytest.fixture
def visit(people: dict[str, User]) -> Callable[[str], Client]:
    def of(role: str) -> Client:
        made = Client()
        made.force_login(people[role])
        return made

    return of


def form(**changed: str) -> dict[str, str]:
    fields = {"version": "2", "suite": "held-out", "tasks": "2", "samples": "3", "temperature": "0.5", "seed": "7"}
    return {**fields, **changed}


def test_an_operator_asks_for_an_evaluation(versions: Policy, held_out: Suite, visit: Callable[[str], Client]) -> None:
    operator = visit("operator")
    page = operator.get("/policies/base/").content.decode()
    assert f'action="{ASK}"' in page and "<option>3</option>" in page and "<option>held-out</option>" in page
    answer = operator.post(ASK, form())
    made = Evaluation.objects.get()
    assert answer["Location"] == f"/evaluations/{made.pk}/"
    assert (made.version, made.suite, made.tasks, made.samples) == (2, held_out, 2, 3)
    assert (made.temperature, made.seed, made.created_by) == (0.5, 7, answer.wsgi_request.user)
    assert Outbox.objects.filter(task="evals.start").exists(), "it really starts"
    listed = operator.get("/policies/base/", headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in listed and f"evals eval:{made.pk}" in listed and "0 of 2 tasks" in listed


def test_the_form_sets_turns_and_context(versions: Policy, held_out: Suite, visit: Callable[[str], Client]) -> None:
    operator = visit("operator")
    page = operator.get("/policies/base/").content.decode()
    assert 'name="turns"' in page and 'name="context_tokens"' in page
    operator.post(ASK, form(turns="7", context_tokens="2048"))
    operator.post(ASK, form(turns="", context_tokens=""))
    own, derived = (one.conditions["sampling"] for one in Evaluation.objects.order_by("pk"))
    assert (own["max_turns"], own["max_context_tokens"]) == (7, 2048)
    assert own != derived and derived["max_turns"] and derived["max_context_tokens"]
    refused = operator.post(ASK, form(context_tokens="16"), follow=True)
    assert "256 to 10,000,000 tokens" in refused.content.decode() and Evaluation.objects.count() == 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"suite": "nowhere"}, "there is no suite nowhere"),
        ({"suite": ""}, "there is no suite"),
        ({"version": "9"}, "has no weights on disk"),
        ({"version": "x"}, "must be a number"),
        ({"version": "²"}, "must be a number"),
        ({"tasks": "0"}, "at least one task"),
        ({"tasks": "1.5"}, "tasks is a whole number, not 1.5"),
        ({"samples": "65"}, "1 to 64 rollouts a task"),
        ({"samples": "many"}, "samples is a number"),
        ({"temperature": "0"}, "temperature is above 0"),
        ({"temperature": "nan"}, "temperature is a number"),
        ({"seed": "-1"}, "a seed is a whole number from 0"),
        ({"seed": "1e30"}, "a seed is a whole number from 0"),
    ],
)
def test_what_cannot_be_is_said(
    versions: Policy, held_out: Suite, visit: Callable[[str], Client], wrong: dict[str, str], said: str
) -> None:
    answer = visit("operator").post(ASK, form(**wrong), follow=True)
    assert answer.redirect_chain == [("/policies/base/", 302)] and said in answer.content.decode()
    assert not Evaluation.objects.exists()


def test_who_may_ask_and_cancel(versions: Policy, held_out: Suite, visit: Callable[[str], Client]) -> None:
    """Nobody, viewers, and operators of another project change nothing."""
    made = services.create_evaluation(policy=versions, version=1, suite=held_out, tasks=2, samples=1)
    cancel = f"/evaluations/{made.pk}/cancel/"
    for address in (ASK, cancel):
        assert "/login/" in Client().post(address, form())["Location"]
        assert visit("viewer").post(address, form()).status_code == 403
        assert visit("reviewer").post(address, form()).status_code == 403
        assert visit("operator").get(address).status_code == 405
    viewer = visit("viewer")
    assert ASK not in viewer.get("/policies/base/").content.decode()
    assert cancel not in viewer.get(f"/evaluations/{made.pk}/").content.decode()
    other = create_project(slug="elsewhere", name="Elsewhere", actor=None)
    stranger = create_user(username="stranger", password="a long enough horse", role="viewer")
    set_member(project=other, username="stranger", role="operator", actor=None)
    Project.objects.exclude(pk=other.pk).update(open=False, library=False)
    outside = Client()
    outside.force_login(stranger)
    assert outside.post(ASK, form()).status_code == outside.post(cancel).status_code == 404
    assert Evaluation.objects.get().state == "pending"


def test_a_policy_of_a_library_is_evaluated_in_ones_own_project(versions: Policy, held_out: Suite) -> None:
    """Whoever uses what is shared makes something of his own, and needs to be an operator there only."""
    Project.objects.update(open=False, library=True)
    other = create_project(slug="elsewhere", name="Elsewhere", actor=None)
    guest = Client()
    guest.force_login(create_user(username="guest", password="a long enough horse", role="viewer"))
    set_member(project=other, username="guest", role="operator", actor=None)
    assert ASK in guest.get("/policies/base/").content.decode()
    guest.post(ASK, form())
    assert Evaluation.objects.get().project == other


def test_cancelling(versions: Policy, held_out: Suite, visit: Callable[[str], Client]) -> None:
    operator = visit("operator")
    made = services.create_evaluation(policy=versions, version=1, suite=held_out, tasks=2, samples=1)
    page = operator.get(f"/evaluations/{made.pk}/").content.decode()
    assert f"Stop evaluation {made.pk}?" in page and "<progress" in page
    answer = operator.post(f"/evaluations/{made.pk}/cancel/", follow=True).content.decode()
    assert f"Evaluation {made.pk} is cancelled" in answer and "data-confirm" not in answer and "<progress" not in answer
    assert Evaluation.objects.get().state == "cancelled"
    assert AuditEntry.objects.filter(action="eval.cancel", target=f"eval:{made.pk}").exists()
    assert "cancelled" in operator.post(f"/evaluations/{made.pk}/cancel/", follow=True).content.decode()
    assert AuditEntry.objects.filter(action="eval.cancel").count() == 1


def test_the_preview_says_what_to_do(
    versions: Policy, held_out: Suite, visit: Callable[[str], Client], bearer: Callable[..., dict[str, str]]
) -> None:
    operator, reader = visit("operator"), Client(headers=bearer("viewer"))

    def preview(reference: str) -> str:
        return operator.get("/promotion/preview/", {"policy": reference}).content.decode()

    assert visit("viewer").get("/promotion/preview/", {"policy": "base@1"}).status_code == 403
    assert preview("").strip() == "" and "there is no policy" in preview("nobody@1")
    assert "the gate has no rule" in preview("base@1")
    gate.set_rules(
        channel="production", wanted=[{"suite": "held-out", "min_score": 0.5, "max_drop": 0.1, "samples": 4}]
    )
    assert "To do: evaluate base@1 on held-out with 4 passes or more" in preview("base@1")
    assert f'action="{ASK}"' in preview("base@1")
    assert re.search(r'<input name="samples"[^>]* min="4"', preview("base@1"))
    asked = reader.get("/api/v1/promotions/check", {"policy": "base@1"}).json()
    assert (asked["open"], asked["outcomes"][0]["missing"]) == (False, "base@1")
    operator.post(ASK, form(version="1", samples="4"))
    pk = Evaluation.objects.get().pk
    assert f"wait for evaluation {pk} of base@1, which is pending" in preview("base@1")
    assert ASK not in preview("base@1") and f"eval:{pk}" in preview("base@1")
    scored(versions, held_out, 1, 0.4)
    assert "40.0% is below 50.0%" in preview("base@1") and "a newer evaluation would count" in preview("base@1")
    scored(versions, held_out, 1, 0.8)
    assert "would pass" in preview("base@1") and reader.get("/api/v1/promotions/check?policy=base@1").json()["open"]
    operator.post("/promotion/change/", {"what": "promote", "policy": "base@1"})
    assert "is promoted already" in preview("base@1")
    scored(versions, held_out, 2, 0.6)
    assert "more than 10.0% below 80.0%" in preview("base@2")
    page = operator.get("/promotion/?policy=base@2").content.decode()
    assert "would not pass" in page and "<option selected>base@2</option>" in page
    assert reader.get("/api/v1/promotions/check", {"policy": "nobody"}).status_code == 422


def test_a_promoted_version_without_an_evaluation_is_named(
    versions: Policy, held_out: Suite, visit: Callable[[str], Client]
) -> None:
    operator = visit("operator")
    operator.post("/promotion/change/", {"what": "promote", "policy": "base@1"})
    gate.set_rules(channel="production", wanted=[{"suite": "held-out", "max_drop": 0.1}])
    scored(versions, held_out, 2, 0.6)
    shown = operator.get("/promotion/preview/", {"policy": "base@2"}).content.decode()
    assert "base@1 is promoted and has no evaluation to compare with" in shown
    assert "To do: evaluate base@1 on held-out" in shown and 'name="version" value="1"' in shown
