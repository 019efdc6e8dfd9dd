"""Views of annotations: the list, and the bar on a trajectory's page."""

from __future__ import annotations

import json

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe
from django_tables2 import RequestConfig

from composer_web.accounts.models import User
from composer_web.accounts.permissions import may_in, with_places
from composer_web.core.errors import UserError
from composer_web.core.numbers import whole
from composer_web.review import annotated as selectors
from composer_web.review import annotating as services
from composer_web.review.blind import blind_in
from composer_web.review.http.filters import AnnotationFilter
from composer_web.review.http.tables import AnnotationTable
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.selectors import get_rollout
from composer_web.ui import saved_views
from composer_web.ui.filters import strict
from composer_web.ui.pages import PageRequest, page, rows, show

PER_PAGE = 50
MAX_PEOPLE = 200
PROBLEM, COMMENT_PROBLEM = "#annotations-problem", "#comment-problem"
"""Where the bar shows why something was refused."""
DONE = {
    "verdict": "Verdict saved",
    "tag": "Tag added",
    "comment": "Comment added",
    "needs_review": "Marked for review",
    "assignee": "Assignee saved",
}


@require_safe
@page()
def annotation_list(request: PageRequest) -> HttpResponse:
    listed = selectors.present().select_related("rollout__group__task_version__task")
    listed = listed.defer("rollout__group__task_version__spec", "rollout__group__task_version__controls")
    found = strict(AnnotationFilter, request.GET, queryset=listed)
    table = AnnotationTable(found.qs)
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    if request.headers.get("HX-Request"):
        return rows(request, table)
    return show(
        request,
        "review/annotations.html",
        {
            "table": table,
            "filter": found,
            "live": "reviews",
            "tab": "annotations",
            "saved": saved_views.offered(request, request.user, "annotations"),
        },
    )


def _bar(request: PageRequest, rollout: Rollout, *, done: str = "") -> HttpResponse:
    """The annotations of a rollout, for its page to swap in, and a toast that says what was `done`.

    A form that htmx did not send gets the rollout's page: the bar alone is no page.
    """
    if request.method == "POST" and not request.headers.get("HX-Request"):
        messages.success(request, done)
        return redirect("rollouts:detail", rollout.pk)
    hidden = bool(blind_in(rollout, request.user))
    context = {
        "rollout": rollout,
        "sheet": selectors.sheet_of(rollout, request.user, hidden=hidden),
        "may_review": request.user.may("reviewer"),
        "labels_hidden": hidden,
    }
    answer = show(request, "review/_annotations.html", context)
    if done:
        answer["HX-Trigger"] = json.dumps({"oc:toast": done})
    return answer


def _refused(request: PageRequest, rollout: Rollout, error: UserError, *, at: str) -> HttpResponse:
    """Only the reason, shown at `at`: the form keeps its text, turn and tokens, because nothing else is replaced."""
    if not request.headers.get("HX-Request"):
        messages.error(request, str(error))
        return redirect("rollouts:detail", rollout.pk)
    answer = show(request, "review/_refused.html", {"problem": str(error)})
    answer["HX-Retarget"], answer["HX-Reswap"] = at, "innerHTML"
    return answer


@require_safe
@page()
def annotations_of(request: PageRequest, pk: int) -> HttpResponse:
    return _bar(request, get_rollout(pk))


@require_safe
@page("reviewer")
def annotation_choices(request: PageRequest, pk: int) -> HttpResponse:
    """People who may be assigned, and tags in use."""
    rollout = get_rollout(pk)
    people = with_places(User.objects.filter(is_active=True)).order_by("username")[:MAX_PEOPLE]
    names = [person.username for person in people if may_in(person, rollout.project_id, "reviewer")]
    return show(request, "review/_assign.html", {"rollout": rollout, "people": names, "tags": selectors.tags()})


@require_POST
@page("reviewer")
def annotate(request: PageRequest, pk: int) -> HttpResponse:
    """Set an annotation. The answer is the bar, for the page to swap in."""
    rollout = get_rollout(pk)
    given = request.POST
    try:
        turn, start, end = (_number(given.get(name, "")) for name in ("turn", "token_start", "token_end"))
        services.annotate(
            rollout=rollout,
            kind=given.get("kind", ""),
            value=given.get("value", ""),
            text=given.get("text", ""),
            turn=turn,
            tokens=None if start is None or end is None else (start, end),
            assignee=given.get("assignee", ""),
            actor=request.user,
        )
    except UserError as error:
        return _refused(request, rollout, error, at=COMMENT_PROBLEM if given.get("kind") == "comment" else PROBLEM)
    return _bar(request, rollout, done=DONE[given["kind"]])


def _number(text: str) -> int | None:
    if not text.strip():
        return None
    found = whole(text)
    if found is None:
        raise UserError("turn", f"a turn or token is a whole number, not {text[:40]!r}")
    return found


@require_POST
@page("reviewer")
def annotation_delete(request: PageRequest, pk: int) -> HttpResponse:
    annotation = selectors.get(pk)
    try:
        services.remove(annotation=annotation, actor=request.user)
    except UserError as error:
        return _refused(request, annotation.rollout, error, at=PROBLEM)
    return _bar(request, annotation.rollout, done="Annotation removed")
