"""Dry-run summary for the form, the API and the CLI."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from composer_web.runs.charts.comparing import Row, differences
from composer_web.runs.defaults import as_rows, derived, serving_engine
from composer_web.runs.launch.estimate import Estimate, estimate
from composer_web.runs.launch.memory import Memory, memory
from composer_web.runs.launch.plan import PlanRow, what_will_run
from composer_web.runs.models import Run
from trainer.config import RLConfig, RunConfig
from trainer.defaults import Choice


@dataclass(frozen=True)
class Summary:
    config: RunConfig
    """With numbers for its automatic settings."""
    choices: tuple[Choice, ...]
    """Those settings, with a reason each."""
    plan: list[PlanRow]
    estimate: Estimate | None
    memory: Memory | None
    engine: tuple[str, str] | None
    """Kind of the inference engine that will serve the run, and where or why; None for a run without rollouts."""


def summarise(config: RunConfig) -> Summary:
    """Raises UserError if the policy does not exist."""
    found = derived(config)
    full = found.config
    rollouts = isinstance(full.stage, RLConfig) and not full.stage.sessions.channel
    engine = serving_engine() if rollouts else None
    return Summary(full, found.choices, what_will_run(full), estimate(full), memory(full), engine)


def against_parent(config: RunConfig, parent: Run | None) -> list[Row]:
    """Settings that differ from the parent run, as [parent's, new]. Empty without a parent."""
    return differences([parent.config, config.model_dump(mode="json")]) if parent else []


def as_data(summary: Summary) -> dict[str, Any]:
    """Summary as the API and the CLI print it."""
    found, held = summary.estimate, summary.memory
    return {
        "derived": as_rows(summary.choices),
        "plan": [{"label": row.label, "value": row.value, "how": row.how} for row in summary.plan],
        "engine": {"kind": summary.engine[0], "how": summary.engine[1]} if summary.engine else None,
        "estimate": None
        if found is None
        else {
            "seconds": found.seconds,
            "training_seconds": found.training,
            "evaluation_seconds": found.evaluations,
            "head_seconds": found.heads,
            "tokens": found.tokens,
            "dollars": found.dollars,
            "measured_run": found.source.pk,
            "measured_steps": found.steps,
        },
        "memory": None
        if held is None
        else {
            "ranks": held.ranks,
            "trainer_bytes": held.rank_bytes,
            "engine_bytes": held.engine_bytes,
            "available_bytes": held.available,
            "fits": held.fits,
            "trainer": [asdict(part) for part in held.trainer],
            "engine": [asdict(part) for part in held.engine],
        },
    }
