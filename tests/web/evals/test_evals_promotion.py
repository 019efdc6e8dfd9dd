"""Promotion: a gate of evaluations, a canary with its share, the way back, and the record of all of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection, transaction
from django.db.utils import DatabaseError, IntegrityError
from django.test import Client
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import AuditEntry, User
from composer_web.core.errors import Conflict, UserError
from composer_web.evals.models import Evaluation
from composer_web.evals.services import create_evaluation, mark_finished, mark_running
from composer_web.policies.models import Policy, Promotion
from composer_web.policies.promotion import gate
from composer_web.policies.promotion import services as promotion
from composer_web.policies.services import record_checkpoint
from composer_web.tasks.models import Suite
from composer_web.ui.templatetags import ui

pytestmark = pytest.mark.django_db


@pytest.fixture
def versions(policy: Policy, tmp_path: Path) -> Policy:
    """A policy with the versions 0 to 3 on disk."""
    for version in (1, 2, 3):
        record_checkpoint(policy=policy, version=version, path=tmp_path / "policy", final=False)
    return policy


@pytest.fixture
def held_out(make_suite: Callable[..., Suite]) -> Suite:
    return make_suite("held-out", 2)


def scored(policy: Policy, suite: Suite, version: int, pass1: float, *, samples: int = 4) -> Evaluation:
    made = create_evaluation(policy=policy, version=version, suite=suite, tasks=2, samples=samples)
    mark_running(evaluation=made)
    return mark_finished(evaluation=made, results={"pass1": pass1, "best": pass1})


def served() -> tuple[int, int | None, float]:
    now = promotion.current()
    assert now is not None
    return now.version, now.canary_version, now.canary_share


def test_promote_canary_and_back(versions: Policy, people: dict[str, User]) -> None:
    boss = people["operator"]
    assert promotion.current() is None
    with pytest.raises(Conflict, match="nothing is promoted"):
        promotion.canary(reference="base@1", share=0.1)
    promotion.promote(reference="base@1", actor=boss)
    promotion.canary(reference="base@2", share=0.05, actor=boss)
    assert served() == (1, 2, 0.05)
    promotion.canary(reference="base@2", share=0.25, actor=boss)
    assert served() == (1, 2, 0.25)
    promotion.promote(reference="base@2", note="the canary sang", actor=boss)
    assert served() == (2, None, 0.0)
    promotion.promote(reference="base@3", actor=boss)
    promotion.rollback(actor=boss)
    assert served() == (2, None, 0.0)
    promotion.rollback(actor=boss)
    assert served() == (1, None, 0.0)
    with pytest.raises(Conflict, match="before"):
        promotion.rollback(actor=boss)
    promotion.canary(reference="base@3", share=0.5, actor=boss)
    promotion.end_canary(actor=boss)
    with pytest.raises(Conflict, match="no canary"):
        promotion.end_canary(actor=boss)
    entries = list(AuditEntry.objects.filter(action__startswith="channel.").order_by("pk"))
    assert [entry.action for entry in entries[:4]] == [
        "channel.promote",
        "channel.canary",
        "channel.canary",
        "channel.promote",
    ]
    assert entries[3].actor == boss
    assert entries[3].detail["before"] == {"promoted": "base@1", "canary": "base@2", "share": 0.25}
    assert entries[3].detail["after"] == {"promoted": "base@2"}
    assert len(entries) == Promotion.objects.count()


def test_the_gate_shuts(versions: Policy, held_out: Suite) -> None:
    gate.set_rules(
        channel="production", wanted=[{"suite": "held-out", "min_score": 0.5, "max_drop": 0.02, "samples": 4}]
    )
    with pytest.raises(UserError, match="no finished evaluation on held-out"):
        promotion.promote(reference="base@1")
    scored(versions, held_out, 1, 0.9, samples=2)
    with pytest.raises(UserError, match="4 passes or more"):
        promotion.promote(reference="base@1")
    scored(versions, held_out, 1, 0.4)
    with pytest.raises(UserError, match=r"40\.0% is below 50\.0%"):
        promotion.promote(reference="base@1")
    best = scored(versions, held_out, 1, 0.8)
    made = promotion.promote(reference="base@1")
    assert [(seen["ok"], seen["score"], seen["evaluation"]) for seen in made.gate] == [(True, 0.8, best.pk)]
    scored(versions, held_out, 2, 0.75)
    with pytest.raises(UserError, match=r"more than 2\.0% below 80\.0%") as shut:
        promotion.canary(reference="base@2", share=0.1)
    assert shut.value.code == "gate_shut"
    Evaluation.objects.filter(version=2).update(interruption={"after_turns": 2, "says": "stop"}, results={"pass1": 1.0})
    with pytest.raises(UserError, match="base@2 has no finished evaluation"):
        promotion.promote(reference="base@2")
    assert served() == (1, None, 0.0)


def best_of(evaluation: Evaluation, **best_at: float) -> Evaluation:
    """`best_at`: k2=0.5 is best of 2."""
    shares = {name.removeprefix("k"): share for name, share in best_at.items()}
    evaluation.results = {"pass1": 0.3, "best": shares[str(evaluation.samples)], "best_at": shares}
    evaluation.save()
    return evaluation


@pytest.mark.parametrize(
    ("samples", "score", "why"),
    [(1, 0.9, r"70\.0% is more than 5\.0% below 80\.0% \(best of 8\)"), (4, 0.6, "")],
    ids=["the largest both have", "the rule's own"],
)
def test_best_of_k_is_compared_at_one_k(
    versions: Policy, held_out: Suite, samples: int, score: float, why: str
) -> None:
    """Best of 16 is above best of 8 without any progress."""
    wanted = [{"suite": "held-out", "measure": "best", "min_score": 0.55, "max_drop": 0.05, "samples": samples}]
    best_of(scored(versions, held_out, 1, 0.3, samples=8), k2=0.4, k4=0.6, k8=0.8)
    promotion.promote(reference="base@1")
    gate.set_rules(channel="production", wanted=wanted)
    best_of(scored(versions, held_out, 2, 0.3, samples=16), k2=0.4, k4=0.6, k8=0.7, k16=0.9)
    (seen,) = promotion.preview("base@2").outcomes
    assert (seen.ok, seen.score) == (not why, score)
    assert re.search(why, seen.why)


def test_evaluations_of_older_versions_are_compared_at_what_they_know(versions: Policy, held_out: Suite) -> None:
    scored(versions, held_out, 1, 0.8, samples=8)
    promotion.promote(reference="base@1")
    gate.set_rules(channel="production", wanted=[{"suite": "held-out", "measure": "best", "max_drop": 0.05}])
    best_of(scored(versions, held_out, 2, 0.3, samples=16), k8=0.9, k16=0.95)
    (seen,) = promotion.preview("base@2").outcomes
    assert seen.ok


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"suite": "nowhere", "min_score": 0.5}, "no suite 'nowhere'"),
        ({"benchmark": "nowhere", "min_score": 0.5}, "no release of 'nowhere'"),
        ({"suite": "held-out"}, "a min_score, a max_drop"),
        ({"suite": "held-out", "benchmark": "b", "min_score": 0.5}, "names a suite or a benchmark"),
        ({"suite": "held-out", "min_score": 2}, "min_score"),
        ({"suite": "held-out", "min_score": float("nan")}, "rule 1"),
        ({"suite": "held-out", "min_score": 0.5, "extra": 1}, "extra"),
        ("no rule", "rule 1"),
    ],
)
def test_rules_that_make_no_sense(held_out: Suite, rule: object, why: str) -> None:
    with pytest.raises(UserError, match=why):
        gate.set_rules(channel="production", wanted=[rule])
    assert gate.rules("production") == []


def test_what_was_promoted_is_history(versions: Policy) -> None:
    made = promotion.promote(reference="base@1")
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        Promotion.objects.filter(pk=made.pk).update(version=2)
    with pytest.raises(IntegrityError), transaction.atomic():
        Promotion.objects.create(channel="production", kind="canary", policy=versions, version=1, canary_share=0.5)
    with pytest.raises(UserError, match="between 0 and 1"):
        promotion.canary(reference="base@2", share=1.0)
    with pytest.raises(Conflict, match="promoted already"):
        promotion.promote(reference="base@1")


def test_promotion_on_the_page(versions: Policy, held_out: Suite, people: dict[str, User]) -> None:
    operator, viewer = Client(), Client()
    operator.force_login(people["operator"])
    viewer.force_login(people["viewer"])
    change = "/promotion/change/"
    assert viewer.post(change, {"what": "promote", "policy": "base@1"}).status_code == 403
    assert viewer.post("/promotion/gate/", {"on": "suite:held-out", "min_score": "1"}).status_code == 403
    assert "Nothing is promoted yet" in viewer.get("/promotion/").content.decode()
    operator.post(change, {"what": "promote", "policy": "base@1", "note": "first"})
    rule = {"on": "suite:held-out", "measure": "pass1", "min_score": "50", "max_drop": "", "samples": "1"}
    assert "The gate is changed" in operator.post("/promotion/gate/", rule, follow=True).content.decode()
    shut = operator.post(change, {"what": "canary", "policy": "base@2", "share": "5"}, follow=True).content.decode()
    assert "the gate is shut" in shut
    scored(versions, held_out, 2, 0.75)
    operator.post(change, {"what": "canary", "policy": "base@2", "share": "5"})
    page = viewer.get("/promotion/").content.decode()
    assert "base@2" in page
    assert f"to {ui.percent(0.95)} of new sessions" in page
    assert "Roll back" not in page
    operator.post(change, {"what": "promote", "policy": "base@2"})
    assert "Roll back to base@1" in operator.get("/promotion/").content.decode()
    operator.post(change, {"what": "rollback"})
    assert served() == (1, None, 0.0)
    assert (
        "is a number"
        in operator.post(change, {"what": "canary", "policy": "base@2", "share": "x"}, follow=True).content.decode()
    )
    assert "promote, canary" in operator.post(change, {"what": "destroy"}, follow=True).content.decode()
    operator.post("/promotion/gate/", {"remove": "1"})
    assert gate.rules("production") == []
    assert "no rule" in operator.post("/promotion/gate/", {"remove": "1"}, follow=True).content.decode()
    with CaptureQueriesContext(connection) as few:
        viewer.get("/promotion/")
    for _ in range(3):
        promotion.promote(reference="base@2")
        promotion.rollback()
    with CaptureQueriesContext(connection) as many:
        viewer.get("/promotion/")
    assert len(many) == len(few)


def test_promotion_over_api_and_command(
    versions: Policy, held_out: Suite, bearer: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    reader, visitor = Client(headers=bearer("viewer")), Client(headers=bearer("operator", "read", "operate"))

    def post(path: str, body: object, client: Client = visitor) -> tuple[int, dict[str, object]]:
        answer = client.post(f"/api/v1/promotions/{path}", body, content_type="application/json")
        return answer.status_code, answer.json()

    assert post("promote", {"policy": "base@1"}, reader)[0] == 403
    status, made = post("promote", {"policy": "base@1"})
    assert (status, made["promoted"], made["created_by"]) == (201, "base@1", "operator")
    assert post("rollback", {})[0] == 409
    rules = {"rules": [{"suite": "held-out", "min_score": 0.5}]}
    changed = visitor.put("/api/v1/promotions/gate", rules, content_type="application/json")
    assert (changed.status_code, changed.json()["rules"][0]["min_score"]) == (200, 0.5)
    status, refused = post("canary", {"policy": "base@2", "share": 0.1})
    assert (status, refused["error"]["code"]) == (422, "gate_shut")  # type: ignore[index]
    scored(versions, held_out, 2, 0.75)
    status, made = post("canary", {"policy": "base@2", "share": 0.1})
    assert (status, made["canary"], made["canary_share"]) == (201, "base@2", 0.1)
    assert [row["kind"] for row in visitor.get("/api/v1/promotions").json()["items"]] == ["canary", "promote"]
    assert post("end-canary", {})[0] == 201
    assert post("promote", {"policy": "base@2"})[0] == 201
    assert post("rollback", {"note": "worse in use"})[0] == 201
    assert served() == (1, None, 0.0)
    assert visitor.put("/api/v1/promotions/gate", {"rules": []}, content_type="application/json").status_code == 200
    assert gate.rules("production") == []
    status, refused = post("rollback", {})
    assert status == 409 and "before" in refused["error"]["message"]  # type: ignore[index]


def test_rules_are_read_under_their_old_names() -> None:
    with pytest.warns(DeprecationWarning, match="GateRule: least is deprecated; use min_score"):
        rule = gate.GateRule.model_validate({"suite": "held-out", "least": 0.5})
    assert rule.min_score == 0.5
