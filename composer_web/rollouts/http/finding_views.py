"""Views of findings: table with facets, detail page with history, decisions."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe
from django_tables2 import RequestConfig

from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import NotFound, UserError
from composer_web.core.numbers import row_ids
from composer_web.env import env
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch import findings
from composer_web.rollouts.finding_rules import RULE_TITLES
from composer_web.rollouts.http.tables import FindingTable, place_of
from composer_web.rollouts.search.filters import FindingFilter
from composer_web.runs.models import Run
from composer_web.runs.selectors import get_run
from composer_web.ui import saved_views
from composer_web.ui.bulk import act_on_each, counted
from composer_web.ui.filters import strict
from composer_web.ui.pages import Figure, PageRequest, act, page, refuse, show
from composer_web.ui.tables import chosen_columns
from composer_web.ui.templatetags import ui
from sandbox.grading.audit import RULES

PER_PAGE = 50
PREVIEWED = 3
"""Places of evidence beside the list."""
DECISIONS = {"confirmed": "Confirmed.", "dismissed": "Dismissed.", "open": "Open again."}


@require_safe
@page()
def finding_list(request: PageRequest) -> HttpResponse:
    found = strict(FindingFilter, request.GET, queryset=selectors.finding_rows())
    may_review = request.user.may("reviewer")
    table = FindingTable(found.qs, chosen=chosen_columns(request), exclude=() if may_review else ("select",))
    facets = [] if request.headers.get("HX-Request") else selectors.finding_facets(found.qs)
    if facets:
        table.known_count = sum(facet["total"] for facet in facets)
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    if request.headers.get("HX-Request"):
        return show(request, "partials/rows.html", {"table": table})
    context: dict[str, Any] = {"table": table, "filter": found, "live": "findings", **_counted(facets)}
    context |= {"saved": saved_views.offered(request, request.user, "findings"), "columns": table.offered()}
    context |= {
        "has_judge": bool(env().judge_url and env().judge_model),
        "of_run": _run(found.form.cleaned_data["run"]),
        "may_review": may_review,
        "previews": True,
    }
    return show(request, "rollouts/findings.html", context)


def _run(asked: int | None) -> Run | None:
    """The run that the list is narrowed to."""
    try:
        return get_run(asked) if asked else None
    except NotFound:
        return None


@require_safe
@page()
def finding_figures(request: PageRequest) -> HttpResponse:
    """Counts above and below the list, for a page whose rows have changed."""
    found = strict(FindingFilter, request.GET, queryset=selectors.finding_rows())
    return show(request, "rollouts/_findings_counted.html", _counted(selectors.finding_facets(found.qs)))


def _counted(facets: list[dict[str, Any]]) -> dict[str, Any]:
    for facet in facets:
        facet["title"] = RULE_TITLES.get(facet["rule"], facet["rule"])
    return {"facets": facets, "figures": _figures(facets)}


def _figures(facets: list[dict[str, Any]]) -> list[Figure]:
    def total(name: str) -> str:
        return ui.num(sum(facet[name] for facet in facets))

    return [
        Figure("Findings", total("total")),
        Figure("High", total("high"), note="kept out of training where it passed, by default"),
        Figure("Open", total("open"), note="nobody has decided"),
        Figure("Confirmed", total("confirmed")),
        Figure("Rules", ui.num(len(facets)), note="that found something"),
    ]


@require_safe
@page()
def finding_detail(request: PageRequest, pk: int) -> HttpResponse:
    finding = selectors.get_finding(pk)
    context = {
        "finding": finding,
        "title": RULE_TITLES.get(finding.rule, finding.rule),
        "rule": RULES.get(finding.rule),
        "place": place_of(finding),
        "transitions": finding.transitions.all(),
        "quarantine": selectors.quarantine_of(finding),
        "may_review": request.user.may("reviewer"),
    }
    return show(request, "rollouts/finding.html", context)


@require_safe
@page()
def finding_preview(request: PageRequest, pk: int) -> HttpResponse:
    """What the list shows beside its rows."""
    finding = selectors.get_finding(pk)
    shown = finding.evidence[:PREVIEWED]
    context = {
        "finding": finding,
        "title": RULE_TITLES.get(finding.rule, finding.rule),
        "place": place_of(finding),
        "evidence": shown,
        "more": len(finding.evidence) - len(shown),
    }
    return show(request, "rollouts/_finding_preview.html", context)


@require_POST
@page("reviewer")
def finding_bulk(request: PageRequest, action: str) -> HttpResponse:
    """Decide every ticked finding."""
    if action not in DECISIONS:
        raise NotFound("decision on findings", action)

    def decide(pk: int) -> None:
        note = request.POST.get("note", "")
        findings.decide(finding=selectors.get_finding(pk), to=action, actor=request.user, note=note)  # type: ignore[arg-type]

    steps = [(f"finding {pk}", partial(decide, pk)) for pk in row_ids(request.POST.getlist("finding"))]
    done = DECISIONS[action].lower()
    return act_on_each(request, steps, said=lambda names: f"{counted(names, 'finding')} {done}", to="rollouts:findings")


@require_POST
@page("reviewer")
def finding_decide(request: PageRequest, pk: int) -> HttpResponse:
    """Confirm, dismiss or reopen a finding, then return to the form's page."""
    finding = selectors.get_finding(pk)
    to = request.POST.get("state", "")
    back = request.POST.get("next", "")
    known = url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    page_of_form = back if known else reverse("rollouts:finding", args=[pk])
    try:
        findings.decide(finding=finding, to=to, actor=request.user, note=request.POST.get("note", ""))  # type: ignore[arg-type]
    except (UserError, ArtifactError) as error:
        return refuse(request, error, to=page_of_form)
    messages.success(request, DECISIONS[to])
    return redirect(page_of_form)


@require_POST
@page("reviewer")
def audit_run(request: PageRequest, run_id: int) -> HttpResponse:
    """Have a worker audit the run again with the current rules."""
    run = get_run(run_id)
    return act(
        request,
        lambda: findings.request_audit(run=run, actor=request.user, judge="judge" in request.POST),
        done="The auditor reads this run again.",
        to="runs:detail",
        pk=run_id,
    )
