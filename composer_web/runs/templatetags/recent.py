"""`{% recent_runs %}`: the newest runs, in the sidebar of every page."""

from __future__ import annotations

from django import template

from composer_web.accounts import access
from composer_web.accounts.models import User
from composer_web.runs import selectors
from composer_web.runs.models import Run

register = template.Library()


@register.simple_tag(takes_context=True)
def recent_runs(context: template.Context) -> list[Run]:
    """Those of the request's project, what is live first. Empty for a visitor who is not logged in."""
    now = access.current()
    if not isinstance(context["request"].user, User) or now is None:
        return []
    return selectors.recent(project=now.project)
