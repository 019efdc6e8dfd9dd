"""`{% refused_form %}`: the values of the form that was just refused, for `js/refused.js`."""

from __future__ import annotations

from django import template
from django.template import RequestContext
from django.utils.html import json_script
from django.utils.safestring import SafeString

from composer_web.ui import refused

register = template.Library()


@register.simple_tag(takes_context=True)
def refused_form(context: RequestContext) -> SafeString | str:
    request = context.get("request")
    kept = refused.take(request) if request is not None and hasattr(request, "session") else None
    return json_script(kept, "refused") if kept else ""
