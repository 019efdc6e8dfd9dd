"""`{% state run.state "run" %}`: a state's badge whose meaning opens by click, Enter or tap. Once on a page for each state."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from composer_web.ui.templatetags.ui import TONES, words
from composer_web.ui.texts.state_meanings import MEANINGS

register = template.Library()


@register.simple_tag
def state(value: str, kind: str = "run", label: str = "") -> SafeString | str:
    """The badge as a button with its meaning; a plain badge for an unknown state. `label`: the word on it."""
    if not value:
        return ""
    tone, said, meaning = TONES.get(value, "none"), label or words(value), MEANINGS[kind].get(value, "")
    if not meaning:
        return format_html('<span class="badge badge--{}">{}</span>', tone, said)
    name = f"state-{kind}-{value}"
    return format_html(
        '<button type="button" class="badge badge--{} badge--help" popovertarget="{}">{}</button>'
        '<span class="helptip" id="{}" popover role="note"><strong>{}</strong> {}</span>',
        tone, name, said, name, f"{said[:1].upper()}{said[1:]}", meaning,
    )  # fmt: skip
