"""Views of one queued rollout: its trajectory with supporting information, the questions, and the answers."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse, JsonResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import NotFound, UserError
from composer_web.core.numbers import whole
from composer_web.review import selectors, services
from composer_web.review.blind import RULE, blind_in
from composer_web.review.models import Queue, QueueItem
from composer_web.review.questions import Questionnaire
from composer_web.rollouts import selectors as rollouts
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.trajectory import trajectory_store, transcript
from composer_web.rollouts.trajectory.outcome import outcome
from composer_web.ui.pages import PageRequest, page, refuse, show

PREVIEWED = 40
"""Lines of a patch beside the list of queues."""


def _address(queue: Queue, item: QueueItem | None) -> str:
    return reverse("review:item", args=[queue.name, item.pk]) if item else reverse("review:next", args=[queue.name])


@require_safe
@page()
def queue_preview(request: PageRequest, name: str) -> HttpResponse:
    """What the list shows beside its rows: the queue, and for reviewers the rollout that waits for them."""
    queue = selectors.get_queue(name)
    may_review = request.user.may("reviewer")
    context: dict[str, Any] = {"queue": queue, "questions": queue.questionnaire.questions, "may_review": may_review}
    item = selectors.following(queue, request.user, None) if may_review else None
    if item is not None:
        rollout = rollouts.get_rollout(item.rollout_id)
        context |= {"item": item, "rollout": rollout, "waiting": selectors.waiting(queue, request.user).count()}
        try:
            head = trajectory_store.of(rollout).head
            if head.trajectory is not None:
                context["patch"] = transcript.diff_view(excerpt(head.trajectory.patch))
        except (NotFound, ArtifactError) as error:
            context["problem"] = str(error)
    return show(request, "review/_preview.html", context)


def excerpt(patch: str) -> str:
    """The first lines of a patch."""
    return "\n".join(patch.splitlines()[:PREVIEWED])


@require_safe
@page("reviewer")
def queue_next(request: PageRequest, name: str) -> HttpResponse:
    """The first rollout that waits for this person, or that there is none."""
    queue = selectors.get_queue(name)
    item = selectors.following(queue, request.user, None)
    return redirect(_address(queue, item)) if item else show(request, "review/done.html", {"queue": queue})


@require_safe
@page("reviewer")
def item_detail(request: PageRequest, name: str, pk: int) -> HttpResponse:
    """The trajectory and the questions; `?turn=` is the window. What others said, or decided about findings, is not on
    the page before one's own answers are."""
    queue = selectors.get_queue(name)
    item = selectors.get_item(queue, pk)
    rollout = rollouts.get_rollout(item.rollout_id)
    waiting = blind_in(rollout, request.user)
    blind, unsaid = queue.pk in waiting, bool(waiting)  # another queue may ask about it too
    context: dict[str, Any] = {"queue": queue, "item": item, "rollout": rollout, "here": _address(queue, item)}
    only_turns = request.headers.get("HX-Target") == "item-turns"
    try:
        context |= _trajectory(request, rollout, blind=unsaid, only_turns=only_turns)
    except (NotFound, ArtifactError) as error:
        context["problem"] = str(error)
    if only_turns:
        return show(request, "review/_turns.html", context)
    mine = selectors.label_of(item, request.user)
    following, before = selectors.following(queue, request.user, item), selectors.preceding(item)
    context |= {
        "questions": [(q, (mine.answers if mine else {}).get(q.id, "")) for q in queue.questionnaire.questions],
        "mine": mine,
        "labels": None if blind else selectors.labels_of(item),
        "waiting": selectors.waiting(queue, request.user).count(),
        "next": _address(queue, following) if following else "",
        "previous": _address(queue, before) if before else "",
        "full": mine is None and item.labelled_by >= queue.reviewers,
    }
    template = "review/_item.html" if request.headers.get("HX-Request") else "review/item.html"
    return show(request, template, context)


def _trajectory(request: PageRequest, rollout: Rollout, *, blind: bool, only_turns: bool) -> dict[str, Any]:
    """A window of turns with the findings in them and, unless it is all that was asked for, what came of the rollout. Read
    from the copy for reading, however large the trajectory is. Raises NotFound, ArtifactError."""
    read = trajectory_store.of(rollout)
    found = rollouts.findings_of(rollout)
    if blind:  # such a finding says what others labelled
        found = [finding for finding in found if finding.rule != RULE]
    at = whole(request.GET.get("turn", "")) or 0
    context = {
        "blind": blind,
        "marks": transcript.marks(found),
        "window": transcript.window_of(read, range(read.total), at),
    }
    if only_turns:
        return context
    context |= {
        "findings": found,
        "opening": transcript.opening(read.head.messages),
        "notices": transcript.notices(read.head.facts, missing=read.head.missing),
        "quarantined": not blind and any(finding.quarantined for finding in found),  # type: ignore[attr-defined]
    }
    return context | (outcome(read.head.trajectory) if read.head.trajectory is not None else {})


@require_POST
@page("reviewer")
def item_label(request: PageRequest, name: str, pk: int) -> HttpResponse:
    """Answers of one person. A script is told where to go on, anybody else is sent there."""
    queue = selectors.get_queue(name)
    item = selectors.get_item(queue, pk)
    following = selectors.following(queue, request.user, item)
    try:
        services.label(item=item, answers=posted(queue.questionnaire, request.POST), actor=request.user)
    except UserError as error:
        return _answer(request, 422, str(error), _address(queue, item))
    waiting = selectors.waiting(queue, request.user).count()
    return _answer(request, 200, f"Rollout {item.rollout_id} is labelled.", _address(queue, following), waiting)


def _answer(request: PageRequest, status: int, text: str, to: str, waiting: int | None = None) -> HttpResponse:
    """The next item was fetched before this answer: `waiting` mends what it says of the queue."""
    if request.headers.get("X-Requested-With") == "fetch":
        return JsonResponse({"message": text, "next": to, "undo": "", "waiting": waiting}, status=status)
    if status != 200:
        return refuse(request, UserError("", text), to=to)
    messages.success(request, text)
    return redirect(to)


def posted(questionnaire: Questionnaire, form: QueryDict) -> dict[str, Any]:
    """Answers of a form, whose fields are `q-` and the question's id."""
    return {
        question.id: form.getlist(f"q-{question.id}") if question.kind == "flags" else form.get(f"q-{question.id}", "")
        for question in questionnaire.questions
    }
