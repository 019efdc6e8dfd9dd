"""Views that compare evaluations: two of them task by task, and one task across all."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from composer_web.core.errors import NotFound, UserError
from composer_web.core.numbers import ROW_ID, whole
from composer_web.evals import selectors, services
from composer_web.evals.results import comparing
from composer_web.tasks.selectors import get_task
from composer_web.ui.pages import Figure, PageRequest, act, page, show
from composer_web.ui.templatetags import ui

MAX_ROWS = 500


@require_safe
@page()
def evaluation_compare(request: PageRequest) -> HttpResponse:
    """`?before=3&after=5`, as submitted by forms on other pages."""
    first, second = (_evaluation_id(request.GET.get(name, "")) for name in ("before", "after"))
    try:
        found = comparing.compare(selectors.get_evaluation(first), selectors.get_evaluation(second))
    except NotFound:
        raise
    except UserError as error:
        messages.error(request, str(error))
        return redirect("evals:detail", pk=second)
    context = {
        "found": found,
        "changes": found.changes[:MAX_ROWS],
        "cut": max(0, len(found.changes) - MAX_ROWS),
        "figures": _figures(found),
        "tab": "evals",
    }
    return show(request, "evals/compare.html", context)


def _evaluation_id(text: str) -> int:
    found = whole(text, digits=ROW_ID)
    if found is None:
        raise NotFound("evaluation", repr(text[:40]))
    return found


def _figures(found: comparing.Comparison) -> list[Figure]:
    sign = "+" if found.difference > 0 else ""
    return [
        Figure(
            "Difference", f"{sign}{100 * found.difference:.1f}", unit="points", note="points, mean over shared tasks"
        ),
        Figure(
            "95 % interval",
            f"{100 * found.low:+.1f} to {100 * found.high:+.1f}",
            note="significant: the interval excludes 0"
            if found.significant
            else "not significant: the interval includes 0",
        ),
        Figure("Worse", ui.num(found.count("worse")), note="tasks"),
        Figure("Better", ui.num(found.count("better")), note="tasks"),
        Figure("Same", ui.num(found.count("same")), note="tasks"),
        Figure("In one only", ui.num(found.only_one), note="tasks, not compared"),
    ]


@require_safe
@page()
def task_history(request: PageRequest, slug: str) -> HttpResponse:
    task = get_task(slug)
    return show(request, "evals/task.html", {"task": task, "entries": comparing.history(task), "tab": "evals"})


@require_POST
@page("operator")
def evaluation_grade(request: PageRequest, pk: int) -> HttpResponse:
    evaluation = selectors.get_evaluation(pk)
    return act(
        request,
        lambda: services.set_grader(evaluation=evaluation, grader=request.POST.get("grader", ""), actor=request.user),
        done="Its rollouts are graded; what is known appears here.",
        to="evals:detail",
        pk=pk,
    )
