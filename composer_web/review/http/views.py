"""Views of review queues: the list, and one queue with its agreement. (One rollout: `item_views.py`.)"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_tables2 import RequestConfig

from composer_web.core.errors import NotFound, UserError
from composer_web.core.numbers import whole
from composer_web.review import excluding, selectors, services
from composer_web.review.filling import asked, fields, found_by, recorded
from composer_web.review.http.tables import QueueTable
from composer_web.review.questions import EXAMPLE, parse
from composer_web.ui.pages import PageRequest, act, page, show

PER_PAGE = 50
MAX_JSON = 100_000
LIMIT = 200
"""Rollouts that a form asks for unless it says another number."""


@require_safe
@page()
def queue_list(request: PageRequest) -> HttpResponse:
    if request.headers.get("HX-Request"):
        return show(request, "partials/rows.html", {"table": _table(request)})
    return _list(request, given={}, questions=EXAMPLE.model_dump_json(indent=1), filters=request.GET.get("filters", ""))


def _table(request: PageRequest) -> QueueTable:
    table = QueueTable(selectors.queues())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    return table


def _list(
    request: PageRequest, *, given: Mapping[str, str], questions: str, filters: str, problem: str = ""
) -> HttpResponse:
    """The queues, and the form for another one with what is `given` for it."""
    context = {
        "table": _table(request),
        "live": "reviews",
        "tab": "queues",
        "previews": True,
        "given": given,
        "questions": questions,
        "filling": fields(filters),
        "limit": given.get("limit", LIMIT),
        "problem": problem,
        "open": bool(problem or filters),
    }
    return show(request, "review/list.html", context, status=422 if problem else 200)


@require_safe
@page("operator")
def fill_count(request: PageRequest) -> HttpResponse:
    """How many rollouts the filters of a form would put into a queue: a new one, or `?queue=`."""
    queue = selectors.get_queue(request.GET["queue"]) if "queue" in request.GET else None
    context: dict[str, Any] = {"queue": queue}
    try:
        context["limit"] = number(request.GET, "limit", LIMIT)
        context["count"] = recorded(found_by(asked(request.GET)), queue).count()
    except UserError as error:
        context["problem"] = str(error)
    return show(request, "review/_count.html", context)


def number(given: QueryDict, name: str, otherwise: int) -> int:
    """A whole number of a form. Raises UserError."""
    text = given.get(name, "").strip()
    if not text:
        return otherwise
    found = whole(text)
    if found is None:
        raise UserError(name, f"{name} is a whole number, not {text[:40]!r}")
    return found


@require_http_methods(["GET", "HEAD", "POST"])
@page("operator")
def queue_new(request: PageRequest) -> HttpResponse:
    """A queue with the rollouts of some filters. The form that comes back when it is refused has this address: its links
    and refreshes lead to the list."""
    if request.method != "POST":
        return redirect(f"{reverse('review:list')}?{request.GET.urlencode()}")
    given = request.POST
    name, questions = given.get("name", "").strip(), given.get("questions", "")[:MAX_JSON]
    try:
        with transaction.atomic():
            queue = services.create_queue(
                name=name,
                title=given.get("title", ""),
                questionnaire=parse(json.loads(questions)),
                reviewers=number(given, "reviewers", 1),
                actor=request.user,
            )
            found, limit = found_by(asked(given)), number(given, "limit", LIMIT)
            added = services.fill(queue=queue, rollouts=found, limit=limit, actor=request.user)
    except json.JSONDecodeError as error:
        problem = f"questions: no JSON: {error}"
        return _list(request, given=given, questions=questions, filters=asked(given), problem=problem)
    except UserError as error:
        return _list(request, given=given, questions=questions, filters=asked(given), problem=str(error))
    messages.success(request, f"Queue {name} has {added} rollout{'s' * (added != 1)}.")
    return redirect("review:queue", name=name)


@require_safe
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
        "answers": excluding.answers_of(queue),
        "filling": fields(""),
        "limit": LIMIT,
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
            found = found_by(asked(request.POST))
            services.fill(queue=queue, rollouts=found, limit=number(request.POST, "limit", LIMIT), actor=request.user)
        elif action == "exclude":
            question, _, value = request.POST.get("label", "").partition("=")
            tasks = request.POST.get("what") == "tasks"
            excluding.exclude(queue=queue, question=question, value=value, tasks=tasks, actor=request.user)
        else:
            services.set_closed(queue=queue, closed=action == "close", actor=request.user)

    return act(request, change, done=done[action], to="review:queue", name=name)
