"""Views of the run form: initial values (preset, template, run, text), live validation, and creation of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from composer_web.core.errors import NotFound, UserError
from composer_web.core.numbers import ROW_ID, whole
from composer_web.policies import selectors as policies
from composer_web.runs import chain, selectors, services
from composer_web.runs.defaults import automatic_again
from composer_web.runs.launch import sweeps
from composer_web.runs.launch import templates as kept
from composer_web.runs.launch.config_io import MAX_CHARACTERS, MIME, Format, load, render
from composer_web.runs.launch.estimate import total
from composer_web.runs.launch.forms import SCHEMA, RunForm
from composer_web.runs.launch.presets import PRESETS, Preset, first_preset, preset
from composer_web.runs.launch.schema_form import headings
from composer_web.runs.launch.summary import summarise
from composer_web.runs.models import Run, RunTemplate, SweepMode
from composer_web.tasks import selectors as tasks
from composer_web.ui.pages import PageRequest, page, show
from composer_web.ui.texts import snippets
from trainer.config import MidtrainConfig, RunConfig, SFTConfig

SNIPPETS = ("curl", "opencomposer")
"""Buttons of the form that answer with a command."""


@dataclass(frozen=True)
class FormSource:
    """Source of a form's initial values: a preset, a template, or the configuration of a run. Changes are computed
    against it."""

    config: RunConfig
    name: str
    preset: Preset | None = None
    run: Run | None = None
    template: RunTemplate | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Hidden form field that identifies this origin."""
        if self.run:
            return "parent", str(self.run.pk)
        if self.template:
            return "template", str(self.template.pk)
        return "preset", self.preset.key if self.preset else ""


def origin(data: QueryDict) -> FormSource:
    """By `parent` or `from` (a run), `template` or `preset`; without one, the toy's first preset if only toys are
    registered, else the first for a real model.

    Raises NotFound, and UserError for a template of an older version whose settings are no longer understood.
    """
    source = data.get("parent") or data.get("from") or ""
    if (pk := whole(source, digits=ROW_ID)) is not None:
        run = selectors.get_run(pk)
        return FormSource(automatic_again(run.configuration, run.derived), f"run {run.name}", run=run)
    if (pk := whole(data.get("template", ""), digits=ROW_ID)) is not None:
        template = kept.get_template(pk)
        return FormSource(services.parse_config(template.config), f"template {template.name}", template=template)
    chosen = preset(data.get("preset", "")) or first_preset(toy=policies.only_toys())
    return FormSource(chosen.config, f"preset {chosen.title}", preset=chosen)


def _options() -> dict[str, list[str]]:
    suites = [suite.name for suite in tasks.suites()]
    references = policies.references()
    names = list(dict.fromkeys(reference.partition("@")[0] for reference in references))
    from composer_web.datasets import codebases, corpora  # datasets are built on runs
    from composer_web.datasets.selectors import names as datasets

    known = corpora.known()
    prepared, measured = ["", *known.prepared], ["", *codebases.of_runs(known)]
    return {
        "policy": references,
        "stage.sft.dataset": ["", *datasets()],
        "stage.sft.replay_corpus": prepared,
        "stage.sft.codebase": measured,
        "stage.midtrain.corpus": prepared,
        "stage.midtrain.codebase": measured,
        "stage.rl.suite": suites,
        "stage.rl.eval_suite": suites,
        "stage.rl.curriculum.policy": ["", *names],
    }


def _after(data: QueryDict) -> Run | None:
    """The run that this one starts after (`after`), if one is named. Raises NotFound."""
    pk = whole(data.get("after", ""), digits=ROW_ID)
    return None if pk is None else selectors.get_run(pk)


def _checked(form: RunForm, after: Run | None) -> list[str]:
    """Warnings of the control plane. Its errors are added to the fields."""
    if form.config is None:
        return []
    try:
        return services.check_config(form.config, weights=chain.known_weights(after) if after else None)
    except UserError as error:
        for field, message in (error.fields or {"": error.message}).items():
            form.refuse(_form_name(field, form.stage), message)
        return []


def _form_name(field: str, stage: str) -> str:
    """Map a dotted path of the services (`stage.suite`) to the form's field name (`stage.rl.suite`)."""
    path = f"stage.{stage}.{field.removeprefix('stage.')}" if field.startswith("stage.") else field
    return path if path in SCHEMA.by_name else field


