"""Meanings of states beside them, by click, Enter or tap.

`{% state run.state "run" %}`: a badge with its own meaning, once on a page for each state. `{% state_help "State" "run" %}`: one
help for a whole column or section, which lists the meanings of all states; the badges below it stay plain and light.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from composer_web.ui.templatetags.ui import TONES, help_button, words
from composer_web.ui.texts.state_meanings import LABELS, MEANINGS

register = template.Library()


@register.simple_tag
def state(value: str, kind: str = "run", label: str = "", scope: Any = "") -> SafeString | str:
    """The badge as a button with its meaning; a plain badge for an unknown state. `label`: the word on it. `scope`: sets
    apart several badges of one kind on a page."""
    if not value:
        return ""
    tone, said, meaning = TONES.get(value, "none"), label or words(value), MEANINGS[kind].get(value, "")
    if not meaning:
        return format_html('<span class="badge badge--{}">{}</span>', tone, said)
    name = f"state-{kind}-{value}{f'-{scope}' if scope else ''}"
    return format_html(
        '<button type="button" class="badge badge--{} badge--help" popovertarget="{}">{}</button>'
        '<span class="helptip" id="{}" popover role="note"><strong>{}</strong> {}</span>',
        tone, name, said, name, f"{said[:1].upper()}{said[1:]}", meaning,
    )  # fmt: skip


@register.simple_tag
def state_help(label: str, kinds: str = "run", scope: Any = "") -> SafeString:
    """The label as a button that lists what each state of these kinds means. `kinds`: names, separated by spaces."""
    return help_button(f"states-{kinds}-{scope}", label, listed(kinds))


@cache
def listed(kinds: str) -> SafeString:
    """Each state of these kinds, as its badge says it, with its meaning. A word that two kinds share stands once."""
    found: dict[str, str] = {}
    for kind in kinds.split():
        for value, meaning in MEANINGS[kind].items():
            found.setdefault(LABELS.get(kind, {}).get(value) or words(value), meaning)
    return format_html_join("", '<span class="helptip__state"><b>{}</b> {}</span>', found.items())
