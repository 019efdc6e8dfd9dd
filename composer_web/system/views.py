"""Home and system pages."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from composer_web.evals import selectors as evals
from composer_web.policies import selectors as policies
from composer_web.rollouts import selectors as rollouts
from composer_web.runs import selectors as runs
from composer_web.runs.models import RUN_LIVE
from composer_web.system import health, overview
from composer_web.system.reconcile import Busy
from composer_web.system.reconcile import reconcile as look
from composer_web.tasks import selectors as tasks
from composer_web.ui.pages import PageRequest, page, show
from trainer.inference.contract import ServerHealth


@require_safe
@page()
def home(request: PageRequest) -> HttpResponse:
    """What runs now, what happened last, and what to do next."""
    live = list(runs.runs().filter(state__in=RUN_LIVE)[:6])
    recent = list(runs.runs().exclude(state__in=RUN_LIVE).filter(archived_at=None)[:6])
    suites, known = tasks.any_suite(), policies.policies().exists()
    workers = overview.workers()
    alive = {worker.kind for worker in workers if worker.state == "alive"}
    context: dict[str, Any] = {
        "live_runs": [(run, run.curve_values, runs.eta_seconds(run)) for run in live],
        "recent_runs": [(run, run.curve_values, None) for run in recent],
        "rollouts": rollouts.rollout_rows().exclude(verdict="")[:10],
        "evaluations": evals.evaluations()[:6],
        "steps": _next_steps(has_policy=known, has_suite=suites, has_run=bool(live or recent) or runs.runs().exists()),
        "alive": sorted(alive),
        "silent": [worker for worker in workers if worker.state == "dead"],
    }
    return show(request, "ops/_home.html" if request.headers.get("HX-Request") else "ops/home.html", context)


def _next_steps(*, has_policy: bool, has_suite: bool, has_run: bool) -> list[dict[str, Any]]:
    """The way from an empty installation to a trained policy; empty once it has been walked."""
    steps = [
        {
            "done": has_policy,
            "title": "A policy to start from",
            "how": "import a Hugging Face folder",
            "command": "manage.py importpolicy",
        },
        {
            "done": has_suite,
            "title": "Suites of tasks",
            "how": "add your own repository under Tasks, Environments, or build the procedural ones",
            "command": "manage.py build_suites",
        },
        {
            "done": has_run,
            "title": "A run",
            "how": "configure one in the browser, or let the demo start it",
            "command": "make demo",
        },
    ]
    return [] if all(step["done"] for step in steps) else steps


@require_safe
@page()
def system(request: PageRequest) -> HttpResponse:
    """Workers, leases, queues, inference, disk; each red light says what to do."""
    checks = {check.name: check for check in health.checks()}
    inference = checks["inference"]
    context: dict[str, Any] = {
        "checks": checks.values(),
        "workers": overview.workers(),
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
