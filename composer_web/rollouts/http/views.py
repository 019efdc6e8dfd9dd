"""Views of rollouts: table, trajectory, raw tokens, download."""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import QuerySet
from django.http import Http404, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe
from django_tables2 import RequestConfig

from composer_web.core.artifacts import ArtifactError, artifacts
from composer_web.core.errors import NotFound
from composer_web.core.numbers import row_ids, whole
from composer_web.policies.selectors import references
from composer_web.review import blind
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch.advantages import weights_of
from composer_web.rollouts.finding_rules import RULE_TITLES
from composer_web.rollouts.http.tables import RolloutTable
from composer_web.rollouts.models import Finding, Rollout
from composer_web.rollouts.review_hooks import review
from composer_web.rollouts.search import fulltext, searching
from composer_web.rollouts.search.filters import OPEN, RolloutFilter
from composer_web.rollouts.trajectory import lens, trajectory_store, transcript, turn_filters
from composer_web.rollouts.trajectory.outcome import outcome
from composer_web.rollouts.trajectory.overview import overview
from composer_web.runs.selectors import get_run
from composer_web.tasks.selectors import instruction_of
from composer_web.ui import saved_views
from composer_web.ui.filters import strict
from composer_web.ui.pages import Figure, PageRequest, page, show
from composer_web.ui.streaming import streamed
from composer_web.ui.tables import MAX_COUNTED, chosen_columns
from composer_web.ui.templatetags import ui
from trainer.rollouts.fork import NO_TOKENS
from trainer.types import Trajectory

PER_PAGE = 50
BESIDE_MATCH = ("stop_reason", "tool_errors", "output_tokens", "oldest_version")
"""Columns that make room for where a search was found."""


@require_safe
@page()
def rollout_list(request: PageRequest) -> HttpResponse:
    return _list(request, selectors.rollout_rows())


@require_safe
@page()
def rollouts_of_run(request: PageRequest, run_id: int) -> HttpResponse:
    """The same list within the frame of one run."""
    run = get_run(run_id)
    return _list(request, selectors.rollout_rows().filter(group__run=run), run=run)


def _list(request: PageRequest, rows: QuerySet[Rollout], **context: Any) -> HttpResponse:
    found = strict(RolloutFilter, request.GET, queryset=rows)
    words = fulltext.first_words(request.GET.get("text", ""))
    may_review = request.user.may("reviewer")
    chosen = chosen_columns(request)
    beside = () if chosen else BESIDE_MATCH
    hidden = (*(beside if words else ("match",)), *(() if may_review else ("select",)))
    ended, note = _ended(request, found)
    table = RolloutTable(ended, chosen=chosen, exclude=hidden)
    table.note = note
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    template = "partials/rows.html" if request.headers.get("HX-Request") else "rollouts/list.html"
    # What was searched for stays as it was found; a live list would take the snippets away again.
    live = "" if words else "rollouts"
    context |= {
        "table": table,
        "filter": found,
        "live": live,
        "saved": saved_views.offered(request, request.user, "rollouts"),
        "columns": table.offered(),
        "may_review": may_review,
        "previews": True,
    }
    if words:
        shown = [("id", row.record.pk) for row in table.paginated_rows]
        context["snippets"] = urlencode([("q", words), *shown])
    return show(request, template, {**context, "chips": [_chip(request, *chip) for chip in RolloutFilter.chips]})


def _ended(request: PageRequest, found: RolloutFilter) -> tuple[QuerySet[Rollout], SafeString | str]:
    """Without a filter by verdict: those that have one, because hundreds that wait say nothing; and a line that counts the
    others."""
    if found.form.cleaned_data.get("verdict"):
        return found.qs, ""
    waiting = found.qs.filter(verdict="").order_by()[: MAX_COUNTED + 1].count()
    if not waiting:
        return found.qs, ""
    query = request.GET.copy()
    query.pop("page", None)
    query["verdict"] = OPEN
    count = f"more than {MAX_COUNTED}" if waiting > MAX_COUNTED else waiting
    note = format_html(
        '{} rollout{} without a verdict yet: <a href="?{}">show open rollouts</a>',
        count, "" if waiting == 1 else "s", query.urlencode(),
    )  # fmt: skip
    return found.qs.exclude(verdict=""), note


@require_safe
@page()
def rollout_snippets(request: PageRequest) -> HttpResponse:
    """Where the words of a search stand in the rollouts of a page of the list (`?q=`, `?id=` for each)."""
    text = request.GET.get("q", "")[:200]
    wanted = row_ids(request.GET.getlist("id"))[:PER_PAGE]
    found = []
    for rollout in selectors.rollouts().filter(pk__in=wanted):
        try:
            hit = searching.first(trajectory_store.of(rollout), text)
        except (NotFound, ArtifactError):
            hit = None
        found.append((rollout, hit))
    return show(request, "rollouts/_snippets.html", {"found": found})


