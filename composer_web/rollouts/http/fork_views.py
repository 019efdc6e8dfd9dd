"""Fork actions of the trajectory page: request and cancel."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import UserError
from composer_web.core.numbers import whole
from composer_web.rollouts import selectors
from composer_web.rollouts.worker import forks
from composer_web.ui.pages import PageRequest, act, page, refuse


@require_POST
@page("operator")
def fork(request: PageRequest, pk: int) -> HttpResponse:
    """Continue the rollout after a turn, then show the continuations."""
    rollout = selectors.get_rollout(pk)
    try:
        made = forks.request_fork(
            rollout=rollout,
            turn=_whole(request, "turn"),
            count=_whole(request, "count"),
            reference=request.POST.get("policy", "").strip(),
            actor=request.user,
        )
    except (UserError, ArtifactError) as error:
        return refuse(request, error, to="rollouts:detail", pk=pk)
    messages.success(request, f"Rollout {pk} is forked from turn {made.turn}; its samples appear here.")
    return redirect("rollouts:group", pk=made.group.pk)


@require_POST
@page("operator")
def cancel(request: PageRequest, pk: int) -> HttpResponse:
    made = selectors.get_fork(pk)
    done = "The fork is cancelled."
    return act(
        request, lambda: forks.cancel(fork=made, actor=request.user), done=done, to="rollouts:group", pk=made.group.pk
    )


def _whole(request: PageRequest, name: str) -> int:
    text = request.POST.get(name, "").strip()
    found = whole(text)
    if found is None:
        raise UserError(name, f"{name}: a whole number, not {text[:40]!r}")
    return found
