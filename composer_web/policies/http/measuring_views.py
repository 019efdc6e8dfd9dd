"""Form actions on a policy's page that measure it on a codebase, and cancel measurements."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe, require_POST
from pydantic import ValidationError

from composer_web.evals.http.starting_views import form_of
from composer_web.ui import form_parsing
from composer_web.core.errors import UserError
from composer_web.ui.pages import PageRequest, act, page, show
from composer_web.datasets import codebases
from composer_web.policies.measurement import measuring, measurement_jobs
from composer_web.policies import selectors
from composer_web.policies.models import MeasurementOrder, Policy
from composer_web.policies.measurement.measurement_schemas import Wanted
from trainer.model_selection.codebase import ITEMS, MAX_BYTES, WINDOW

KIB = 1 << 10


def context_of(policy: Policy) -> dict[str, Any]:
    """Context of the section on a policy's page."""
    return {"measured": measuring.measured(policy), "orders": measurement_jobs.of_page(policy)}


def asking_of(policy: Policy) -> dict[str, Any]:
    """Choices of its form."""
    return {
        "versions": form_of(policy)["versions"],
        "codebases": codebases.offered(),
        "window": WINDOW,
        "kib": MAX_BYTES // KIB,
        "items": ITEMS,
    }


@require_safe
@page()
def measured(request: PageRequest, name: str) -> HttpResponse:
    policy = selectors.get_policy(name)
    return show(request, "policies/_measured.html", {"policy": policy, **context_of(policy)})


@require_POST
@page("operator")
def measure(request: PageRequest, name: str) -> HttpResponse:
    policy = selectors.get_policy(name)
    return act(
        request,
        lambda: measurement_jobs.ask(
            policy=policy, version=form_parsing.optional_whole(request, "version"), wanted=_wanted(request), actor=request.user
        ),
        done="The measurement is on its way; its figures come here.",
        to="policies:detail",
        name=name,
    )


def _wanted(request: PageRequest) -> Wanted:
    """Raises UserError naming the field."""
    given = request.POST
    try:
        return Wanted(
            codebase=given.get("codebase", "").strip(),
            commits=form_parsing.optional_whole(request, "commits"),
            since=given.get("since", "").strip(),
            window=form_parsing.whole(request, "window", WINDOW),
            most_bytes=form_parsing.whole(request, "kib", MAX_BYTES // KIB) * KIB,
            items=form_parsing.whole(request, "items", ITEMS),
            questions=given.get("questions", "codebase"),  # type: ignore[arg-type]
        )
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        field = {"most_bytes": "kib"}.get(str(found["loc"][0]), str(found["loc"][0]))
        raise UserError(field, f"{field}: {found['msg']} (found {str(found['input'])[:40]})") from error


@require_POST
@page("operator")
def measurement_stop(request: PageRequest, pk: int) -> HttpResponse:
    order = get_object_or_404(MeasurementOrder.objects.select_related("policy"), pk=pk)
    return act(
        request,
        lambda: measurement_jobs.stop(order=order, actor=request.user),
        done="It is stopped.",
        to="policies:detail",
        name=order.policy.name,
    )
