"""The run form: what it starts from, live validation, and the run that it makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.views.decorators.http import require_POST

from composer_web.ops.errors import UserError
from composer_web.ops.pages import PageRequest, page, show
from composer_web.policies import selectors as policies
from composer_web.runs import selectors, services
from composer_web.runs.estimate import estimate
from composer_web.runs.forms import SCHEMA, RunForm
from composer_web.runs.models import Run
from composer_web.runs.plan import what_will_run
from composer_web.runs.presets import PRESETS, Preset, preset
from composer_web.tasks import selectors as tasks
from trainer.config import RunConfig


@dataclass(frozen=True)
class Origin:
    """What a form was filled from: a preset, or the configuration of a run; what was changed is told against it."""

    config: RunConfig
    name: str
    preset: Preset | None = None
    run: Run | None = None


def origin(data: QueryDict) -> Origin:
    """By `parent` or `from` (a run) or `preset`; the first preset when neither is named. Raises NotFound."""
    source = data.get("parent") or data.get("from") or ""
    if source.isdigit():
        run = selectors.get_run(int(source))
        return Origin(run.configuration, f"run {run.name}", run=run)
    chosen = preset(data.get("preset", "")) or PRESETS[0]
    return Origin(chosen.config, f"preset {chosen.title}", preset=chosen)


def _options() -> dict[str, list[str]]:
    suites = [suite.name for suite in tasks.suites()]
    references = policies.references()
    names = list(dict.fromkeys(reference.partition("@")[0] for reference in references))
    return {
        "policy": references,
        "stage.rl.suite": suites,
        "stage.rl.eval_suite": suites,
        "stage.rl.sampler.policy": ["", *names],
    }


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


def _plan(form: RunForm, warnings: list[str], source: Origin) -> dict[str, Any]:
    config = form.config if not form.errors else None
    return {
        "plan": what_will_run(config) if config else None,
        "estimate": estimate(config) if config else None,
        "warnings": warnings,
        "wrong": form.wrong,
        "changes": form.changes,
        "origin": source,
    }


@page("operator")
def run_new(request: PageRequest) -> HttpResponse:
    """`?preset=`, `?from=` a run, and `&policy=name@version` to start from a checkpoint."""
    posted = _posted(request.POST) if request.method == "POST" else None
    source = origin(request.POST if posted is not None else request.GET)
    start = source.config
    if posted is None and (policy := request.GET.get("policy")):
        start = start.model_copy(update={"policy": policy})
    form = RunForm(posted, initial=start, base=source.config, options=_options())
    if posted is not None:
        warnings = _checked(form)
        if form.config is not None and not form.errors:
            run = services.create_run(config=form.config, actor=request.user, parent=source.run)
            if posted.get("action") != "draft":
                services.start_run(run=run, actor=request.user)
            messages.success(request, f"“{run.name}” is {'a draft' if posted.get('action') == 'draft' else 'queued'}.")
            return redirect("runs:detail", pk=run.pk)
    else:
        # A preset may ask for more than there is: say so at once.
        form = RunForm(form.values, base=source.config, options=form.options)
        warnings = _checked(form)
    refused = bool(posted is not None and form.errors)
    context = {"form": form, "presets": PRESETS, "refused": refused, **_plan(form, warnings, source)}
    return show(request, "runs/new.html", context, status=422 if refused else 200)


@require_POST
@page("operator")
def run_check(request: PageRequest) -> HttpResponse:
    """Live validation: the errors of each field, what differs from the origin, and the summary of what would run."""
    source = origin(request.POST)
    form = RunForm(_posted(request.POST), base=source.config)
    warnings = _checked(form)
    return JsonResponse(
        {
            "errors": form.errors,
            "changes": {change.name: change.before for change in form.changes},
            "plan": render_to_string("runs/_plan.html", _plan(form, warnings, source)),
        }
    )
