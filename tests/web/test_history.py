"""Histories: the service and the database agree on what is legal, and nothing goes around them."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from composer_web.core.history import IllegalTransition, change_state
from composer_web.runs.models import RUN_LEGAL, Run, RunState, RunTransition

pytestmark = pytest.mark.django_db


def fresh(run: Run) -> Run:
    """Another draft like `run`."""
    return Run.objects.create(name="copy", kind="rl", config=run.config, policy_in=run.policy_in, steps_total=1)


@given(
    path=st.lists(st.sampled_from(RunState.values), max_size=8),
    by_service=st.lists(st.booleans(), min_size=8, max_size=8),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_only_legal_paths_exist(draft: Run, path: list[str], by_service: list[bool]) -> None:
    run = fresh(draft)
    state, history = "draft", [("", "draft")]
    for to, service in zip(path, by_service, strict=False):
        legal = (state, to) in RUN_LEGAL
        same = state == to
        try:
            with transaction.atomic():
                if service:
                    change_state(run, to, legal=RUN_LEGAL, actor="someone", reason="test")
                else:
                    Run.objects.filter(pk=run.pk).update(state=to)
        except IllegalTransition:
            refused, by = True, "service"
        except IntegrityError:
            refused, by = True, "database"
        else:
            refused, by = False, ""
        assert refused == (not legal and (service or not same))
        assert by in ("", "service" if service else "database")
        if refused:
            continue
        if not same:
            history.append((state, to))
        state = to
    rows = RunTransition.objects.filter(run=run).order_by("id").values_list("from_state", "to_state")
    assert list(rows) == history


def test_a_run_is_born_a_draft(draft: Run) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.create(
            name="x", kind="rl", config=draft.config, policy_in=draft.policy_in, steps_total=1, state="finished"
        )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs_runtransition SET reason = 'other' WHERE run_id = %s",
        "DELETE FROM runs_runtransition WHERE run_id = %s",
        "INSERT INTO runs_runtransition (run_id, from_state, to_state, actor, reason, at)"
        " VALUES (%s, 'draft', 'queued', '', '', now())",
    ],
)
def test_history_is_written_by_its_trigger_only(draft: Run, statement: str) -> None:
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, [draft.pk])


def test_the_message_says_what_is_possible(draft: Run) -> None:
    with pytest.raises(IllegalTransition, match=r"draft and cannot become finished; possible: cancelled, queued"):
        change_state(draft, "finished", legal=RUN_LEGAL)


def test_actor_and_reason_are_kept(draft: Run) -> None:
    change_state(draft, "queued", legal=RUN_LEGAL, actor="olga", reason="go")
    last = draft.transitions.order_by("id").last()
    assert last is not None
    assert (last.actor, last.reason) == ("olga", "go")