def _chip(request: PageRequest, title: str, name: str, value: str) -> dict[str, Any]:
    """A link that sets or unsets one filter and keeps the others."""
    query = request.GET.copy()
    query.pop("page", None)
    on = request.GET.get(name) == value
    if on:
        del query[name]
    else:
        query[name] = value
    return {"title": title, "on": on, "query": f"?{query.urlencode()}" if query else ""}


@require_safe
@page()
def rollout_detail(request: PageRequest, pk: int) -> HttpResponse:
    rollout = selectors.get_rollout(pk)
    siblings = selectors.siblings(rollout)
    place = next(i for i, sibling in enumerate(siblings) if sibling.pk == rollout.pk)
    context: dict[str, Any] = {
        "rollout": rollout,
        "siblings": siblings,
        "position": place + 1,
        "previous": siblings[place - 1] if place else None,
        "following": siblings[place + 1] if place + 1 < len(siblings) else None,
        "head": None,
        "trajectory": None,
        "problem": "",
    }
    if request.user.may("operator"):
        context |= {"fork_turn": _number(request, "fork"), "fork_policies": references()}
    hidden = bool(blind.blind_in(rollout, request.user))
    context |= {
        "sheet": review().sheet(rollout, request.user, hidden=hidden),
        "may_review": request.user.may("reviewer"),
    }
    try:
        read = trajectory_store.of(rollout)
        context |= _transcript(request, rollout, read, hidden=hidden)
        context["overview"] = json.dumps(overview(read.head.facts, context["marks"]))
        if read.head.trajectory is not None:
            context |= _outcome(rollout, siblings, read.head, read.head.trajectory)
            if context["labels_hidden"] and blind.unsaid(rollout):
                context |= {"quarantined": False, "weight": None}
    except selectors.TrajectoryDeleted as error:
        context["problem"] = str(error)
    except NotFound:
        context["problem"] = f"No trajectory was recorded: {rollout.cause}" if rollout.verdict else ""
    except ArtifactError as error:
        context["problem"] = str(error)
    return show(request, "rollouts/detail.html", context)


def _transcript(
    request: PageRequest, rollout: Rollout, read: trajectory_store.Reading, *, hidden: bool
) -> dict[str, Any]:
    """The requested turns, and the facts of all turns; with `hidden`, without what others' labels raised. Raises
    ArtifactError, Http404."""
    found = _findings(rollout, hidden=hidden)
    marks = transcript.marks(found)
    only = turn_filters.wanted(request.GET.get("only", ""))
    places = turn_filters.places(read.head, only, marks)
    at = _number(request, "at") if "at" in request.GET else bisect_left(places, _number(request, "turn"))
    return {
        "head": read.head,
        "turns_total": read.total,
        "findings": found,
        "labels_hidden": hidden,
        "marks": marks,
        "only": ",".join(sorted(only)),
        "chips": turn_filters.chips(read.head, only, marks),
        "context_windows": turn_filters.windows(read.head),
        "window": transcript.window_of(read, places, at),
        "opening": transcript.opening(read.head.messages),
        "notices": transcript.notices(read.head.facts, missing=read.head.missing),
        "may_review": request.user.may("reviewer"),
        **_refusals(read),
    }


def _findings(rollout: Rollout, *, hidden: bool) -> list[Finding]:
    """Findings of the rollout. With `hidden`, without those raised by labels, for reviewers who have yet to answer."""
    return [finding for finding in selectors.findings_of(rollout) if not (hidden and finding.rule == blind.RULE)]


def _refusals(read: trajectory_store.Reading) -> dict[str, str]:
    """Reasons why no turn can be continued or turned into a task. Empty if they can."""
    if read.head.trajectory is None:
        return dict.fromkeys(("cannot_fork", "cannot_draft"), "The rollout still runs. Wait until it has ended.")
    return {
        "cannot_fork": "" if read.head.segment_tokens else f"It cannot be continued: {NO_TOKENS}.",
        "cannot_draft": "",
    }


def _outcome(
    rollout: Rollout, siblings: list[Rollout], head: trajectory_store.Head, trajectory: Trajectory
) -> dict[str, Any]:
    """Content beside the transcript of a finished rollout."""
    return {
        **outcome(trajectory),
        "rule_titles": RULE_TITLES,
        "quarantined": any(sibling.held for sibling in siblings if sibling.pk == rollout.pk),  # type: ignore[attr-defined]
        "forks": selectors.forks_of(rollout),
        "figures": _figures(rollout, trajectory),
        "instruction": instruction_of(rollout.group.task_version_id),
        "segments": [{"index": i, "length": length} for i, length in enumerate(head.segment_tokens)],
        "group_mean": rollout.group.mean_reward,
        "weight": weights_of(rollout.group, siblings).get(rollout.sample),
    }


