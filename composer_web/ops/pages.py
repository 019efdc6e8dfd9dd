"""What every page view shares: who may, how to render, how an error of a service becomes a message."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.ops.errors import NotFound, UserError

View = Callable[..., HttpResponseBase]


class PageRequest(HttpRequest):
    """A request behind `page`: somebody is logged in."""

    user: User


@dataclass(frozen=True)
class Figure:
    """One number of a page's head: label, value as shown, unit and a short note."""

    label: str
    value: str
    unit: str = ""
    note: str = ""


def page(role: str = "viewer") -> Callable[[View], View]:
    """A view for people of at least `role`; what does not exist is a 404, whoever asks."""

    def wrap(view: View) -> View:
        @login_required
        @functools.wraps(view)
        def inner(request: PageRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not request.user.may(role):
                raise PermissionDenied(f"this needs the role {role}; yours is {request.user.role}")
            try:
                return view(request, *args, **kwargs)
            except NotFound as error:
                raise Http404(str(error)) from error

        return inner

    return wrap


def show(
    request: PageRequest, template: str, context: Mapping[str, Any] | None = None, status: int = 200
) -> HttpResponse:
    """Render with what every template may ask: whether this person operates, and the time."""
    shared = {"may_operate": request.user.may("operator"), "now": timezone.now()}
    return render(request, template, {**shared, **(context or {})}, status=status)


def act(request: PageRequest, action: Callable[[], Any], *, done: str, to: str, **where: Any) -> HttpResponse:
    """Run one service call, say what came of it, and go to the page `to`."""
    try:
        action()
    except UserError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, done)
    return redirect(to, **where)
