"""`{% icon "play" %}`: an icon of the sprite `static/img/icons.svg` (made by `scripts/icons.py`)."""

from __future__ import annotations

from functools import cache

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag
@cache  # a page has dozens, and the address holds for the process
def icon(name: str, label: str = "") -> SafeString:
    """An icon in the text's colour. Decorative without `label`; with it, it is announced by that name."""
    address = f"{static('img/icons.svg')}#{name}"
    if label:
        return format_html('<svg class="icon" role="img" aria-label="{}"><use href="{}"/></svg>', label, address)
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}"/></svg>', address)
