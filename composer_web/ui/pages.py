"""Shared code of page views: permissions, rendering, and conversion of service errors to messages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme

from composer_web.accounts.access import current
from composer_web.accounts.models import User
from composer_web.accounts.permissions import enter, may_in, reach
from composer_web.core.errors import Denied, NotFound, UserError, taken
from composer_web.ui import refused
from composer_web.ui.filters import WrongFilter
from composer_web.ui.tables import Table

View = Callable[..., HttpResponseBase]


class PageRequest(HttpRequest):
    """A request behind `page`: the user is logged in."""

    user: User


@dataclass(frozen=True)
class Figure:
    """One figure at the top of a page: label, displayed value, unit, a short note, and what it means (`{% help_term %}`).

    `tone`: "bad" or "warn" when a detector sees something wrong with its `metric`.
    """

    label: str
    value: str
    unit: str = ""
    note: str = ""
    help: str = ""
    tone: str = ""
    metric: str = ""


def page(role: str = "viewer") -> Callable[[View], View]:
    """A view for people of at least `role` in the project that the address is about.

    What does not exist, or belongs to a project that the person does not reach, is a 404; a wrong filter is a 422.
    """

    def wrap(view: View) -> View:
        @login_required
        @functools.wraps(view)
        def inner(request: PageRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                access = enter(request, request.user)
                if not request.user.may(role):
                    mine = (
                        f"yours is {access.role}" if access.role else "you are in no project: ask an admin to add you"
                    )
                    raise PermissionDenied(f"this needs the role {role}; {mine}")
                return view(request, *args, **kwargs)
            except NotFound as error:
                raise Http404(str(error)) from error
            except Denied as error:
                raise PermissionDenied(str(error)) from error
            except WrongFilter as error:
                return render(request, "422.html", {"field": error.field, "message": error.message}, status=422)

        inner.role = role  # type: ignore[attr-defined]  # read by the walk over all addresses
        return inner

    return wrap


def show(
    request: PageRequest, template: str, context: Mapping[str, Any] | None = None, status: int = 200
) -> HttpResponse:
    """Render with the shared context: whether the user is an operator, in which of their projects, and the time."""
    access, projects = current(), reach(request.user)
    shared = {
        "may_operate": request.user.may("operator"),
        "now": timezone.now(),
        "refused_form": lambda: refused.take(request),  # called where messages are shown, so at most once
        "access": access,
        "projects": projects,
        "project": next((place for place in projects if access and place["id"] == access.project), None),
    }
    return render(request, template, {**shared, **(context or {})}, status=status)


def rows(request: PageRequest, table: Table) -> HttpResponse:
    """The rows of a list that is live. Where there are any the page hears `oc:rows`: a list that was empty then fetches what
    it shows beside rows only."""
    answer = show(request, "partials/rows.html", {"table": table})
    if table.page.paginator.count:
        answer["HX-Trigger"] = "oc:rows"
    return answer


def may_use(request: PageRequest) -> bool:
    """Whether the user may create something of their own from the page's content when a library shares it."""
    access = current()
    return access is not None and may_in(request.user, access.project, "operator")


def act(request: PageRequest, action: Callable[[], Any], *, done: str, to: str, **where: Any) -> HttpResponse:
    """Run one service call, report the result as a message, and redirect to the page `to`; after a refusal see `refuse`."""
    try:
        action()
    except UserError as error:
        return refuse(request, error, to=to, **where)
    except IntegrityError as error:
        known = taken(error)
        if known is None:
            raise
        return refuse(request, known, to=to, **where)
    messages.success(request, done)
    return redirect(to, **where)


def refuse(request: PageRequest, error: Exception, *, to: str, words: str = "", **where: Any) -> HttpResponse:
    """Say why a form was refused, on the page that it was sent from (`to` if unknown), which shows the form as it was typed.
    `words` are shown instead of the error's own."""
    messages.error(request, words or str(error))
    refused.keep(request, field=getattr(error, "field", ""))
    sender = request.headers.get("Referer", "")
    known = url_has_allowed_host_and_scheme(
        sender, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return redirect(sender) if known and sender.startswith("http") else redirect(to, **where)
