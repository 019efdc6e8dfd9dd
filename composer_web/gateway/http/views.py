"""Views of the gateway: recorded sessions, one session, settings."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe
from django_tables2 import RequestConfig
from pydantic import BaseModel

from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import UserError
from composer_web.gateway import configuration
from composer_web.gateway.http.filters import SessionFilter
from composer_web.gateway.http.tables import SessionTable
from composer_web.gateway.serving import recording
from composer_web.gateway.sessions import exporting, selectors, task_drafts
from composer_web.policies.promotion import services as promotion
from composer_web.review.models import Draft
from composer_web.tasks.models import Task
from composer_web.ui.filters import strict
from composer_web.ui.pages import PageRequest, act, page, refuse, show

PER_PAGE = 50
MAX_SHOWN = 200
"""Maximum number of turns on a session's page. The downloads have all."""
GROUPS = ("reward", "canary")
"""Nested settings models. The form names their fields like `reward-accept`."""


@require_safe
@page("reviewer")
def session_list(request: PageRequest) -> HttpResponse:
    found = strict(SessionFilter, request.GET, queryset=selectors.sessions(), request=request)
    table = SessionTable(found.qs)
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    if request.headers.get("HX-Request"):
        return show(request, "partials/rows.html", {"table": table})
    context = {"table": table, "filter": found, "filtered": bool(request.GET), "tab": "sessions"}
    return show(request, "gateway/list.html", context)


@require_safe
@page("reviewer")
def session_detail(request: PageRequest, pk: int) -> HttpResponse:
    """Turns with new messages, signals and reward components."""
    session = selectors.get(pk)
    context: dict[str, Any] = {
        "session": session,
        "signals": list(session.signals.order_by("pk")),
        "uses": list(session.uses.select_related("run").order_by("pk")),
        "drafts": list(session.drafts.select_related("draft")),
        "categories": [name for name, _ in Draft._meta.get_field("category").choices or ()],
        "suggested": list(Task.objects.order_by("-pk").values_list("slug", flat=True)[:50]),
        "tab": "sessions",
    }
    try:
        turns = selectors.shown(session)
    except ArtifactError as error:
        return show(request, "gateway/session.html", {**context, "problem": str(error)})
    context |= {
        "turns": turns[:MAX_SHOWN],
        "left_out": max(0, len(turns) - MAX_SHOWN),
        "reward": selectors.mean_reward(turns),
    }
    return show(request, "gateway/session.html", context)


@require_safe
@page("reviewer")
def session_download(request: PageRequest, pk: int, form: str) -> HttpResponse:
    """`form` is jsonl or atif. Raises Http404 for another."""
    if form not in ("jsonl", "atif"):
        raise Http404(f"a session is downloaded as jsonl or atif, not as {form}")
    session = selectors.get(pk)
    if form == "atif":
        answer: HttpResponse = JsonResponse(exporting.as_atif(session))
    else:
        answer = HttpResponse("".join(exporting.jsonl([session])), content_type="application/jsonl")
    answer["Content-Disposition"] = f'attachment; filename="session-{pk}.{"atif.json" if form == "atif" else "jsonl"}"'
    return answer


@require_POST
@page("reviewer")
def create_draft(request: PageRequest, pk: int) -> HttpResponse:
    session = selectors.get(pk)
    given = {name: request.POST.get(name, "") for name in ("task", "slug", "instruction", "category")}
    try:
        draft = task_drafts.create_draft(session=session, actor=request.user, **given)
    except (UserError, ArtifactError) as error:
        return refuse(request, error, to="gateway:session", pk=pk)
    messages.success(request, f"Draft {draft.slug} is made.")
    return redirect("review:draft", pk=draft.pk)


@require_POST
@page("operator")
def session_delete(request: PageRequest, pk: int) -> HttpResponse:
    session = selectors.get(pk)
    return act(
        request, lambda: recording.delete(session=session, actor=request.user), done="Deleted.", to="gateway:sessions"
    )


@require_safe
@page()
def settings_page(request: PageRequest) -> HttpResponse:
    settings = configuration.settings_of()
    context = {
        "settings": settings,
        "current": promotion.current(),
        "weights": _fields(settings.reward),
        "guards": _fields(settings.canary),
        "patterns": "\n".join(settings.patterns),
        "endpoints": ", ".join(settings.endpoints),
        "edit_tools": ", ".join(settings.edit_tools),
        "tab": "settings",
    }
    return show(request, "gateway/settings.html", context)


def _fields(group: BaseModel) -> list[tuple[str, object, str]]:
    """(name, field value, help)."""
    found = ((name, getattr(group, name), field.description or "") for name, field in type(group).model_fields.items())
    return [(name, "" if value is None else value, words) for name, value, words in found]


@require_POST
@page("operator")
def settings_change(request: PageRequest) -> HttpResponse:
    def change() -> object:
        posted = request.POST
        values: dict[str, Any] = {
            "recording": posted.get("recording") == "on",
            "patterns": [line for line in posted.get("patterns", "").splitlines() if line.strip()],
            "endpoints": [name.strip() for name in posted.get("endpoints", "").split(",") if name.strip()],
            "edit_tools": [name.strip() for name in posted.get("edit_tools", "").split(",") if name.strip()],
        }
        for group in GROUPS:
            values[group] = {
                name.partition("-")[2]: posted.get(name, "").strip() or None
                for name in posted
                if name.startswith(f"{group}-")
            }
        for name in ("retention_days", "requests_per_minute", "most_tokens", "answer_seconds"):
            values[name] = posted.get(name, "")
        return configuration.change(values=values, actor=request.user)

    return act(request, change, done="Gateway settings saved.", to="gateway:settings")


@require_POST
@page("operator")
def erase(request: PageRequest) -> HttpResponse:
    try:
        count = recording.erase(user=request.POST.get("user", "").strip(), actor=request.user)
    except UserError as error:
        return refuse(request, error, to="gateway:settings")
    messages.success(request, f"{count} session{'s' * (count != 1)} of that user deleted.")
    return redirect("gateway:settings")
