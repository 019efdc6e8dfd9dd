"""How facts look on a page: tones of states, numbers with units, times, sparklines. No logic beyond formatting."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.http import QueryDict
from django.utils import timezone
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe

from composer_web.ui.texts import glossary, snippets

register = template.Library()

TONES: dict[str, str] = {
    **dict.fromkeys(
        ("passed", "finished", "ready", "serving", "accepted", "consumed", "ok", "alive", "final", "done"), "good"
    ),
    **dict.fromkeys(("failed", "error", "dead", "timeout", "missing", "high", "confirmed"), "bad"),
    **dict.fromkeys(
        (
            "infra_error",
            "lost",
            "warning",
            "skipped",
            "late",
            "dropped",
            "stale",
            "malformed_call",
            "medium",
            "quarantined",
            "void",
        ),
        "warn",
    ),
    **dict.fromkeys(("running", "pausing", "building", "dispatched", "loading"), "busy"),
}
WORDS = {
    "consumed": "trained",
    "dead": "offline",
    "infra_error": "infra error",
    "midtrain": "mid-training",
    "sft": "SFT",
    "rl": "RL",
    "lost": "infra error",
}
ACRONYMS = {"rl": "RL", "sft": "SFT", "midtrain": "Mid-training"}

BACKTICKS = re.compile(r"`([^`\n]+)`")


@register.filter
def words(value: Any) -> str:
    """A code such as `no_tool_call` in plain words."""
    text = str(value)
    return WORDS.get(text, text.replace("_", " "))


@register.filter
def told(value: Any) -> SafeString:
    """A message of ours; what stands between backticks is code."""
    return mark_safe(BACKTICKS.sub(r"<code>\1</code>", conditional_escape(value)))  # noqa: S308 (escaped)


@register.simple_tag
def badge(value: Any, label: str = "") -> SafeString | str:
    """A state, verdict or status as a coloured badge; the word carries the meaning, the colour repeats it."""
    if not value:
        return ""
    return format_html('<span class="badge badge--{}">{}</span>', TONES.get(str(value), "none"), label or words(value))


@register.simple_tag
def dot(value: Any) -> SafeString:
    """A state as a coloured dot, named for screen readers."""
    return format_html(
        '<span class="dot dot--{}"></span><span class="unseen">{}</span>', TONES.get(str(value), "none"), words(value)
    )


@register.simple_tag
def help_term(label: str, text: str = "", scope: Any = "") -> SafeString | str:
    """A term with help that a click, Enter or a tap shows beside it; without `text`, the glossary's. The plain term where
    there is no help. `scope`: sets apart terms of one label on a page, such as those of several runs."""
    text = text or glossary.meaning(label)
    if not text:
        return label
    return help_button(f"help-{label} {scope}", label, text)


def help_button(name: str, label: str, text: str, *, mark: bool = False, style: str = "term") -> SafeString:
    """A button that opens the text beside it: the label, or with `mark` a question mark where the label stands before it.
    `name` is unique on the page."""
    name = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
    button = (
        format_html(
            '<button type="button" class="term term--mark" popovertarget="{}" aria-label="About {}">?</button>',
            name,
            label,
        )
        if mark
        else format_html('<button type="button" class="{}" popovertarget="{}">{}</button>', style, name, label)
    )
    return format_html(
        '{}<span class="helptip" id="{}" popover role="note"><strong>{}</strong> {}</span>', button, name, label, text
    )


@register.simple_tag
def rejection(verdict: str, label: str = "", text: str = "", scope: Any = "") -> SafeString:
    """The verdict of an attempt that has to fail: `failed` is the good outcome, `passed` the bad one. `text`: what the attempt
    was, which the badge opens; `scope` sets apart those of one label."""
    tone = {"failed": "good", "passed": "bad"}.get(verdict, TONES.get(verdict, "none"))
    said = {"failed": "rejected", "passed": "accepted"}.get(verdict, words(verdict))
    shown = f"{label}: {said}" if label else said
    if not text:
        return format_html('<span class="badge badge--{}">{}</span>', tone, shown)
    return help_button(f"attempt-{label}-{scope}", shown, text, style=f"badge badge--{tone} badge--help")


@register.simple_tag(takes_context=True)
def export_snippet(context: template.Context, query: str = "") -> snippets.Snippet:
    """Commands that make the export of a list with these filters."""
    return snippets.export(snippets.address(context.get("request")), query or "")


@register.filter
def num(value: Any, digits: int = 3) -> str:
    """A number with up to `digits` significant decimals; an en dash when there is none."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}".replace(",", "\u202f")
    if abs(value) < 1:
        return f"{value:.{digits}g}"
    return f"{value:,.{0 if abs(value) >= 100 else 2}f}".replace(",", "\u202f")


