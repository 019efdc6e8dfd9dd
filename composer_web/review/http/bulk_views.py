"""Acts on the ticked rollouts of a list: annotates each, or adds them to a review queue."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from composer_web.accounts.access import current
from composer_web.accounts.models import User
from composer_web.accounts.permissions import may_in, with_places
from composer_web.core.errors import UserError
from composer_web.core.numbers import row_ids
from composer_web.review import annotated, annotating, services
from composer_web.review.models import Queue
from composer_web.review.selectors import get_queue
from composer_web.rollouts.models import Rollout
from composer_web.ui.pages import PageRequest, page, refuse, show

MAX_OFFERED = 200
"""People and queues that the bar offers."""
VALUES = {"verdict": "value_verdict", "tag": "value_tag", "assignee": "value_assignee", "needs_review": ""}
"""Kind of annotation → the field that holds its value."""


@require_safe
@page("reviewer")
def bulk_choices(request: PageRequest) -> HttpResponse:
    """People, tags and queues that the bar offers, fetched when it is first used."""
    access = current()
    people = with_places(User.objects.filter(is_active=True)).order_by("username")[:MAX_OFFERED]
    names = [one.username for one in people if access is not None and may_in(one, access.project, "reviewer")]
    queues = Queue.objects.filter(closed_at=None).order_by("name").values_list("name", flat=True)[:MAX_OFFERED]
    return show(request, "review/_bulk_choices.html", {"people": names, "tags": annotated.tags(), "queues": queues})


@require_POST
@page("reviewer")
def bulk(request: PageRequest) -> HttpResponse:
    """One action on every ticked rollout: all of it or, where one refuses, nothing."""
    given = request.POST
    rollouts = Rollout.objects.filter(pk__in=row_ids(given.getlist("rollout")))
    kind = given.get("action", "")
    try:
        if kind == "queue":
            done = _fill(request, rollouts, given.get("value_queue", "").strip())
        else:
            done = _annotate(request, rollouts, kind, given.get(VALUES.get(kind, ""), "").strip())
    except UserError as error:
        return refuse(request, error, to="rollouts:list")
    messages.success(request, done)
    to = given.get("next", "")
    safe = url_has_allowed_host_and_scheme(to, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return redirect(to if safe else "rollouts:list")


def _fill(request: PageRequest, rollouts: QuerySet[Rollout], name: str) -> str:
    if not name:
        raise UserError("queue", "no review queue is named; choose one that is open")
    added = services.fill(queue=get_queue(name), rollouts=rollouts, actor=request.user)
    waiting = rollouts.count() - added
    rest = f"; {waiting} were in it already or are not recorded yet" if waiting else ""
    return f"{added} added to the queue {name}{rest}."


@transaction.atomic
def _annotate(request: PageRequest, rollouts: QuerySet[Rollout], kind: str, value: str) -> str:
    if kind not in VALUES:
        raise UserError("action", f"action is {kind[:40]!r}; choose one of {', '.join(VALUES)}, queue")
    assignee = value if kind == "assignee" else ""
    found = list(rollouts.order_by("pk"))  # locked in one order, whoever else annotates them
    for rollout in found:
        annotating.annotate(
            rollout=rollout, kind=kind, actor=request.user, assignee=assignee, value="" if assignee else value
        )
    words = f"{kind} {value}" if value else kind.replace("_", " ")
    return f"{len(found)} rollouts: {words}."
