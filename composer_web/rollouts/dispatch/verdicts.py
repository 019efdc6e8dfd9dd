"""Writes all verdicts of a group with one statement, because they are the most frequent write."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from django.db import DataError, connection, transaction
from django.utils import timezone

from composer_web.core.history import say_why
from composer_web.rollouts.models import Group, RolloutState
from composer_web.rollouts.search import fulltext
from trainer.types import Trajectory

log = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")

COLUMNS = {
    "state": "text",
    "verdict": "text",
    "stop_reason": "text",
    "reward": "float8",
    "reward_parts": "jsonb",
    "cause": "text",
    "outcome": "text",
    "turns": "int",
    "tool_calls": "int",
    "tool_errors": "int",
    "output_tokens": "int",
    "total_tokens": "int",
    "input_tokens": "int",
    "cached_tokens": "int",
    "oldest_version": "int",
    "newest_version": "int",
    "seconds": "jsonb",
    "artifact_key": "text",
    "snapshots": "jsonb",
}
"""Columns of a verdict with their SQL types."""
STATEMENT = f"""
UPDATE rollouts_rollout AS r SET finished_at = %(now)s, {", ".join(f"{name} = given.{name}" for name in COLUMNS)}
FROM unnest(%(sample)s::int[], {", ".join(f"%({name})s::{kind}[]" for name, kind in COLUMNS.items())})
     AS given(sample, {", ".join(COLUMNS)})
WHERE r.group_id = %(group)s AND r.sample = given.sample AND r.state IN ('dispatched', 'running') RETURNING r.sample, r.id
"""  # noqa: S608 (names of this table)
"""Open rollouts by their state, not by `verdict = ''`, which says the same: few rows have no verdict, so Postgres would read
all of them by the index of verdicts, with what is left of those that got one since."""


@dataclass(frozen=True, slots=True)
class Graded:
    """One rollout to store: its trajectory and blob key."""

    trajectory: Trajectory
    artifact_key: str


def write(group: Group, graded: Sequence[Graded], *, actor: str) -> None:
    """Call it inside a transaction that holds the group. Existing verdicts are kept. Words are indexed for full-text
    search."""
    if not graded:
        return
    say_why(actor=actor, reason="graded")
    written = _each_alone(lambda rows: _update(group, rows), [_row(item) for item in graded], instead=_bare)
    ids = {sample: pk for pairs in written for sample, pk in pairs}
    trajectories = [item.trajectory for item in graded]
    _each_alone(fulltext.index, [(ids[one.sample], one) for one in trajectories if one.sample in ids])


def _update(group: Group, rows: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    with connection.cursor() as cursor:
        cursor.execute(STATEMENT, {"group": group.pk, "now": timezone.now(), **columns})
        return list(cursor.fetchall())


def _each_alone(
    write: Callable[[Sequence[T]], R], rows: Sequence[T], instead: Callable[[T], T] | None = None
) -> list[R]:
    """Write all rows at once. If the database rejects a value, write each row alone: a bad row is written as
    `instead` returns it, or omitted, without affecting the group's other rows."""
    if not rows:
        return []
    try:
        with transaction.atomic():
            return [write(rows)]
    except DataError:
        log.exception("a rollout holds what the database refuses; writing each alone")
    done = []
    for row in rows:
        for form in (row, instead(row)) if instead is not None else (row,):
            try:
                with transaction.atomic():
                    done.append(write([form]))
                break
            except DataError:
                log.exception("the database refuses a rollout")
    return done


def _bare(row: dict[str, Any]) -> dict[str, Any]:
    """The row's verdict and numbers, without text from a policy, a test or a judge."""
    empty = {"reward_parts": "[]", "seconds": "{}", "snapshots": "[]", "cause": "its record cannot be stored"}
    return {**row, **empty}


def _row(item: Graded) -> dict[str, Any]:
    t = item.trajectory
    lost = t.reward is None
    return {
        "sample": t.sample,
        "state": RolloutState.LOST.value if lost else RolloutState.GRADED.value,
        "verdict": "infra_error" if lost else str(t.verdict),
        "stop_reason": str(t.stop_reason),
        "reward": t.reward,
        "reward_parts": _json([part.model_dump(mode="json") for part in t.reward_parts]),
        "cause": t.report.cause[:2000],
        "outcome": str(t.report.outcome or ""),
        "turns": len(t.turns),
        "tool_calls": sum(len(turn.calls) for turn in t.turns),
        "tool_errors": sum(result.error is not None for turn in t.turns for result in turn.results),
        "output_tokens": t.output_tokens,
        "total_tokens": t.total_tokens,
        "input_tokens": None if t.usage is None else t.usage.read,
        "cached_tokens": None if t.usage is None else t.usage.cached,
        "oldest_version": t.oldest_version,
        "newest_version": t.newest_version,
        "seconds": _json(t.seconds),
        "artifact_key": item.artifact_key,
        "snapshots": _json(sorted({turn.snapshot for turn in t.turns if turn.snapshot})),
    }


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
