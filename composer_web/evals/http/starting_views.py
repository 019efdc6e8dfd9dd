"""Form actions that start and cancel evaluations of a policy version."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from composer_web.core.errors import UserError
from composer_web.evals import selectors, services
from composer_web.policies.models import Policy
from composer_web.policies.selectors import get_policy, on_disk
from composer_web.tasks.models import Suite
from composer_web.tasks.selectors import get_suite
from composer_web.ui import form_parsing
from composer_web.ui.pages import PageRequest, act, page, refuse

TASKS, SAMPLES, TEMPERATURE, SEED = 48, 8, 0.8, 0
DEFAULTS = {"tasks": TASKS, "samples": SAMPLES, "temperature": TEMPERATURE, "seed": SEED}
"""Initial values of the form, equal to the API's defaults."""


def form_of(policy: Policy) -> dict[str, Any]:
    """Choices of the form: versions on disk, newest first, and suites."""
    versions = [] if policy.is_endpoint else on_disk(policy).values_list("version", flat=True)
    return {
        "versions": list(dict.fromkeys(versions)),
        "suites": list(Suite.objects.filter(task_count__gt=0).order_by("name").values_list("name", flat=True)),
        **DEFAULTS,
    }


@require_POST
@page("operator")
def evaluation_start(request: PageRequest, name: str) -> HttpResponse:
    """Redirects to the evaluation. Errors are shown on the policy's page."""
    policy = get_policy(name)
    try:
        made = services.evaluate(
            reference=policy.name if policy.is_endpoint else f"{policy.name}@{request.POST.get('version', '').strip()}",
            suite=get_suite(request.POST.get("suite", "").strip()),
            tasks=form_parsing.whole(request, "tasks", TASKS),
            samples=form_parsing.whole(request, "samples", SAMPLES),
            temperature=form_parsing.number(request, "temperature", TEMPERATURE),
            turns=form_parsing.optional_whole(request, "turns"),
            context_tokens=form_parsing.optional_whole(request, "context_tokens"),
            seed=form_parsing.whole(request, "seed", SEED),
            actor=request.user,
        )
    except UserError as error:
        return refuse(request, error, to="policies:detail", name=name)
    messages.success(request, "The evaluation is on its way.")
    return redirect("evals:detail", pk=made.pk)


@require_POST
@page("operator")
def evaluation_cancel(request: PageRequest, pk: int) -> HttpResponse:
    evaluation = selectors.get_evaluation(pk)
    return act(
        request,
        lambda: services.cancel(evaluation=evaluation, actor=request.user),
        done=f"Evaluation {pk} is cancelled.",
        to="evals:detail",
        pk=pk,
    )
