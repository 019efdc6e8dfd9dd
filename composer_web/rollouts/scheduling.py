"""What the decisions of `trainer.asynchrony` need to know of a run, and where their outcome is kept."""

from __future__ import annotations

import logging

from django.db.models import Count, Min

from composer_web.ops import inference
from composer_web.rollouts.models import GROUP_OPEN, Group, GroupState, GroupTransition
from composer_web.runs.models import Run
from composer_web.runs.whereabouts import deployment_name
from trainer.asynchrony.breaker import WINDOW, tripped
from trainer.asynchrony.concurrency import EngineLoad, next_limit
from trainer.asynchrony.reasons import OURS, reason_of
from trainer.asynchrony.window import Place, State
from trainer.config import RLConfig
from trainer.inference.contract import InferenceError, ServerHealth

log = logging.getLogger(__name__)

_STATE: dict[str, State] = {**dict.fromkeys(GROUP_OPEN, "open"), "accepted": "accepted", "consumed": "consumed"}


def places(run: Run) -> list[tuple[Place, int]]:
    """Groups of a run that were not dropped, in prompt order from the oldest that no step has, with their ids. One whose
    reviewers are waited for is open."""
    from composer_web.review.applying import awaited  # review is built on rollouts

    kept = Group.objects.filter(run=run).exclude(state=GroupState.DROPPED)
    oldest = kept.exclude(state=GroupState.CONSUMED).aggregate(oldest=Min("prompt_index"))["oldest"]
    if oldest is None:
        return []
    rows = kept.filter(prompt_index__gte=oldest).order_by("prompt_index")
    waiting = awaited(run)
    return [
        (Place(prompt, "open" if pk in waiting else _STATE[state], version), pk)
        for pk, prompt, state, version in rows.values_list("pk", "prompt_index", "state", "dispatched_version")
    ]


def flow(run: Run) -> dict[str, float]:
    """Groups since the run began, under the names of `trainer.learning.metrics`."""
    of = dict(Group.objects.filter(run=run).order_by().values_list("state").annotate(count=Count("pk")))
    out = {
        "groups/dispatched": float(sum(of.values())),
        "groups/accepted": float(of.get("accepted", 0) + of.get("consumed", 0)),
        "groups/dropped": float(of.get("dropped", 0)),
        "groups/in_flight": float(sum(of.get(state, 0) for state in GROUP_OPEN)),
        "groups/surplus": float(of.get("accepted", 0)),
    }
    for cause in Group.objects.filter(run=run, state=GroupState.DROPPED).values_list("cause", flat=True):
        name = f"groups/dropped/{reason_of(cause)}"
        out[name] = out.get(name, 0.0) + 1.0
    run.refresh_from_db(fields=["in_flight_limit"])
    stage = run.configuration.stage
    assert isinstance(stage, RLConfig)
    return out | {"concurrency/limit": float(limit_of(run, stage))}


def limit_of(run: Run, stage: RLConfig) -> int:
    """Groups that the run may have in flight now."""
    adapted = run.in_flight_limit if stage.asynchrony.adaptive else None
    return adapted or stage.max_in_flight_groups


def adapt(run: Run, health: ServerHealth) -> None:
    """Move the limit of a run with the load of its deployment."""
    stage = run.configuration.stage
    assert isinstance(stage, RLConfig)
    served = next((d for d in health.deployments if d.name == deployment_name(run)), None)
    if served is None or served.state != "serving" or not stage.asynchrony.adaptive:
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
    """What the inference server says; None while it does not answer, and then nothing is changed."""
    try:
        return inference.health(timeout=2.0)
    except InferenceError as error:
        log.info("no engine load: %s", error)
        return None


def fault(run: Run) -> str | None:
    """Why the run should pause rather than spend more prompts; None when all is well. Counts since it was last started."""
    stage = run.configuration.stage
    assert isinstance(stage, RLConfig)
    ends = GroupTransition.objects.filter(group__run=run, to_state__in=["accepted", "dropped"])
    if run.queued_at is not None:
        ends = ends.filter(at__gte=run.queued_at)
    rows = ends.order_by("-pk").values_list("to_state", "group__cause")[:WINDOW]
    recent = [state == "accepted" for state, cause in rows if state == "accepted" or reason_of(cause) in OURS]
    return tripped(recent, in_a_row=stage.asynchrony.breaker)
