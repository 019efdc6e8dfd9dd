"""`{% state run.state %}`: a state's badge whose meaning opens by click, Enter or tap. Once on a page for each state."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from composer_web.ui.templatetags.ui import TONES, words

register = template.Library()

MEANINGS: dict[str, str] = {
    "draft": "Configured, not started. Nothing runs and nothing is charged.",
    "queued": "Waiting for a train worker of its pool.",
    "running": "A trainer works on it.",
    "pausing": "It stops after the current step.",
    "paused": "It holds no trainer. Resume continues from the last checkpoint.",
    "finished": "All steps are done.",
    "failed": "It ended with an error. Fix the cause, then resume: it continues from the last checkpoint.",
    "cancelled": "Somebody stopped it. Its checkpoints stay; it cannot be resumed.",
}
"""State of a run → what it means and what follows."""


@register.simple_tag
def state(value: str) -> SafeString:
    """The badge as a button with its meaning; a plain badge for an unknown state."""
    tone, label, meaning = TONES.get(value, "none"), words(value), MEANINGS.get(value, "")
    if not meaning:
        return format_html('<span class="badge badge--{}">{}</span>', tone, label)
    return format_html(
        '<button type="button" class="badge badge--{} badge--help" popovertarget="state-{}">{}</button>'
        '<span class="helptip" id="state-{}" popover role="note"><strong>{}</strong> {}</span>',
        tone,
        value,
        label,
        value,
        label.capitalize(),
        meaning,
    )
