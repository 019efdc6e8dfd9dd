"""Time breakdown of a run: the trainer's mean step and the mean rollout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import connection

from composer_web.runs.models import Run

STEPS = 20
"""Number of newest steps to average."""

STEP_PARTS = (
    ("time/wait_for_batch", "Waits for rollouts", True),
    ("time/forward_backward", "Forward and backward", False),
    ("time/optimizer", "Optimizer", False),
    ("time/publish", "Publishes weights", False),
    ("time/checkpoint", "Writes checkpoints", False),
)
EPISODE_PARTS = (
    ("time/generate", "Generates", False),
    ("time/tools", "Runs tools", False),
    ("time/grade", "Is graded", False),
)


@dataclass(frozen=True)
class Part:
    label: str
    seconds: float
    share: float
    start: float
    """Share of the total before this part, for drawing."""
    idle: bool

    @property
    def x(self) -> str:
        """Start in a drawing of width 100."""
        return f"{100 * self.start:.2f}"

    @property
    def width(self) -> str:
        return f"{100 * self.share:.2f}"


@dataclass(frozen=True)
class Breakdown:
    """Parts that sum to `seconds`. Unexplained time is a part of its own."""

    title: str
    seconds: float
    parts: list[Part]


def breakdowns(run: Run) -> tuple[int, list[Breakdown]]:
    """Number of averaged steps, and one breakdown per measured total."""
    steps, means = _means(run)
    found = [
        _parts("A step of the trainer", means, "time/step", STEP_PARTS),
        _parts("A rollout", means, "time/episode", EPISODE_PARTS),
    ]
    return steps, [one for one in found if one is not None]


def _parts(
    title: str, means: Mapping[str, float], whole: str, wanted: tuple[tuple[str, str, bool], ...]
) -> Breakdown | None:
    total = means.get(whole, 0.0)
    if total <= 0:
        return None
    measured = [(label, max(0.0, means[name]), idle) for name, label, idle in wanted if name in means]
    if not measured:
        return None
    explained = sum(seconds for _, seconds, _ in measured)
    rest = total - explained
    if rest > 0.005 * total:
        measured.append(("Other", rest, False))
    whole_seconds = max(total, explained)  # parts that overlap may add up to more
    parts, before = [], 0.0
    for label, seconds, idle in measured:
        share = seconds / whole_seconds
        parts.append(Part(label, seconds, share, before, idle))
        before += share
    return Breakdown(title, total, parts)


def _means(run: Run) -> tuple[int, dict[str, float]]:
    """Mean of each `time/` metric over the run's newest steps. A part missing from a step counts as 0."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT k.name, sum(m.value), count(*)
            FROM runs_metrickey k
            CROSS JOIN LATERAL (
                SELECT value FROM runs_metric
                WHERE run_id = %(run)s AND key_id = k.id AND step > %(step)s - %(steps)s ORDER BY step DESC LIMIT %(steps)s
            ) m
            WHERE k.name = ANY(%(names)s) GROUP BY k.name
            """,
            {
                "run": run.pk,
                "step": run.step,
                "steps": STEPS,
                "names": ["time/step", "time/episode", *(name for name, _, _ in (*STEP_PARTS, *EPISODE_PARTS))],
            },
        )
        rows = cursor.fetchall()
    counts = {name: count for name, _, count in rows}
    steps = counts.get("time/step", 0)
    means = {}
    for name, total, count in rows:
        own = name in ("time/step", "time/episode", *(part for part, _, _ in EPISODE_PARTS))
        means[name] = total / (count if own else max(steps, 1))
    return steps, means
