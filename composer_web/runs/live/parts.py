"""Context and HTML of a run page's live parts (`templates/runs/_<part>.html`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.template.loader import render_to_string

from composer_web.evals import selectors as evals
from composer_web.policies import selectors as policies
from composer_web.rollouts import selectors as rollouts
from composer_web.rollouts.models import GROUP_OPEN
from composer_web.runs import actions, lineage, selectors
from composer_web.runs.charts import timing
from composer_web.runs.detectors import insights
from composer_web.runs.live import status
from composer_web.runs.models import Run
from composer_web.runs.training import clusters, waiting

FORKS = 12
"""Maximum number of start checkpoints on the page. The policy's page lists all."""
GROUPS = 12
"""Groups on a run's overview."""
FAILURES = 6
"""Failed rollouts on a run's overview."""
EXPORTABLE = (
    ("metrics", "metrics"),
    ("rollouts", "rollouts"),
    ("findings", "findings"),
    ("evaluations", "evaluations"),
)
"""Tables that a run's page exports, as (table, name)."""


def _head(run: Run) -> dict[str, Any]:
    checkpoints = policies.on_disk(run.policy_out)[:FORKS] if run.policy_out else []
    return {
        "actions": actions.possible(run),
        "checkpoints": checkpoints,
        "exportable": EXPORTABLE,
        "own_rows": f"run={run.pk}",
    }


def _status(run: Run) -> dict[str, Any]:
    step = selectors.step_seconds(run) if run.state in ("running", "pausing") else None
    eta = step * max(0, run.steps_total - run.step) if step is not None else selectors.eta_seconds(run)
    waits = waiting.waits_for(run)
    found = insights.of_run(run)
    return {
        "figures": status.figures(run, insights.tones(found)),
        "eta": eta,
        "step_seconds": step,
        "waits_for": waits,
        "insights": found,
    }


def _events(run: Run) -> dict[str, Any]:
    return {"events": selectors.events(run)[:40]}


def _groups(run: Run) -> dict[str, Any]:
    """Groups that have ended, newest first; the open ones are counted, because they show nothing yet."""
    counts = rollouts.group_counts(run)
    return {
        "groups": rollouts.ended_groups(run, GROUPS),
        "open_groups": [(state, counts[state]) for state in reversed(GROUP_OPEN) if state in counts],
    }


def _evals(run: Run) -> dict[str, Any]:
    return {"evaluations": evals.of_run(run)}


def _failures(run: Run) -> dict[str, Any]:
    """The failed rollouts with the lowest reward, the newest of equals first."""
    failed = rollouts.rollout_rows().filter(group__run=run, verdict="failed")
    return {"failures": list(failed.order_by("reward", "-pk")[:FAILURES])}


def _lineage(run: Run) -> dict[str, Any]:
    return {"lineage": lineage.lineage(run)}


def _clusters(run: Run) -> dict[str, Any]:
    return {"board": clusters.board(run)}


def _timing(run: Run) -> dict[str, Any]:
    steps, found = timing.breakdowns(run)
    return {"breakdowns": found, "timed_steps": steps}


PARTS: dict[str, Callable[[Run], dict[str, Any]]] = {
    "head": _head,
    "status": _status,
    "events": _events,
    "groups": _groups,
    "evals": _evals,
    "timing": _timing,
    "failures": _failures,
    "lineage": _lineage,
    "clusters": _clusters,
}
LATER = ("lineage", "clusters", "failures")
"""Parts that the page loads after rendering, because they need expensive queries."""


def html(run: Run, part: str, *, may_operate: bool) -> str:
    """HTML for pages that are already open. It has no CSRF token, which differs per browser; js/stream.js inserts
    it."""
    return render_to_string(f"runs/_{part}.html", {"run": run, "may_operate": may_operate, **PARTS[part](run)})
