"""Pages of runs: table, form, live run page and its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.views.decorators.http import require_GET, require_POST
from django_tables2 import RequestConfig

from composer_web.evals import selectors as evals
from composer_web.ops.errors import UserError
from composer_web.ops.pages import Figure, PageRequest, act, page, show
from composer_web.ops.templatetags import ui
from composer_web.policies import selectors as policies
from composer_web.rollouts import selectors as rollouts
from composer_web.runs import metrics, panels, selectors, services, sparks
from composer_web.runs.filters import RunFilter
from composer_web.runs.forms import SCHEMA, RunForm
from composer_web.runs.models import Run
from composer_web.runs.plan import what_will_run
from composer_web.runs.presets import PRESETS, preset
from composer_web.runs.tables import RunTable
from composer_web.tasks import selectors as tasks

PER_PAGE = 25
MAX_KEYS = 12
MAX_BUCKETS = 1000


@require_GET
@page()
def run_list(request: PageRequest) -> HttpResponse:
    found = RunFilter(request.GET, queryset=selectors.runs())
    table = RunTable(found.qs)
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    table.sparks = sparks.recent([row.record.pk for row in table.paginated_rows], ["reward/mean", "loss/train"])
    template = "partials/rows.html" if request.headers.get("HX-Request") else "runs/list.html"
    return show(request, template, {"table": table, "filter": found, "live": "runs"})


# --- the form -----------------------------------------------------------------------------------------------


def _options() -> dict[str, list[str]]:
    suites = [suite.name for suite in tasks.suites()]
    return {"policy": [p.name for p in policies.policies()], "stage.rl.suite": suites, "stage.rl.eval_suite": suites}


def _checked(form: RunForm) -> list[str]:
    """Warnings of the control plane; what it refuses becomes an error at the field."""
    if form.config is None:
        return []
    try:
        return services.check_config(form.config)
    except UserError as error:
        for field, message in (error.fields or {"": error.message}).items():
            form.refuse(_form_name(field, form.stage), message)
        return []


def _form_name(field: str, stage: str) -> str:
    """The services' dotted path (`stage.suite`) as the form names it (`stage.rl.suite`)."""
    path = f"stage.{stage}.{field.removeprefix('stage.')}" if field.startswith("stage.") else field
    return path if path in SCHEMA.by_name else field


def _posted(data: QueryDict) -> dict[str, str]:
    return {name: value for name, value in data.items() if isinstance(value, str)}


def _plan(form: RunForm, warnings: list[str]) -> dict[str, Any]:
    ready = form.config is not None and not form.errors
    return {
        "plan": what_will_run(form.config) if ready and form.config else None,
        "warnings": warnings,
        "count": len(form.errors),
    }


@page("operator")
def run_new(request: PageRequest) -> HttpResponse:
    source = request.POST.get("parent") or request.GET.get("from") or ""
    parent = selectors.get_run(int(source)) if source.isdigit() else None
    chosen = preset(request.GET.get("preset", "")) or (PRESETS[0] if parent is None else None)
    initial = parent.configuration if parent else chosen.config if chosen else None
    posted = _posted(request.POST) if request.method == "POST" else None
    form = RunForm(posted, initial=initial, options=_options())
    warnings: list[str] = []
    if posted is not None:
        warnings = _checked(form)
        if form.config is not None and not form.errors:
            run = services.create_run(config=form.config, actor=request.user, parent=parent)
            if posted.get("action") != "draft":
                services.start_run(run=run, actor=request.user)
            messages.success(request, f"“{run.name}” is {'a draft' if posted.get('action') == 'draft' else 'queued'}.")
            return redirect("runs:detail", pk=run.pk)
    else:
        form = RunForm(form.values, options=_options())  # a preset may ask for more than there is: say so at once
        warnings = _checked(form)
    context = {
        "form": form,
        "parent": parent,
        "presets": PRESETS,
        "chosen": chosen,
        "refused": posted is not None and form.errors,
        **_plan(form, warnings),
    }
    return show(request, "runs/new.html", context, status=422 if context["refused"] else 200)


@require_POST
@page("operator")
def run_check(request: PageRequest) -> HttpResponse:
    """Live validation: the errors of each field and the summary of what would run."""
    form = RunForm(_posted(request.POST))
    warnings = _checked(form)
    return JsonResponse({"errors": form.errors, "plan": render_to_string("runs/_plan.html", _plan(form, warnings))})


# --- one run ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Action:
    name: str
    label: str
    states: tuple[str, ...]
    service: Callable[..., Run]
    done: str
    tone: str = ""
    confirm: str = ""


ACTIONS = (
    Action("start", "Start", ("draft",), services.start_run, "Queued.", "primary"),
    Action("pause", "Pause", ("queued", "running"), services.pause_run, "It pauses after the current step."),
    Action(
        "resume",
        "Resume",
        ("paused", "pausing", "failed"),
        services.resume_run,
        "It goes on from the last checkpoint.",
        "primary",
    ),
    Action(
        "stop",
        "Stop",
        ("draft", "queued", "running", "pausing", "paused"),
        services.cancel_run,
        "Stopped.",
        "danger",
        "Stop this run for good? What it accepted and saved stays; it cannot be resumed.",
    ),
)


