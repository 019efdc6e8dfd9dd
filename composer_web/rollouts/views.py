"""Pages of rollouts: table, trajectory, its raw tokens, and the download."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpResponse, JsonResponse
from django.views.decorators.http import require_GET
from django_tables2 import RequestConfig

from composer_web.ops.artifacts import ArtifactError
from composer_web.ops.errors import NotFound
from composer_web.ops.pages import Figure, PageRequest, page, show
from composer_web.ops.templatetags import ui
from composer_web.policies.selectors import references
from composer_web.rollouts import lens, searching, selectors, transcript
from composer_web.rollouts.auditing import RULE_TITLES
from composer_web.rollouts.filters import RolloutFilter
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.tables import RolloutTable
from trainer.rollouts.types import Trajectory

PER_PAGE = 50
PLACES = {"tests": "report", "length": "tokens"}
"""Reward part → the section of the page that it was computed from."""


@require_GET
@page()
def rollout_list(request: PageRequest) -> HttpResponse:
    found = RolloutFilter(request.GET, queryset=selectors.rollouts())
    table = RolloutTable(found.qs)
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    template = "partials/rows.html" if request.headers.get("HX-Request") else "rollouts/list.html"
    return show(request, template, {"table": table, "filter": found, "live": "rollouts"})


@require_GET
@page()
def rollout_detail(request: PageRequest, pk: int) -> HttpResponse:
    rollout = selectors.get_rollout(pk)
    siblings = list(selectors.siblings(rollout))
    place = next(i for i, sibling in enumerate(siblings) if sibling.pk == rollout.pk)
    context: dict[str, Any] = {
        "rollout": rollout,
        "siblings": siblings,
        "position": place + 1,
        "previous": siblings[place - 1] if place else None,
        "following": siblings[place + 1] if place + 1 < len(siblings) else None,
        "trajectory": None,
        "problem": "",
    }
    if request.user.may("operator"):
        context |= {"fork_turn": _number(request, "fork"), "fork_policies": references()}
    try:
        trajectory = selectors.trajectory(rollout)
        context |= _trajectory(rollout, trajectory, may_review=request.user.may("reviewer"))
        context |= {"window": transcript.window(trajectory, _number(request, "turn"))}
    except NotFound:
        context["problem"] = f"No trajectory was recorded: {rollout.cause}" if rollout.verdict else ""
    except ArtifactError as error:
        context["problem"] = str(error)
    return show(request, "rollouts/detail.html", context)


def _trajectory(rollout: Rollout, trajectory: Trajectory, *, may_review: bool) -> dict[str, Any]:
    cases = trajectory.report.cases
    worst_first = sorted(cases, key=lambda case: case.status == "passed")
    mean = rollout.group.mean_reward
    found = selectors.findings_of(rollout)
    held = selectors.in_quarantine(rollout)
    return {
        "findings": found,
        "rule_titles": RULE_TITLES,
        "quarantined": held,
        "marks": transcript.marks(found),
        "forks": selectors.forks_of(rollout),
        "may_review": may_review,
        "trajectory": trajectory,
        "figures": _figures(rollout, trajectory),
        "opening": transcript.opening(trajectory),
        "notices": transcript.notices(trajectory),
        "patch": transcript.diff_view(trajectory.patch),
        "cases": worst_first[: transcript.MAX_CASES],
        "cases_cut": max(0, len(cases) - transcript.MAX_CASES),
        "segments": [{"index": i, "length": len(s.tokens)} for i, s in enumerate(trajectory.segments)],
        "reward_parts": [
            {**p.model_dump(), "adds": p.value * p.weight, "place": PLACES.get(p.name, "")}
            for p in trajectory.reward_parts
        ],
        "group_mean": mean,
        "advantage": rollout.reward - mean if rollout.reward is not None and mean is not None and not held else None,
    }


def _figures(rollout: Rollout, trajectory: Trajectory) -> list[Figure]:
    cases = trajectory.report.cases
    passed = sum(case.status == "passed" for case in cases)
    return [
        Figure("Reward", ui.num(rollout.reward)),
        Figure("Hidden tests", f"{passed} / {len(cases)}", note="passed"),
        Figure("Turns", ui.num(rollout.turns), note=f"{rollout.tool_calls} tool calls"),
        Figure("Tool errors", ui.num(rollout.tool_errors)),
        Figure("Policy tokens", ui.num(rollout.policy_tokens), note=f"{ui.num(rollout.total_tokens)} in all"),
        Figure("Policy version", ui.num(rollout.oldest_version) if rollout.oldest_version != -1 else "–"),
        Figure("Took", ui.seconds(trajectory.seconds.get("total"))),
    ]


def _number(request: PageRequest, name: str) -> int:
    """A query parameter that counts something; 0 when it is absent. Raises Http404 for anything else."""
    text = request.GET.get(name, "0")
    if not text.isdecimal() or len(text) > 9:
        raise Http404(f"{name} is a number, not {text!r}")
    return int(text)


def _recorded(pk: int) -> tuple[Rollout, Trajectory]:
    """A rollout that has a trajectory. Raises NotFound, Http404."""
    rollout = selectors.get_rollout(pk)
    try:
        return rollout, selectors.trajectory(rollout)
    except ArtifactError as error:
        raise Http404(str(error)) from error


@require_GET
@page()
def rollout_turns(request: PageRequest, pk: int) -> HttpResponse:
    """One window of turns, fetched when a person comes near it or jumps there."""
    rollout, trajectory = _recorded(pk)
    context = {
        "rollout": rollout,
        "window": transcript.window(trajectory, _number(request, "turn")),
        "marks": transcript.marks(selectors.findings_of(rollout)),
        "fresh": True,
        "edge": request.GET.get("edge", ""),
    }
    return show(request, "rollouts/_turns.html", context)


@require_GET
@page()
def rollout_search(request: PageRequest, pk: int) -> HttpResponse:
    """Where a text occurs in the trajectory, whatever of it is loaded."""
    rollout, trajectory = _recorded(pk)
    text = request.GET.get("q", "")[:200]
    context = {"rollout": rollout, "q": text, "found": searching.search(trajectory, text), "most": searching.MAX_HITS}
    return show(request, "rollouts/_hits.html", context)


@require_GET
@page()
def rollout_tokens(request: PageRequest, pk: int) -> HttpResponse:
    """A page of the token lens as JSON: `?turn=` or `?segment=`, and `&at=` for the page that holds a position."""
    rollout, trajectory = _recorded(pk)
    span: lens.Span | None
    if "turn" in request.GET:
        span = lens.span_of_turn(trajectory, _number(request, "turn"))
    else:
        index = _number(request, "segment")
        known = index < len(trajectory.segments)
        span = lens.Span(index, 0, len(trajectory.segments[index].tokens)) if known else None
    if span is None:
        raise Http404(f"rollout {pk} has {len(trajectory.turns)} turns and {len(trajectory.segments)} segments")
    return JsonResponse(lens.of(rollout, trajectory, span, _number(request, "at")))


@require_GET
@page()
def rollout_download(request: PageRequest, pk: int) -> HttpResponse:
    """The whole trajectory as JSON, nothing cut."""
    _, trajectory = _recorded(pk)
    answer = HttpResponse(trajectory.model_dump_json(indent=1), content_type="application/json")
    answer["Content-Disposition"] = f'attachment; filename="rollout-{pk}.json"'
    return answer
