"""Home and system pages."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.views.decorators.http import require_POST, require_safe

from composer_web.core.queue import overview
from composer_web.system import health, processes
from composer_web.system import home as content
from composer_web.system.reconcile import Busy
from composer_web.system.reconcile import reconcile as look
from composer_web.system.sample import ask_for_sample
from composer_web.ui.pages import PageRequest, act, page, show
from trainer.inference.contract import ServerHealth


@require_safe
@page()
def home(request: PageRequest) -> HttpResponse:
    """Mission control: active runs, what needs attention, new failures, benchmark scores."""
    template = "ops/_home.html" if request.headers.get("HX-Request") else "ops/home.html"
    return show(request, template, content.home())


@require_safe
@page()
def failures(request: PageRequest) -> HttpResponse:
    """The newest failures, fetched again as rollouts end."""
    return show(request, "ops/_failure_rows.html", {"failures": content.failures()})


@require_safe
@page()
def hardware(request: PageRequest) -> HttpResponse:
    """Living processes and what their hosts use, fetched again as samples come."""
    return show(request, "ops/_hardware.html", {"hardware": content.hardware()})


@require_POST
@page("operator")
def sample(request: PageRequest) -> HttpResponse:
    """Have sample data created."""
    done = "Creating the sample policy and its suites. This page shows them when they are there."
    return act(request, lambda: ask_for_sample(actor=request.user), done=done, to="ops:home")


@require_safe
@page()
def system(request: PageRequest) -> HttpResponse:
    """Workers, leases, queues, inference, disk; each red light says what to do."""
    checks = {check.name: check for check in health.checks()}
    inference = checks["inference"]
    context: dict[str, Any] = {
        "checks": checks.values(),
        **processes.board(),
        "leases": overview.leases(),
        "queues": checks["broker"].detail.get("queues", {}),
        "inference": ServerHealth.model_validate(inference.detail) if inference.detail else None,
        "inference_check": inference,
    }
    return show(request, "ops/_system.html" if request.headers.get("HX-Request") else "ops/system.html", context)


@require_safe
@page()
def reconcile(request: PageRequest) -> HttpResponse:
    """What the reconciler would do now. It changes nothing."""
    try:
        context: dict[str, Any] = {"findings": look(dry_run=True)}
    except Busy as busy:
        context = {"problem": str(busy)}
    return show(request, "ops/_reconcile.html", context)
