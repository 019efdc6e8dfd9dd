"""Pages of review queues: the list, and one queue with its agreement. One rollout with its questions: `item_views.py`."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.views.decorators.http import require_GET, require_POST
from django_tables2 import RequestConfig

from composer_web.ops.errors import NotFound, UserError
from composer_web.ops.pages import PageRequest, act, page, show
from composer_web.review import excluding, selectors, services
from composer_web.review.questions import EXAMPLE, parse
from composer_web.review.tables import QueueTable
from composer_web.rollouts import selectors as rollouts
from composer_web.rollouts.filters import RolloutFilter

PER_PAGE = 50
MAX_JSON = 100_000


@require_GET
@page()
def queue_list(request: PageRequest) -> HttpResponse:
    table = QueueTable(selectors.queues())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    if request.headers.get("HX-Request"):
        return show(request, "partials/rows.html", {"table": table})
    context = {
        "table": table,
        "live": "reviews",
        "tab": "queues",
        "example": EXAMPLE.model_dump_json(indent=1),
        "filters": request.GET.get("filters", ""),
    }
    return show(request, "review/list.html", context)


def found_by(text: str) -> Any:
    """Rollouts of the filters that an address of the rollouts list holds. Raises UserError."""
    query = QueryDict(text.partition("?")[2] or text)
    unknown = sorted(set(query) - set(RolloutFilter.base_filters) - {"page", "sort"})
    if unknown:
        raise UserError(
            "filters", f"there is no filter {unknown[0]!r}; there are: {', '.join(RolloutFilter.base_filters)}"
        )
    found = RolloutFilter(query, queryset=rollouts.rollouts())
    if not found.is_valid():
        name, errors = next(iter(found.errors.items()))
        raise UserError("filters", f"{name}: {' '.join(str(e) for e in errors)}")
    return found.qs


def number(request: PageRequest, name: str, otherwise: int) -> int:
    """A posted whole number. Raises UserError."""
    text = request.POST.get(name, "").strip()
    if not text:
        return otherwise
    if not text.isdecimal() or len(text) > 9:
        raise UserError(name, f"{name} is a whole number, not {text[:40]!r}")
    return int(text)


@require_POST
@page("operator")
def queue_new(request: PageRequest) -> HttpResponse:
    """A queue with the rollouts of some filters."""
    name = request.POST.get("name", "").strip()
    try:
        data = json.loads(request.POST.get("questions", "")[:MAX_JSON])
        found, limit = found_by(request.POST.get("filters", "")), number(request, "limit", 200)
        queue = services.create_queue(
            name=name,
            title=request.POST.get("title", ""),
            questionnaire=parse(data),
            reviewers=number(request, "reviewers", 1),
            actor=request.user,
        )
        added = services.fill(queue=queue, rollouts=found, limit=limit, actor=request.user)
    except json.JSONDecodeError as error:
        messages.error(request, f"questions: no JSON: {error}")
        return redirect("review:list")
    except UserError as error:
        messages.error(request, f"{error}")
        return redirect("review:list")
    messages.success(request, f"Queue {name} has {added} rollout{'s' * (added != 1)}.")
    return redirect("review:queue", name=name)


@require_GET
@page()
def queue_detail(request: PageRequest, name: str) -> HttpResponse:
    queue = selectors.get_queue(name)
    may_review = request.user.may("reviewer")
    context = {
        "queue": queue,
        "questions": queue.questionnaire.questions,
        "agreements": selectors.agreements(queue),
        "disagreements": selectors.disagreements(queue, request.user),
        "waiting": selectors.waiting(queue, request.user).count() if may_review and not queue.closed_at else 0,
        "may_review": may_review,
        "flags": excluding.flags_of(queue),
        "tab": "queues",
    }
    return show(request, "review/queue.html", context)


@require_POST
@page("operator")
def queue_change(request: PageRequest, name: str, action: str) -> HttpResponse:
    """Fill, close, open, or keep what was labelled out of training."""
    queue = selectors.get_queue(name)
    done = {"fill": "Filled.", "close": "Closed: it takes no labels.", "open": "Open again.", "exclude": "Done."}
    if action not in done:
        raise NotFound("action of a queue", action)

    def change() -> None:
        if action == "fill":
            found = found_by(request.POST.get("filters", ""))
            services.fill(queue=queue, rollouts=found, limit=number(request, "limit", 200), actor=request.user)
        elif action == "exclude":
            question, _, value = request.POST.get("label", "").partition("=")
            tasks = request.POST.get("what") == "tasks"
            excluding.exclude(queue=queue, question=question, value=value, tasks=tasks, actor=request.user)
        else:
            services.set_closed(queue=queue, closed=action == "close", actor=request.user)

    return act(request, change, done=done[action], to="review:queue", name=name)
