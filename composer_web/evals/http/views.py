"""Views of evaluations."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_safe
from django_tables2 import RequestConfig

from composer_web.api.downloads import download_file
from composer_web.core.errors import UserError
from composer_web.evals import selectors
from composer_web.evals.http.filters import EvaluationFilter
from composer_web.evals.http.tables import EvaluationTable
from composer_web.evals.models import Evaluation
from composer_web.evals.results import behaviour_scores
from composer_web.policies import selectors as policies
from composer_web.rollouts import selectors as rollouts
from composer_web.tasks.exchange import interchange
from composer_web.ui import saved_views
from composer_web.ui.filters import strict
from composer_web.ui.pages import Figure, PageRequest, page, rows, show
from composer_web.ui.tables import chosen_columns
from composer_web.ui.templatetags import ui

PER_PAGE = 50
WORST = 5
"""Tasks beside the list, those with the fewest passed rollouts first."""


@require_safe
@page()
def evaluation_list(request: PageRequest) -> HttpResponse:
    found = strict(
        EvaluationFilter, request.GET, queryset=selectors.evaluations().defer("sides", "interruption", "failure")
    )
    may_operate = request.user.may("operator")
    table = EvaluationTable(found.qs, chosen=chosen_columns(request), exclude=() if may_operate else ("select",))
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    if request.headers.get("HX-Request"):
        return rows(request, table)
    context = {
        "table": table,
        "filter": found,
        "live": "evals",
        "tab": "evals",
        "saved": saved_views.offered(request, request.user, "evaluations"),
        "columns": table.offered(),
        "previews": True,
        "graders": policies.endpoints() if may_operate else [],
    }
    return show(request, "evals/list.html", context)


@require_safe
@page()
def evaluation_preview(request: PageRequest, pk: int) -> HttpResponse:
    """What a list shows beside its rows."""
    evaluation = selectors.get_evaluation(pk)
    worst = rollouts.worst_groups(evaluation, WORST)
    verdicts = evaluation.results.get("verdicts", {})
    context = {"evaluation": evaluation, "worst": worst, "lost": verdicts.get("infra_error", 0) if verdicts else None}
    return show(request, "evals/_preview.html", context)


@require_safe
@page()
def evaluation_detail(request: PageRequest, pk: int) -> HttpResponse:
    """Scores and the task × rollout grid, with other evaluations of the same run."""
    evaluation = selectors.get_evaluation(pk)
    siblings = selectors.of_run(evaluation.run) if evaluation.run else []
    context: dict[str, Any] = {
        "evaluation": evaluation,
        "siblings": siblings,
        "figures": _figures(evaluation),
        "sides": [
            (behaviour_scores.TITLES.get(aspect, aspect), side) for aspect, side in sorted(evaluation.sides.items())
        ],
        "weak": selectors.weak_sides(evaluation),
        "titles": behaviour_scores.TITLES,
        "others": selectors.comparable(evaluation),
        "graders": policies.endpoints() if request.user.may("operator") else [],
        "groups": rollouts.groups().filter(evaluation=evaluation).prefetch_related("rollouts").order_by("prompt_index"),
    }
    template = "evals/_body.html" if request.headers.get("HX-Request") else "evals/detail.html"
    return show(request, template, context)


@require_safe
@page()
def evaluation_log(request: PageRequest, pk: int) -> HttpResponseBase:
    """The rollouts as a log of Inspect."""
    try:
        file, losses = interchange.export_log(selectors.get_evaluation(pk).pk)
    except UserError as error:
        messages.error(request, error.message)
        return redirect("evals:detail", pk)
    return download_file(file, f"evaluation-{pk}.eval", losses)


def _stop_reasons(counts: dict[str, int]) -> tuple[str, str, str]:
    """The most frequent reason, no unit, and all with their counts."""
    if not counts:
        return "–", "", ""
    return ui.words(next(iter(counts))), "", ", ".join(f"{ui.words(name)} {count}" for name, count in counts.items())


def _figures(evaluation: Evaluation) -> list[Figure]:
    results = evaluation.results
    verdicts = results.get("verdicts", {})
    interval = (
        f"95 %: {ui.percent(results.get('pass1_low'))} to {ui.percent(results.get('pass1_high'))}"
        if results.get("pass1") is not None
        else ""
    )
    return [
        Figure("pass@1", ui.percent(results.get("pass1")), note=interval),
        Figure(f"Best of {evaluation.samples}", ui.percent(results.get("best"))),
        Figure("Tasks done", f"{evaluation.groups_done} / {evaluation.groups_total}"),  # type: ignore[attr-defined]
        Figure("Passed", ui.num(verdicts.get("passed"))),
        Figure("Failed", ui.num(verdicts.get("failed"))),
        Figure("Infra errors", ui.num(verdicts.get("infra_error")), note="left out of the score"),
        Figure("Tokens", ui.num(results.get("tokens_p50")), note="written by a rollout, median"),
        Figure("Stop reasons", *_stop_reasons(results.get("stop_reasons", {}))),
        Figure("Temperature", ui.num(evaluation.temperature)),
        Figure("Duration", ui.elapsed(evaluation.started_at, evaluation.finished_at)),
    ]
