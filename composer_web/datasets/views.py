"""Views of datasets: list, creation, and details."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe
from django_tables2 import RequestConfig
from pydantic import ValidationError

from composer_web.core.errors import UserError
from composer_web.datasets import guards, selectors, services
from composer_web.datasets.schemas import Wanted
from composer_web.datasets.tables import DatasetTable
from composer_web.rollouts.filters import RolloutFilter
from composer_web.tasks import selectors as tasks
from composer_web.ui.pages import PageRequest, act, page, show
from trainer.sft.conversations.store import Provenance

PER_PAGE = 50
FILTERS = ("run", "suite", "reward_min", "verdict", "label")
"""Filters of the rollout list that the form offers as fields of its own."""


@require_safe
@page()
def dataset_list(request: PageRequest) -> HttpResponse:
    table = DatasetTable(selectors.datasets())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    if request.headers.get("HX-Request"):
        return show(request, "partials/rows.html", {"table": table})
    return show(request, "datasets/list.html", {"table": table, "live": "datasets", "tab": "datasets"})


@page("operator")
def dataset_new(request: PageRequest) -> HttpResponse:
    """The form; what is wrong stands at its field, and what was typed stays."""
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            made = services.ask(
                name=request.POST.get("name", ""),
                wanted=_wanted(request),
                files={str(file.name): file for file in request.FILES.getlist("files")},
                actor=request.user,
            )
        except UserError as error:
            errors = error.fields or {error.field: error.message}
        else:
            messages.success(request, f"“{made.name}” is being prepared; what it holds appears here.")
            return redirect("datasets:detail", pk=made.pk)
    held = guards.measured_suites()
    context = {
        "tab": "datasets",
        "errors": errors,
        "typed": request.POST if errors else request.GET,
        "verdicts": RolloutFilter.base_filters["verdict"].extra["choices"],
        "suites": [suite.name for suite in tasks.suites()],
        "guards": held,
        "guarded": request.POST.getlist("guards") if errors else held,
        "incoming": selectors.waiting_files(),
    }
    return show(request, "datasets/new.html", context, status=422 if errors else 200)


def _wanted(request: PageRequest) -> Wanted:
    """Raises UserError."""
    given = request.POST
    filters = {name: given[name].strip() for name in FILTERS if given.get(name, "").strip()}
    try:
        return Wanted(folder=given.get("folder", ""), rollouts=urlencode(filters), suites=given.getlist("guards"))
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        field = str(found["loc"][0])
        raise UserError(field, f"{field}: {found['msg']}") from error


@require_safe
@page()
def dataset(request: PageRequest, pk: int) -> HttpResponse:
    found = selectors.get_dataset(pk)
    made = Provenance.model_validate(found.provenance) if found.provenance else None
    context = {
        "tab": "datasets",
        "dataset": found,
        "made": made,
        "left_out": [(reason, count, made.examples.get(reason, [])) for reason, count in made.dropped.items()]
        if made
        else [],
        "unguarded": guards.unguarded(made.guards) if made else [],
        "live": "datasets",
    }
    template = "datasets/_facts.html" if request.headers.get("HX-Request") else "datasets/detail.html"
    return show(request, template, context)


@require_POST
@page("operator")
def dataset_remove(request: PageRequest, pk: int) -> HttpResponse:
    found = selectors.get_dataset(pk)
    return act(
        request,
        lambda: services.remove(dataset=found, actor=request.user),
        done=f"“{found.name}” is removed.",
        to="datasets:list",
    )
