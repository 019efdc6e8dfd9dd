"""Pages of policies: lineages of weights."""

from __future__ import annotations

import json

from django.http import HttpResponse
from django.views.decorators.http import require_safe
from django_tables2 import RequestConfig

from composer_web.evals import selectors as evals
from composer_web.evals.http.starting_views import form_of
from composer_web.ui.pages import PageRequest, may_use, page, show
from composer_web.policies.http import import_views, measuring_views
from composer_web.policies import selectors
from composer_web.policies.http.tables import PolicyTable
from composer_web.runs import selectors as runs

PER_PAGE = 50
PREVIEWED = 5
"""Scores and runs beside the list."""


@require_safe
@page()
def policy_list(request: PageRequest) -> HttpResponse:
    table = PolicyTable(selectors.policies())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    context = {"table": table, "tab": "policies", "previews": True, **import_views.context_of()}
    return show(request, "policies/list.html", context)


@require_safe
@page()
def policy_preview(request: PageRequest, name: str) -> HttpResponse:
    """What the list shows beside its rows."""
    policy = selectors.get_policy(name)
    scored = evals.evaluations().filter(policy=policy, state="finished")
    context = {
        "policy": policy,
        "facts": policy.facts,
        "scores": scored.order_by("-version", "-pk")[:PREVIEWED],
        "runs_from": runs.runs().filter(policy_in=policy)[:PREVIEWED],
    }
    return show(request, "policies/_policy_preview.html", context)


@require_safe
@page()
def policy_detail(request: PageRequest, name: str) -> HttpResponse:
    policy = selectors.get_policy(name)
    evaluations = evals.counted(evals.evaluations().filter(policy=policy)).order_by("-version", "-pk")[:50]
    if request.headers.get("HX-Request"):
        return show(request, "policies/_evaluations.html", {"policy": policy, "evaluations": evaluations})
    context = {
        "policy": policy,
        "lineage": selectors.lineage(policy),
        "children": selectors.policies().filter(parent=policy),
        "checkpoints": policy.checkpoints.order_by("-version", "kind")[:200],
        "evaluations": evaluations,
        "asking": form_of(policy) if may_use(request) else None,
        **({} if policy.is_endpoint else measuring_views.context_of(policy)),
        "measuring": measuring_views.asking_of(policy) if may_use(request) and not policy.is_endpoint else None,
        "runs_from": runs.runs().filter(policy_in=policy)[:50],
        "run": getattr(policy, "produced_by", None),
        "endpoint": (endpoint := getattr(policy, "endpoint", None)),
        "parameters": json.dumps(endpoint.parameters) if endpoint else "",
    }
    return show(request, "policies/detail.html", context)
