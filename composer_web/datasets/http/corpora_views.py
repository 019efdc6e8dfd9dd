"""Views of corpora: list, creation, and details."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe
from django_tables2 import RequestConfig
from pydantic import ValidationError

from composer_web.core.errors import UserError
from composer_web.datasets import codebases, corpora, corpus_services, guards, selectors
from composer_web.datasets.http.tables import CorpusTable
from composer_web.datasets.schemas import CorpusWanted
from composer_web.ui.pages import PageRequest, act, page, show
from trainer.midtrain.corpus.store import Provenance

PER_PAGE = 50


@require_safe
@page()
def corpus_list(request: PageRequest) -> HttpResponse:
    table = CorpusTable(corpora.listed())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    if request.headers.get("HX-Request"):
        return show(request, "partials/rows.html", {"table": table})
    return show(request, "datasets/corpora.html", {"table": table, "live": "datasets", "tab": "corpora"})


@page("operator")
def corpus_new(request: PageRequest) -> HttpResponse:
    """The form; what is wrong stands at its field, and what was typed stays."""
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            made = corpus_services.ask(
                name=request.POST.get("name", ""),
                wanted=_wanted(request),
                files={str(file.name): file for file in request.FILES.getlist("files")},
                actor=request.user,
            )
        except UserError as error:
            errors = error.fields or {error.field: error.message}
        else:
            messages.success(request, f"“{made.name}” is being prepared; what it holds appears here.")
            return redirect("datasets:corpus", name=made.name)
    held = guards.measured_suites()
    waiting = selectors.waiting_files(corpus_services.SUFFIXES)
    incoming = [("Data folder: incoming", waiting)] if waiting else []
    context = {
        "errors": errors,
        "typed": request.POST,
        "guards": held,
        "guarded": request.POST.getlist("guards") if errors else held,
        "offered": [*incoming, *codebases.repositories()],
        "chosen": request.POST.getlist("sources") if errors else [],
    }
    return show(request, "datasets/corpus_new.html", context, status=422 if errors else 200)


def _wanted(request: PageRequest) -> CorpusWanted:
    """Raises UserError."""
    try:
        return CorpusWanted(sources=request.POST.getlist("sources"), suites=request.POST.getlist("guards"))
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        field = str(found["loc"][0])
        raise UserError(field, f"{field}: {found['msg']}") from error


@require_safe
@page()
def corpus(request: PageRequest, name: str) -> HttpResponse:
    found = corpora.get(name)
    made = Provenance.model_validate(found.provenance) if found.provenance else None
    context = {
        "corpus": found,
        "made": made,
        "left_out": [(reason, count, made.examples.get(reason, [])) for reason, count in made.dropped.items()]
        if made
        else [],
        "unguarded": guards.unguarded(made.guards) if made else [],
        "live": "datasets",
    }
    template = "datasets/_corpus.html" if request.headers.get("HX-Request") else "datasets/corpus.html"
    return show(request, template, context)


@require_POST
@page("operator")
def corpus_remove(request: PageRequest, name: str) -> HttpResponse:
    found = corpora.get(name)
    return act(
        request,
        lambda: corpus_services.remove(corpus=found, actor=request.user),
        done=f"“{found.name}” is removed.",
        to="datasets:corpora",
    )