@require_GET
@page()
def run_detail(request: PageRequest, pk: int) -> HttpResponse:
    run = selectors.get_run(pk)
    context: dict[str, Any] = {
        "run": run,
        "panels": panels.headline(run.kind),
        "further": panels.further(run.kind, metrics.names(run)),
    }
    for part in PARTS.values():
        context |= part(run)
    context["children"] = selectors.runs().filter(parent=run)
    return show(request, "runs/detail.html", context)


@require_GET
@page()
def run_part(request: PageRequest, pk: int, part: str) -> HttpResponse:
    """One live part of the run page."""
    if part not in PARTS:
        raise Http404(f"a run page has no part {part}")
    run = selectors.get_run(pk)
    return show(request, f"runs/_{part}.html", {"run": run, **PARTS[part](run)})


@require_POST
@page("operator")
def run_action(request: PageRequest, pk: int, action: str) -> HttpResponse:
    chosen = next((a for a in ACTIONS if a.name == action), None)
    if chosen is None:
        raise Http404(f"a run has no action {action}")
    run = selectors.get_run(pk)
    return act(request, lambda: chosen.service(run=run, actor=request.user), done=chosen.done, to="runs:detail", pk=pk)


@require_GET
@page()
def run_metrics(request: PageRequest, pk: int) -> HttpResponse:
    """Buckets of some metrics for js/chart.js: {series: {key: [{step, min, max, last}]}}."""
    run = selectors.get_run(pk)
    keys = [key for key in request.GET.get("keys", "").split(",") if key][:MAX_KEYS]
    try:
        limits = {name: int(request.GET[name]) if name in request.GET else None for name in ("from", "to")}
        count = min(MAX_BUCKETS, max(1, int(request.GET.get("buckets", 240))))
    except ValueError:
        return JsonResponse(
            {"error": {"code": "invalid", "message": "from, to and buckets are whole numbers"}}, status=422
        )
    series = {
        key: [
            {"step": b.last, "min": b.low, "max": b.high, "last": b.value}
            for b in metrics.buckets(run, key, count=count, first=limits["from"], last=limits["to"])
        ]
        for key in keys
    }
    return JsonResponse({"series": series})


def _head(run: Run) -> dict[str, Any]:
    return {"actions": [action for action in ACTIONS if run.state in action.states]}


def _status(run: Run) -> dict[str, Any]:
    latest: Mapping[str, float] = run.latest

    def share(key: str) -> str:
        return ui.percent(latest.get(key))

    if run.kind != "rl":
        figures = [
            Figure("Training loss", ui.num(latest.get("loss/train")), "nat/token"),
            Figure("Held-out loss", ui.num(latest.get("loss/heldout")), "nat/token"),
            Figure("Learning rate", ui.num(latest.get("optim/learning_rate"))),
            Figure("Speed", ui.compact(latest.get("speed/train_tokens")), "tok/s"),
        ]
    else:
        counts = rollouts.verdict_counts(run=run)
        figures = [
            Figure(
                "Reward", ui.num(latest.get("reward/mean")), note=f"best of K {ui.num(latest.get('reward/best_of_k'))}"
            ),
            Figure("Held-out pass@1", share("eval/pass1"), note=f"best of K {share('eval/best_of_k')}"),
            Figure("Entropy", ui.num(latest.get("policy/entropy")), "nat/token"),
            Figure(
                "Staleness",
                ui.num(latest.get("staleness/mean")),
                "versions",
                f"max {ui.num(latest.get('staleness/max'))}",
            ),
            Figure("Idle", share("idle/trainer"), note=f"trainer; inference {share('idle/rollouts')}"),
            Figure("Speed", ui.compact(latest.get("speed/generate_tokens")), "tok/s", "generated"),
            Figure(
                "Rollouts",
                ui.num(counts["dispatched"]),
                note=f"{ui.num(counts['passed'])} passed, {ui.num(counts['failed'])} failed",
            ),
            Figure("Infra errors", ui.num(counts["infra_error"]), note="never trained on"),
        ]
    return {"figures": figures, "eta": selectors.eta_seconds(run)}


def _events(run: Run) -> dict[str, Any]:
    return {"events": selectors.events(run)[:40]}


def _groups(run: Run) -> dict[str, Any]:
    return {"groups": rollouts.groups().filter(run=run).prefetch_related("rollouts").order_by("-pk")[:12]}


def _evals(run: Run) -> dict[str, Any]:
    return {"evaluations": evals.of_run(run)}


PARTS: dict[str, Callable[[Run], dict[str, Any]]] = {
    "head": _head,
    "status": _status,
    "events": _events,
    "groups": _groups,
    "evals": _evals,
}
