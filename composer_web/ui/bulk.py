"""Runs one action on each ticked row of a list and reports it in one message."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme

from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import UserError
from composer_web.ui.pages import PageRequest, refuse

Step = tuple[str, Callable[[], Any]]
"""Name of a row, and the service call for it."""


def act_on_each(
    request: PageRequest, steps: Iterable[Step], *, said: Callable[[list[str]], str], to: str
) -> HttpResponse:
    """Run the call of each row; a row that refuses does not stop the others. `said` takes the names of the changed rows. The
    message adds each refusal and its cause. Returns to the form's `next`, or to the page `to`."""
    done, refusals = [], []
    for name, step in steps:
        try:
            step()
            done.append(name)
        except (UserError, ArtifactError) as error:
            refusals.append(f"{name}: {error}")
    text = said(done) if done else ""
    if refusals:
        text = f"{text} {len(refusals)} refused: {'; '.join(refusals)}".strip()
        return refuse(request, UserError("", text), to=to)
    if done:
        messages.success(request, text)
    else:
        messages.info(request, "Nothing is selected.")
    back = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return redirect(back if safe else to)


def counted(names: list[str], noun: str) -> str:
    """“1 finding”, “3 findings”."""
    return f"{len(names)} {noun}{'' if len(names) == 1 else 's'}"
