"""Views of drafts: create one from a rollout's turn, review it, publish or discard it."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from django_tables2 import RequestConfig

from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import NotFound, UserError
from composer_web.review import selectors, task_drafts
from composer_web.review.http.tables import DraftTable
from composer_web.review.http.views import number
from composer_web.review.models import Draft
from composer_web.rollouts.selectors import get_rollout
from composer_web.rollouts.trajectory.transcript import diff_view
from composer_web.tasks.curation.comparing import environment_files, gold_diff, hidden_files, unified
from composer_web.ui.pages import PageRequest, act, page, refuse, show

PER_PAGE = 50


@require_safe
@page()
def draft_list(request: PageRequest) -> HttpResponse:
    table = DraftTable(selectors.drafts())
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(table)
    template = "partials/rows.html" if request.headers.get("HX-Request") else "review/drafts.html"
    return show(request, template, {"table": table, "live": "reviews", "tab": "drafts"})


@require_POST
@page("reviewer")
def create(request: PageRequest, pk: int) -> HttpResponse:
    """A draft from a moment of a rollout."""
    rollout = get_rollout(pk)
    try:
        draft = task_drafts.create_draft(
            rollout=rollout,
            turn=number(request.POST, "turn", 0),
            slug=request.POST.get("slug", "").strip(),
            instruction=request.POST.get("instruction", ""),
            category=request.POST.get("category", "debug"),
            actor=request.user,
        )
    except (UserError, ArtifactError) as error:
        turn = request.POST.get("turn", "")
        query = f"?draft={turn}" if turn.isdecimal() else ""
        return refuse(request, error, to=f"{reverse('rollouts:detail', args=[pk])}{query}#draft")
    messages.success(request, f"Draft {draft.slug} is made.")
    return redirect("review:draft", pk=draft.pk)


LINKED = ("rollout", "turn", "task", "version", "run", "evaluation")
"""Provenance fields shown as links instead of plain values."""


@require_safe
@page()
def draft_detail(request: PageRequest, pk: int) -> HttpResponse:
    """Words, what the session had changed, and for reviewers the hidden tests."""
    draft = selectors.get_draft(pk)
    source = draft.rollout.group.task_version.bundle
    before = environment_files(source)
    known = {path: before.get(path, "") for path in draft.files}
    after = {path: text or "" for path, text in draft.files.items()}
    context: dict[str, Any] = {
        "draft": draft,
        "changed": diff_view(unified(known, after)),
        "categories": [name for name, _ in Draft._meta.get_field("category").choices or ()],
        "may_review": request.user.may("reviewer"),
        "provenance": [
            (name, str(value) if isinstance(value, int) else value)
            for name, value in draft.provenance.items()
            if name not in LINKED
        ],
        "tab": "drafts",
        "problem": "",
    }
    if context["may_review"] and draft.state in ("open", "published"):
        try:
            spec = task_drafts.bundle(draft)
            context |= {"hidden": list(hidden_files(spec).items())[:30], "gold": diff_view(gold_diff(spec))}
        except UserError as error:
            context["problem"] = str(error)
    return show(request, "review/draft.html", context)


@require_POST
@page("reviewer")
def draft_change(request: PageRequest, pk: int, action: str) -> HttpResponse:
    """Save, publish or discard."""
    draft = selectors.get_draft(pk)
    done = {
        "save": "Saved.",
        "publish": "Published: validation is queued on the build workers.",
        "discard": "Discarded.",
    }
    if action not in done:
        raise NotFound("action of a draft", action)

    def change() -> None:
        if action == "save":
            task_drafts.change(
                draft=draft,
                instruction=request.POST.get("instruction", ""),
                category=request.POST.get("category", draft.category),
                verifier=_json(request, "verifier"),
                gold=_json(request, "gold"),
                actor=request.user,
            )
        elif action == "publish":
            task_drafts.publish(draft=draft, actor=request.user)
        else:
            task_drafts.discard(draft=draft, actor=request.user)

    return act(request, change, done=done[action], to="review:draft", pk=pk)


def _json(request: PageRequest, name: str) -> dict[str, Any] | None:
    """A posted JSON object; None when the field is empty. Raises UserError."""
    text = request.POST.get(name, "").strip()
    if not text:
        return None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(name, f"{name} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise UserError(name, f"{name} is a JSON object, not {type(value).__name__}")
    return value