@register.filter
def compact(value: Any) -> str:
    """Large counts in short form: 12 345 → 12.3k."""
    if value is None or value == "":
        return "–"
    number = float(value)
    for limit, scale, unit in ((999.5e6, 1e9, "G"), (999.5e3, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(number) >= limit:
            scaled = number / scale
            return f"{scaled:.3g}{unit}" if abs(scaled) < 999.5 else f"{scaled:.0f}{unit}"
    return num(int(number) if number.is_integer() else number)


@register.filter
def quantity(value: Any, unit: str) -> str:
    """A value of a metric by the metric's unit, without the unit's name. js/format.js writes the same."""
    known = {"share": percent, "%": percent, "s": seconds, "bytes": size, "bytes/s": rate}
    show: Callable[[Any], str] = known.get(unit, compact)
    return show(value)


@register.filter
def percent(value: Any, digits: int = 1) -> str:
    return "–" if value is None or value == "" else f"{100 * float(value):.{digits}f}\u202f%"


def rate(value: Any) -> str:
    """Bytes a second in the unit that fits."""
    return "–" if value is None or value == "" else f"{size(value)}/s"


@register.filter
def measured(value: Any, unit: str) -> str:
    """A value of a comparison in its unit: share, points or ms."""
    if unit == "share":
        return percent(value)
    return f"{num(value)} ms" if unit == "ms" and value is not None else num(value)


@register.filter
def size(value: Any) -> str:
    """Bytes in binary units."""
    if value is None or value == "":
        return "–"
    number = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return ""


@register.filter
def seconds(value: Any) -> str:
    """A duration given as seconds or timedelta: 820 ms, 12.4 s, 3 min 05 s, 2 h 10 min."""
    if value is None or value == "":
        return "–"
    total = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if total < 1:
        return f"{1000 * total:.0f} ms"
    if total < 60:
        return f"{total:.1f} s"
    whole = round(total)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


@register.simple_tag
def ago(value: datetime | None) -> SafeString | str:
    """A time that js/format.js keeps relative; the absolute time is in the title, and there without JavaScript."""
    if value is None:
        return "–"
    shown = timezone.localtime(value).strftime("%Y-%m-%d %H:%M:%S %Z")
    return format_html('<time data-relative datetime="{}" title="{}">{}</time>', value.isoformat(), shown, shown)


@register.simple_tag
def elapsed(start: datetime | None, end: datetime | None = None) -> SafeString | str:
    """Wall time from `start` to `end`; without an end, js/frame/times.js counts on each second."""
    if start is None:
        return "–"
    if end is not None:
        return seconds(end - start)
    return format_html('<time data-since="{}">{}</time>', start.isoformat(), seconds(timezone.now() - start))


@register.filter
def short(value: Any, length: int = 10) -> str:
    """The start of a digest."""
    text = str(value or "")
    return text.removeprefix("sha256:")[:length] or "–"


@register.filter
def get(mapping: Any, key: str) -> Any:
    """A dictionary's value by a key that is not an identifier (`reward/mean`)."""
    return mapping.get(key) if hasattr(mapping, "get") else None


@register.filter
def at(values: Any, index: int) -> Any:
    """An element of a list by a place that the template counts."""
    return values[index] if index < len(values) else None


@register.filter
def flat(value: Any) -> str:
    """A small value of any shape in one line: lists by commas, mappings as `key value`."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {flat(item)}" for key, item in value.items()) or "–"
    if isinstance(value, list | tuple):
        return ", ".join(flat(item) for item in value) or "–"
    return num(value)


@register.filter
def pretty_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)


@register.simple_tag(takes_context=True)
def url_with(context: template.Context, **changes: Any) -> str:
    """This page's query string with some parameters changed; None removes one."""
    query: QueryDict = context["request"].GET.copy()
    for key, value in changes.items():
        if value is None:
            query.pop(key, None)
        else:
            query[key] = str(value)
    return f"?{query.urlencode()}"


@register.simple_tag
def spark(values: list[float | None] | None, label: str = "") -> SafeString | str:
    """A sparkline of the last values, as SVG with attributes only."""
    points = [v for v in values or [] if v is not None]
    if len(points) < 2:
        return ""
    low, high = min(points), max(points)
    spread = (high - low) or 1.0
    places = [(100 * i / (len(points) - 1), 22 - 20 * (v - low) / spread) for i, v in enumerate(points)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    title = f"{label} from {num(points[0])} to {num(points[-1])}, between {num(low)} and {num(high)}"
    return format_html(
        '<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label="{}">'
        "<title>{}</title>"
        '<polyline points="{}"/></svg>',
        title.strip(),
        title.strip(),
        line,
    )
