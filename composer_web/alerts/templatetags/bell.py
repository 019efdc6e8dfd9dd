"""Template tag of the notification bell in the top bar."""

from __future__ import annotations

from django import template

from composer_web.accounts.models import User
from composer_web.alerts.rules import selectors

register = template.Library()


@register.simple_tag(takes_context=True)
def unread_notices(context: template.Context) -> int:
    user = context["request"].user
    return selectors.unread(user) if isinstance(user, User) else 0
