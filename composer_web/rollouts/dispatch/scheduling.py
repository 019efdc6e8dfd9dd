"""Reads the inputs of `trainer.orchestrator` decisions from the database and stores their results."""

from __future__ import annotations

import logging

from django.db.models import Count, Min

from composer_web.core import inference
from composer_web.rollouts.models import GROUP_OPEN, Group, GroupState, GroupTransition
from composer_web.rollouts.review_hooks import review
from composer_web.runs.models import Run
from composer_web.runs.paths import deployment_name
from sandbox.grading.verdict.outcomes import UNRECORDED, is_ours
from trainer.config import RLConfig
from trainer.inference.contract import InferenceError, ServerHealth
from trainer.orchestrator.batch_scheduler import BufferEntry, State
from trainer.orchestrator.circuit_breaker import WINDOW, breaker_open
from trainer.orchestrator.concurrency import EngineLoad, next_limit

log = logging.getLogger(__name__)

_STATE: dict[str, State] = {**dict.fromkeys(GROUP_OPEN, "open"), "accepted": "accepted", "consumed": "consumed"}


def entries(run: Run) -> list[tuple[BufferEntry, int]]:
    """Groups of a run that were not dropped, with ids, in prompt order from the oldest one without a step. A group
    that waits for reviewers counts as open."""
    kept = Group.objects.filter(run=run).exclude(state=GroupState.DROPPED)
    oldest = kept.exclude(state=GroupState.CONSUMED).aggregate(oldest=Min("prompt_index"))["oldest"]
    if oldest is None:
        return []
    rows = kept.filter(prompt_index__gte=oldest).order_by("prompt_index")
    waiting = review().awaited(run)
    found = rows.values_list("pk", "prompt_index", "state", "dispatched_version", "oldest_version")
    return [
        (BufferEntry(prompt, "open" if pk in waiting else _STATE[state], _version(state, dispatched, oldest)), pk)
        for pk, prompt, state, dispatched, oldest in found
    ]


def _version(state: str, dispatched: int, oldest: int | None) -> int:
    """Version of the oldest token of a finished group; version at dispatch of an open one."""
    return oldest if state == GroupState.ACCEPTED and oldest is not None and oldest >= 0 else dispatched


def flow(run: Run) -> dict[str, float]:
    """Group counts since the start of the run, keyed by the names in `trainer.learning.metrics`."""
    of = dict(Group.objects.filter(run=run).order_by().values_list("state").annotate(count=Count("pk")))
    out = {
        "groups/dispatched": float(sum(of.values())),
        "groups/accepted": float(of.get("accepted", 0) + of.get("consumed", 0)),
        "groups/dropped": float(of.get("dropped", 0)),
        "groups/in_flight": float(sum(of.get(state, 0) for state in GROUP_OPEN)),
        "groups/surplus": float(of.get("accepted", 0)),
    }
    for outcome in Group.objects.filter(run=run, state=GroupState.DROPPED).values_list("outcome", flat=True):
        name = f"groups/dropped/{outcome or UNRECORDED}"
        out[name] = out.get(name, 0.0) + 1.0
    run.refresh_from_db(fields=["in_flight_limit"])
    stage = run.configuration.stage
    assert isinstance(stage, RLConfig)
    return out | {"concurrency/limit": float(limit_of(run, stage))}


def limit_of(run: Run, stage: RLConfig) -> int:
    """Number of groups that the run may have in flight."""
    adapted = run.in_flight_limit if stage.orchestrator.adaptive_concurrency else None
    return adapted or stage.max_in_flight_groups


def adapt(run: Run, health: ServerHealth) -> None:
    """Adapt the run's limit to the load of its deployment."""
    stage = run.configuration.stage
    assert isinstance(stage, RLConfig)
    served = next((d for d in health.deployments if d.name == deployment_name(run)), None)
    if served is None or served.state != "serving" or not stage.orchestrator.adaptive_concurrency:
        return
    now = limit_of(run, stage)
    wanted = next_limit(
        now,
        EngineLoad(served.running, served.waiting, served.slots),
        least=stage.groups_per_step,
        most=stage.max_in_flight_groups,
        group_size=stage.group_size,
    )
    if wanted != now:
        log.info("run %d: %d groups may be in flight (%s)", run.pk, wanted, served)
        Run.objects.filter(pk=run.pk).update(in_flight_limit=wanted)


def engine_health() -> ServerHealth | None:
    """Status of the inference server. None if it does not answer; then nothing is changed."""
    try:
        return inference.health(timeout=2.0)
    except InferenceError as error:
        log.info("no engine load: %s", error)
        return None


def fault(run: Run) -> str | None:
    """Reason to pause the run instead of spending prompts, or None. Counts since the last start."""
    stage = run.configuration.stage
    assert isinstance(stage, RLConfig)
    ends = GroupTransition.objects.filter(group__run=run, to_state__in=["accepted", "dropped"])
    if run.queued_at is not None:
        ends = ends.filter(at__gte=run.queued_at)
    rows = ends.order_by("-pk").values_list("to_state", "group__outcome")[:WINDOW]
    recent = [state == "accepted" for state, outcome in rows if state == "accepted" or is_ours(outcome)]
    return breaker_open(recent, in_a_row=stage.orchestrator.circuit_breaker_losses)
