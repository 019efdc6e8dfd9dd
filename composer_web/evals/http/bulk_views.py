"""Acts on the ticked evaluations of a list."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.http import HttpResponse
from django.views.decorators.http import require_POST

from composer_web.core.errors import NotFound
from composer_web.core.numbers import row_ids
from composer_web.evals import selectors, services
from composer_web.ui.bulk import act_on_each, counted
from composer_web.ui.pages import PageRequest, page


@require_POST
@page("operator")
def evaluation_bulk(request: PageRequest, action: str) -> HttpResponse:
    """Stop or grade every ticked evaluation."""

    def stop(pk: int) -> None:
        services.cancel(evaluation=selectors.get_evaluation(pk), actor=request.user)

    def grade(pk: int) -> None:
        grader = request.POST.get("grader", "").strip()
        services.set_grader(evaluation=selectors.get_evaluation(pk), grader=grader, actor=request.user)

    actions: dict[str, tuple[Callable[[int], None], str]] = {
        "stop": (stop, "stopped"),
        "grade": (grade, "queued for grading"),
    }
    if action not in actions:
        raise NotFound("action of evaluations", action)
    act, done = actions[action]
    steps = [(f"evaluation {pk}", partial(act, pk)) for pk in row_ids(request.POST.getlist("evaluation"))]
    return act_on_each(request, steps, said=lambda names: f"{counted(names, 'evaluation')} {done}.", to="evals:list")