def _posted(data: QueryDict) -> dict[str, str]:
    return {name: value for name, value in data.items() if isinstance(value, str)}


def _plan(form: RunForm, warnings: list[str], source: FormSource) -> dict[str, Any]:
    config = form.config if not form.errors else None
    return {
        "summary": summarise(config) if config else None,
        "warnings": warnings,
        "wrong": form.wrong,
        "changes": form.changes,
        "origin": source,
    }


def _page(
    request: PageRequest, form: RunForm, warnings: list[str], source: FormSource, *, refused: str = "", **more: Any
) -> HttpResponse:
    """Render the form. `refused` is the action that failed; the reasons are at the fields or in `problems`."""
    posted = request.POST if request.method == "POST" else None
    after = _after(posted or request.GET)
    context = {
        "form": form,
        "presets": PRESETS,
        "chosen": urlencode(
            {name: request.GET[name] for name in ("policy", "dataset", "corpus") if request.GET.get(name)}
        ),
        "templates": kept.templates(),
        "after": after,
        "unfinished": selectors.unfinished(besides=after.pk if after else None),
        "refused": refused,
        "sweep_modes": SweepMode.choices,
        "sweep_most": sweeps.MAX_RUNS,
        "typed": posted,
        **_plan(form, warnings, source),
        **more,
    }
    return show(request, "runs/new.html", context, status=422 if refused else 200)


@page("operator")
def run_new(request: PageRequest) -> HttpResponse:
    """`?preset=`, `?template=`, `?from=` a run, and `&policy=name@version` to start from a checkpoint, `&after=` to start from
    what another run trains, `&dataset=` or `&corpus=` to learn from one."""
    if request.method == "POST":
        return _posted_form(request)
    try:
        source = origin(request.GET)
    except NotFound:
        raise
    except UserError as error:
        messages.error(
            request, f"The template cannot be used: {error}. Save its settings as a new template and delete it."
        )
        return redirect("runs:templates")
    form = _unchanged(
        source,
        policy=request.GET.get("policy", ""),
        dataset=request.GET.get("dataset", ""),
        corpus=request.GET.get("corpus", ""),
    )
    return _page(request, form, _checked(form, _after(request.GET)), source)


def _unchanged(source: FormSource, *, policy: str = "", dataset: str = "", corpus: str = "") -> RunForm:
    """The form before anybody changes a field, with the errors that it has already: a preset may ask for more than there
    is."""
    start, options = source.config, _options()
    if policy:
        start = start.model_copy(update={"policy": policy})
        # The only version of a policy is offered by the policy's name; one that does not exist is refused beside the field.
        options["policy"] = list(dict.fromkeys([policy, *options["policy"]]))
    if dataset and isinstance(start.stage, SFTConfig):
        start = start.model_copy(update={"stage": start.stage.model_copy(update={"dataset": dataset})})
    if corpus and isinstance(start.stage, MidtrainConfig):
        start = start.model_copy(update={"stage": start.stage.model_copy(update={"corpus": corpus})})
    if start.policy not in options["policy"] and source.preset:  # a preset names the policy of the demo
        start = start.model_copy(update={"policy": next(iter(options["policy"]), "")})
    form = RunForm(initial=start, base=source.config, options=options)
    return RunForm(form.values, base=source.config, options=options)


def _posted_form(request: PageRequest) -> HttpResponse:
    """Start a run, save a draft or a template, open the sweep preview, or download the text, depending on the
    button. `preset` starts the source as it is, without its form."""
    source, action, after = origin(request.POST), request.POST.get("action", "start"), _after(request.POST)
    if action == "preset":
        form, action = _unchanged(source), "start"
    else:
        form = RunForm(_posted(request.POST), initial=source.config, base=source.config, options=_options())
    if action in MIME and form.config is not None:
        return text_file(form.config, action)
    if action in SNIPPETS and form.config is not None:
        found = snippets.run(
            snippets.address(request),
            form.config.model_dump_json(),
            render(form.config, "yaml"),
            after=after.pk if after else None,
        )
        return HttpResponse(getattr(found, action), content_type="text/plain; charset=utf-8")
    warnings = _checked(form, after)
    if form.config is None or form.errors:
        return _page(request, form, warnings, source, refused="Run not started. Fix the highlighted fields.")
    try:
        return _do(request, action, form.config, source, after)
    except UserError as error:
        return _page(
            request, form, warnings, source, refused="Nothing was created.", problems=list(error.fields.values())
        )


