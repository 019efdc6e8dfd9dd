"""The canary beside what is promoted: what recorded sessions show of both, by which guards, and its end by itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import AuditEntry, User
from composer_web.core.errors import UserError
from composer_web.gateway import configuration
from composer_web.gateway.models import Session, SessionTurn, SignalRow
from composer_web.gateway.sessions.canary import Comparison, compare
from composer_web.gateway.sessions.tasks import watch
from composer_web.policies.models import Policy
from composer_web.policies.promotion import services as promotion
from tests.browser.sessions import in_use
from tests.web.cli.support import Cli, data, error
from tests.web.evals.test_evals_promotion import versions

__all__ = ["versions"]  # fixtures
pytestmark = pytest.mark.django_db
EDITS: dict[str, Any] = {"calls": 1, "edits": 1}
ASKS: dict[str, Any] = {"question": True}


@pytest.fixture
def used(versions: Policy, people: dict[str, User]) -> Callable[..., list[Session]]:
    """used(1, 20, EDITS): so many recorded sessions of a turn that base@1 answered so."""
    return partial(in_use, people["viewer"], versions)


@pytest.fixture
def canary(versions: Policy) -> None:
    promotion.promote(reference="base@1")
    promotion.canary(reference="base@2", share=0.1)


def row(found: Comparison | None, words: str) -> Any:
    assert found is not None
    return next(one for one in found.rows if words in one.name)


def test_both_sides_are_compared_measure_by_measure(canary: None, used: Callable[..., list[Session]]) -> None:
    nothing = compare()
    assert nothing is not None and (nothing.promoted_turns, nothing.canary_turns) == (0, 0)
    assert {one.standing for one in nothing.rows} == {"little", "unbound"}
    used(1, 30, EDITS, said="accept")
    used(1, 30, EDITS)
    used(2, 30, EDITS, wait=90.0, said="accept")
    used(2, 30, ASKS, wait=90.0, said="reject")
    found = compare()
    assert found is not None and (found.promoted, found.canary, found.share) == ("base@1", "base@2", 0.1)
    assert (found.promoted_turns, found.canary_turns, found.promoted_sessions) == (60, 60, 60)
    edits = row(found, "turns that edit")
    assert (edits.before, edits.now, edits.change, edits.standing) == (1.0, 0.5, -0.5, "broken")
    assert row(found, "malformed tool call").standing == "holds"
    reward = row(found, "mean reward")
    assert (reward.before, reward.before_count) == (1.0, 30), "turns of which nobody said anything have none"
    assert reward.now == pytest.approx((30 * 1.0 + 30 * (-1.0 - 0.25)) / 60)
    waited = row(found, "first token")
    assert (waited.before, waited.now, waited.standing) == (30.0, 90.0, "unbound")
    assert (row(found, "good signal").now, row(found, "bad signal").now) == (0.5, 0.5)
    assert found.broken == [edits.why, row(found, "only ask").why]


def test_a_signal_about_the_session_is_about_each_of_its_turns(
    canary: None, used: Callable[..., list[Session]]
) -> None:
    (session,) = used(2, 1, EDITS)
    SessionTurn.objects.create(
        session=session, index=1, policy=session.policy, version=2, facts=EDITS, finish="stop", artifact_key="none"
    )
    SignalRow.objects.create(session=session, client_id="whole", kind="accept")
    SignalRow.objects.create(session=session, client_id="late", kind="edit_kept", turn=1, value=0.5)
    reward, good = row(compare(), "mean reward"), row(compare(), "good signal")
    assert (reward.now_count, reward.now) == (2, pytest.approx((1.0 + 1.25) / 2))
    assert (good.now_count, good.now) == (1, 1.0), "a session counts once"


def test_another_share_begins_nothing_anew_another_canary_does(
    canary: None, used: Callable[..., list[Session]]
) -> None:
    used(2, 3, EDITS)
    promotion.canary(reference="base@2", share=0.3)
    found = compare()
    assert found is not None and (found.canary_turns, found.share) == (3, 0.3)
    promotion.canary(reference="base@3", share=0.3)
    promotion.canary(reference="base@2", share=0.3)
    found = compare()
    assert found is not None and found.canary_turns == 0
    promotion.end_canary()
    assert compare() is None


def test_the_guards_are_a_setting_with_its_record(
    canary: None, used: Callable[..., list[Session]], people: dict[str, User]
) -> None:
    used(1, 60, EDITS)
    used(2, 60, EDITS, wait=90.0)
    watch()
    now = promotion.current()
    assert now is not None and now.canary_version == 2, "no bound on waiting unless one is set"
    configuration.change(values={"canary": {"edit_drop": 0.1}}, actor=people["operator"])
    configuration.change(values={"canary": {"first_token_rise": 0.5}}, actor=people["operator"])
    assert configuration.settings_of().canary.edit_drop == 0.1, "the rest of a group stays"
    entry = AuditEntry.objects.filter(action="gateway.change").latest("pk")
    assert entry.actor == people["operator"]
    assert entry.detail["before"]["canary"]["first_token_rise"] is None
    assert entry.detail["after"]["canary"]["first_token_rise"] == 0.5
    watch()
    now = promotion.current()
    assert now is not None and now.canary_version is None
    assert now.note == (
        "ended by its guard: the median time to the first token rose from 30 ms to 90 ms; 50% are allowed"
    )
    watch()
    assert promotion.current() == now


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"edit_drop": 0}, "canary.edit_drop"),
        ({"question_rise": 1.5}, "canary.question_rise"),
        ({"min_turns": 0}, "canary.min_turns"),
        ({"z_score": "many"}, "canary.z_score"),
        ({"bad_rise": -1}, "canary.bad_rise"),
        ({"reward_drop": float("nan")}, "canary.reward_drop"),
        ({"nothing": 1}, "canary.nothing"),
        (None, "canary"),
    ],
)
def test_guards_that_make_no_sense(db: None, values: object, field: str) -> None:
    before = configuration.settings_of()
    with pytest.raises(UserError) as refused:
        configuration.change(values={"canary": values})
    assert refused.value.field == field
    assert configuration.settings_of() == before


def test_on_the_pages(canary: None, used: Callable[..., list[Session]], people: dict[str, User]) -> None:
    viewer, operator = Client(), Client()
    viewer.force_login(people["viewer"])
    operator.force_login(people["operator"])
    page = viewer.get("/promotion/").content.decode()
    assert "Canary against promoted" in page and "Recording is off" in page and "End the canary" not in page
    configuration.change(values={"recording": True})
    used(1, 60, EDITS)
    used(2, 40, ASKS)
    live = " ".join(viewer.get("/promotion/", headers={"HX-Request": "true"}).content.decode().split())
    assert "<html" not in live and 'data-live="promotion"' in live and "Recording is off" not in live
    assert "too little to say: 50 needed on each side" in live and "may fall by 15.0 %" in live
    with CaptureQueriesContext(connection) as few:
        viewer.get("/promotion/")
    used(2, 40, ASKS, said="reject")
    with CaptureQueriesContext(connection) as many:
        assert "broken</span>" in viewer.get("/promotion/").content.decode()
    assert len(many) == len(few)
    form = {"canary-edit_drop": "0.25", "canary-bad_rise": "", "canary-good_drop": "0.2", "retention_days": "30"}
    rest = {"requests_per_minute": "120", "most_tokens": "4096", "answer_seconds": "300"}
    assert viewer.post("/gateway/settings/change/", {**form, **rest}).status_code == 403
    operator.post("/gateway/settings/change/", {**form, **rest})
    guards = configuration.settings_of().canary
    assert (guards.edit_drop, guards.bad_rise, guards.good_drop, guards.question_rise) == (0.25, None, 0.2, 0.15)
    wrong = operator.post("/gateway/settings/change/", {**form, **rest, "canary-edit_drop": ""}, follow=True)
    assert "canary.edit_drop: Input should be a valid number" in wrong.content.decode()
    shown = viewer.get("/gateway/settings/").content.decode()
    assert "Largest fall of the share of turns that edit" in shown


def test_over_the_api_and_on_a_command_line(
    canary: None,
    used: Callable[..., list[Session]],
    bearer: Callable[..., dict[str, str]],
    cli: Cli,
    capsys: pytest.CaptureFixture[str],
) -> None:
    used(1, 60, EDITS)
    used(2, 60, ASKS)
    reader = Client(headers=bearer("viewer"))
    found = reader.get("/api/v1/promotions/canary").json()
    assert (found["canary"], found["canary_turns"], found["guards"]["edit_drop"]) == ("base@2", 60, 0.15)
    assert [one["standing"] for one in found["rows"][:3]] == ["broken", "broken", "holds"]
    same = data(cli("canaries", "get", "--json"))
    assert [one["why"] for one in same["rows"]] == [one["why"] for one in found["rows"]]
    table = cli("canaries", "get")[1]
    assert table.startswith("base@2 has 10.0% of new sessions: 60 turns in 60 sessions; base@1: 60 in 60")
    assert "the share of turns that edit" in table and "broken" in table
    set_ = cli("gateway", "update", "canary.edit_drop=0.3", "canary.bad_rise=0.2", "retention_days=14", "--json")
    guards = data(set_)["canary"]
    assert (guards["edit_drop"], guards["bad_rise"], guards["question_rise"]) == (0.3, 0.2, 0.15)
    assert configuration.settings_of().retention_days == 14
    assert cli("gateway", "update", "canary.edit_drop=3", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"canary.edit_drop"}
    data(cli("gateway", "update", "canary.min_turns=10", "--json"))
    assert configuration.settings_of().canary.edit_drop == 0.3
    promotion.end_canary()
    assert reader.get("/api/v1/promotions/canary").status_code == 404
    assert cli("canaries", "get", "--json")[0] == 1
    assert error(capsys)["code"] == "not_found"
