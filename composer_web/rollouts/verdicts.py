"""The verdicts of a group's rollouts, written with one statement: what is recorded most often costs least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from django.db import connection
from django.utils import timezone

from composer_web.ops.history import say_why
from composer_web.rollouts import fulltext
from composer_web.rollouts.models import Group, RolloutState
from trainer.rollouts.types import Trajectory

COLUMNS = {
    "state": "text",
    "verdict": "text",
    "stop_reason": "text",
    "reward": "float8",
    "reward_parts": "jsonb",
    "cause": "text",
    "turns": "int",
    "tool_calls": "int",
    "tool_errors": "int",
    "policy_tokens": "int",
    "total_tokens": "int",
    "read_tokens": "int",
    "cached_tokens": "int",
    "oldest_version": "int",
    "newest_version": "int",
    "seconds": "jsonb",
    "artifact_key": "text",
    "snapshots": "jsonb",
}
"""What a verdict brings, with the types of the table."""
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
    """One rollout as it is stored: the trajectory and the key of its blob."""

    trajectory: Trajectory
    artifact_key: str


def write(group: Group, graded: Sequence[Graded], *, actor: str) -> None:
    """Inside a transaction that holds the group. A rollout that has a verdict keeps it; words are indexed with the others."""
    if not graded:
        return
    say_why(actor=actor, reason="graded")
    rows = [_row(item) for item in graded]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    with connection.cursor() as cursor:
        cursor.execute(STATEMENT, {"group": group.pk, "now": timezone.now(), **columns})
        written = dict(cursor.fetchall())
    trajectories = [item.trajectory for item in graded]
    fulltext.index([(written[one.sample], one) for one in trajectories if one.sample in written])


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
        "turns": len(t.turns),
        "tool_calls": sum(len(turn.calls) for turn in t.turns),
        "tool_errors": sum(result.error is not None for turn in t.turns for result in turn.results),
        "policy_tokens": t.policy_tokens,
        "total_tokens": t.total_tokens,
        "read_tokens": None if t.usage is None else t.usage.read,
        "cached_tokens": None if t.usage is None else t.usage.cached,
        "oldest_version": t.oldest_version,
        "newest_version": t.newest_version,
        "seconds": _json(t.seconds),
        "artifact_key": item.artifact_key,
        "snapshots": _json(sorted({turn.snapshot for turn in t.turns if turn.snapshot})),
    }


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