def _do(request: PageRequest, action: str, config: RunConfig, source: FormSource, after: Run | None) -> HttpResponse:
    """Raises UserError."""
    match action:
        case "sweep" if after is not None:
            raise UserError("after", "The runs of a sweep start at once: choose “at once” under “Start after”.")
        case "sweep":
            fields = sweeps.parse_fields(request.POST.get("sweep", ""))
            return preview_page(request, config, fields, request.POST.get("sweep_mode", "grid"), source)
        case "template":
            made = kept.save_template(
                name=request.POST.get("template_name", ""),
                description=request.POST.get("template_description", ""),
                config=config,
                actor=request.user,
            )
            messages.success(request, f"Template “{made.name}” saved.")
            return redirect(f"{reverse('runs:new')}?template={made.pk}")
        case "update" if source.template is not None:
            kept.change_template(template=source.template, config=config, actor=request.user)
            messages.success(request, f"Template “{source.template.name}” updated.")
            return redirect(f"{reverse('runs:new')}?template={source.template.pk}")
    run = services.create_run(config=config, actor=request.user, parent=source.run, start_after=after)
    if action != "draft":
        services.start_run(run=run, actor=request.user)
    messages.success(request, f"“{run.name}” is {'a draft' if action == 'draft' else 'queued'}.")
    return redirect("runs:detail", pk=run.pk)


def preview_page(
    request: PageRequest, config: RunConfig, fields: dict[str, list[sweeps.Value]], mode: str, source: FormSource
) -> HttpResponse:
    """Preview every run of a sweep before creating any. Raises UserError."""
    found = sweeps.preview(config, fields, mode)
    context = {
        "preview": found,
        "headings": headings(found.fields),
        "total": total(point.config for point in found.points if point.config is not None) if found.ok else None,
        "name": config.name,
        "mode": mode,
        "mode_label": SweepMode(mode).label,
        "text": render(config, "yaml"),
        "fields": request.POST.get("sweep", ""),
        "origin": source,
    }
    return show(request, "runs/sweep_preview.html", context, status=200 if found.ok else 422)


@require_POST
@page("operator")
def run_text(request: PageRequest) -> HttpResponse:
    """Fill the form from pasted or uploaded YAML, TOML or JSON, or from what a sweep's preview holds (`edit`)."""
    source = origin(request.POST)
    upload = request.FILES.get("file")
    text = request.POST.get("text", "")
    try:
        if upload is not None:
            text = _decoded(upload.read(2 * MAX_CHARACTERS))
        config = load(text)
    except UserError as error:
        given = _posted(request.POST) if "stage" in request.POST else None
        form = RunForm(given, initial=source.config, base=source.config, options=_options())
        problems = list(error.fields.values()) or [error.message]
        return _page(request, form, [], source, refused="The text did not fill the form.", problems=problems, text=text)
    form = RunForm(initial=config, base=source.config, options=_options())
    form = RunForm(form.values, base=source.config, options=form.options)
    return _page(request, form, _checked(form, _after(request.POST)), source, filled="edit" not in request.POST)


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError("text", f"the file is not UTF-8 text (byte {error.start}); save it as UTF-8") from error


@require_safe
@page()
def run_file(request: PageRequest, pk: int, form: Format) -> HttpResponse:
    """Download the configuration of a run."""
    return text_file(selectors.get_run(pk).configuration, form)


def text_file(config: RunConfig, form: Format) -> HttpResponse:
    name = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in config.name.lower()).strip(
        "-"
    )
    answer = HttpResponse(render(config, form), content_type=f"{MIME[form]}; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name or "run"}.{form}"'
    return answer


@require_POST
@page("operator")
def run_check(request: PageRequest) -> HttpResponse:
    """Live validation: field errors, changes against the origin, and a summary of the run."""
    source = origin(request.POST)
    form = RunForm(_posted(request.POST), base=source.config)
    warnings = _checked(form, _after(request.POST))
    return JsonResponse(
        {
            "errors": form.errors,
            "changes": {change.name: change.before for change in form.changes},
            "plan": render_to_string("runs/_plan.html", _plan(form, warnings, source)),
            "bar": render_to_string("runs/_formbar.html", _plan(form, warnings, source)),
        }
    )
