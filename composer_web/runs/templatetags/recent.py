"""`{% recent_runs %}`: the newest runs, in the sidebar of every page."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from django import template
from django.http import HttpRequest

from composer_web.accounts import access
from composer_web.accounts.models import User
from composer_web.runs import selectors
from composer_web.runs.models import Run

register = template.Library()
RUN_PAGE = re.compile(r"/runs/(\d+)/")


@register.simple_tag(takes_context=True)
def current_run(context: template.Context) -> int | None:
    """The run whose page the visitor sees, if one. A part that htmx asks for belongs to the page that asks."""
    request: HttpRequest = context["request"]
    page = urlsplit(request.headers["HX-Current-URL"]).path if "HX-Current-URL" in request.headers else request.path
    found = RUN_PAGE.match(page)
    return int(found[1]) if found else None


@register.simple_tag(takes_context=True)
def recent_runs(context: template.Context) -> list[Run]:
    """Those of the request's project, what is live first. Empty for a visitor who is not logged in."""
    now = access.current()
    if not isinstance(context["request"].user, User) or now is None:
        return []
    return selectors.recent(project=now.project)
