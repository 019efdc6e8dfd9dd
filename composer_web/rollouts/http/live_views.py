"""The unfinished turn of a running rollout, for its page."""

from __future__ import annotations

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from composer_web.core.numbers import whole
from composer_web.rollouts import selectors
from composer_web.rollouts.trajectory import partial_turns, transcript
from composer_web.ui.pages import PageRequest, page, show


@require_safe
@page()
def rollout_partial(request: PageRequest, pk: int) -> HttpResponse:
    """The turn that is being sampled; status 204 when none is known.

    Asking keeps the worker telling it. A page that has the text of turn `?of=` up to character `&from=` gets the rest.
    """
    rollout = selectors.get_rollout(pk)
    place = rollout.group_id, rollout.sample
    if rollout.verdict:
        return HttpResponse(status=204)
    partial_turns.watch(place)
    partial = partial_turns.get(place)
    if partial is None:
        return HttpResponse(status=204)
    text = partial.turn.text
    known = whole(request.GET.get("from", "")) or 0
    start = known if request.GET.get("of") == partial.name and known <= len(text) else 0
    view = transcript.view(partial.turn, whole=True)
    context = {"partial": partial, "turn": view, "text": text[start:], "start": start, "end": len(text)}
    return show(request, "rollouts/_partial.html", context)