def _figures(rollout: Rollout, trajectory: Trajectory) -> list[Figure]:
    cases = trajectory.report.cases
    passed = sum(case.status == "passed" for case in cases)
    return [
        Figure("Reward", ui.num(rollout.reward)),
        Figure("Hidden tests", f"{passed} / {len(cases)}", note="passed"),
        Figure("Turns", ui.num(rollout.turns), note=f"{rollout.tool_calls} tool calls"),
        Figure("Tool errors", ui.num(rollout.tool_errors)),
        Figure("Output tokens", ui.num(rollout.output_tokens), note=f"{ui.num(rollout.total_tokens)} total"),
        Figure("Policy version", ui.num(rollout.oldest_version) if rollout.oldest_version != -1 else "–"),
        Figure("Duration", ui.seconds(trajectory.seconds.get("total"))),
    ]


def _number(request: PageRequest, name: str) -> int:
    """A numeric query parameter; 0 if absent. Raises Http404 for other values."""
    text = request.GET.get(name, "0")
    found = whole(text)
    if found is None:
        raise Http404(f"{name} is a number, not {text!r}")
    return found


def _open(pk: int) -> tuple[Rollout, trajectory_store.Reading]:
    """A rollout with a readable trajectory. Raises NotFound, Http404."""
    rollout = selectors.get_rollout(pk)
    try:
        return rollout, trajectory_store.of(rollout)
    except ArtifactError as error:
        raise Http404(str(error)) from error


@require_safe
@page()
def rollout_preview(request: PageRequest, pk: int) -> HttpResponse:
    """A rollout beside the list: what came of it."""
    rollout = selectors.get_rollout(pk)
    context: dict[str, Any] = {"rollout": rollout, "problem": ""}
    try:
        head = trajectory_store.of(rollout).head
        if head.trajectory is not None:
            context |= outcome(head.trajectory)
    except (NotFound, ArtifactError) as error:
        context["problem"] = str(error)
    return show(request, "rollouts/_preview.html", context)


@require_safe
@page()
def rollout_next_failure(request: PageRequest, pk: int) -> HttpResponse:
    """To the next failed rollout of the same run or evaluation."""
    found = selectors.next_failure(selectors.get_rollout(pk))
    if found is None:
        messages.info(request, "No other rollout has failed.")
    return redirect("rollouts:detail", pk=found.pk if found else pk)


@require_safe
@page()
def rollout_turns(request: PageRequest, pk: int) -> HttpResponse:
    """One window of turns, loaded on scroll or jump. `?one=` returns a single turn with all its text."""
    rollout, read = _open(pk)
    try:
        if "one" in request.GET:
            index = _number(request, "one")
            if index >= read.total:
                raise Http404(f"rollout {pk} has {read.total} turns")
            marks = transcript.marks(_findings(rollout, hidden=bool(blind.blind_in(rollout, request.user))))
            turn = transcript.view(*read.turns([index]), whole=True)
            facts = {"turn": turn, "turns_total": read.total, "marks": marks, **_refusals(read)}
            return show(request, "rollouts/_turn.html", {"rollout": rollout, **facts})
        hidden = bool(blind.blind_in(rollout, request.user))
        context = {"rollout": rollout, **_transcript(request, rollout, read, hidden=hidden), "fresh": True}
        if "known" in request.GET:  # a rollout that grows: facts of the turns that the page has not heard of
            context["grown"] = json.dumps(overview(read.head.facts, context["marks"], _number(request, "known")))
        return show(request, "rollouts/_window.html", context)
    except ArtifactError as error:
        raise Http404(str(error)) from error


@require_safe
@page()
def rollout_search(request: PageRequest, pk: int) -> HttpResponse:
    """Occurrences of a text in the whole trajectory, loaded or not."""
    rollout, read = _open(pk)
    text = request.GET.get("q", "")[:200]
    context = {"rollout": rollout, "q": text, "found": searching.search(read, text), "most": searching.MAX_HITS}
    return show(request, "rollouts/_hits.html", context)


@require_safe
@page()
def rollout_tokens(request: PageRequest, pk: int) -> HttpResponse:
    """A page of the token lens as JSON. `?turn=` or `?segment=` selects the span, `&at=` the page by position."""
    rollout, read = _open(pk)
    span = (
        lens.span_of_turn(read, _number(request, "turn"))
        if "turn" in request.GET
        else lens.span_of_segment(read, _number(request, "segment"))
    )
    if span is None:
        raise Http404(f"rollout {pk} has {read.total} turns and {len(read.head.segment_tokens)} segments")
    return JsonResponse(lens.of(rollout, read, span, _number(request, "at")))


@require_safe
@page()
def rollout_download(request: PageRequest, pk: int) -> HttpResponseBase:
    """Download the complete trajectory as JSON. Streamed, because it may exceed the server's memory."""
    rollout = selectors.get_rollout(pk)
    if not rollout.artifact_key:
        raise NotFound("recorded trajectory of rollout", f"{pk} (it is {rollout.state})")
    selectors.require_kept(rollout)
    try:
        pieces = artifacts().stream(rollout.artifact_key)
    except ArtifactError as error:
        raise Http404(str(error)) from error
    return streamed(request, pieces, content_type="application/json", name=f"rollout-{pk}.json")
