"""Inputs and choices of forms as HTML without a template each: Django includes one for every option and again for its
attributes, which made the filters of a list cost as much as its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.forms.renderers import DjangoTemplates
from django.http import HttpRequest
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString

Widget = Mapping[str, Any]
FOLDER = "django/forms/widgets/"
INPUTS = ("checkbox", "date", "email", "hidden", "number", "password", "search", "text", "time", "url")
"""Templates of Django that are its `input.html`."""


def _input(widget: Widget) -> str:
    value = widget["value"]
    given = "" if value is None else f' value="{_text(value)}"'
    return f'<input type="{widget["type"]}" name="{_text(widget["name"])}"{given}{_attributes(widget)}>'


def _select(widget: Widget) -> str:
    parts = []
    for name, options, _ in widget["optgroups"]:
        inside = "".join(map(_option, options))
        parts.append(f'\n  <optgroup label="{_text(name)}">{inside}\n  </optgroup>' if name else inside)
    return f'<select name="{_text(widget["name"])}"{_attributes(widget)}>{"".join(parts)}\n</select>'


def _option(widget: Widget) -> str:
    return f'\n  <option value="{_text(widget["value"])}"{_attributes(widget)}>{_text(widget["label"])}</option>'


def _attributes(widget: Widget) -> str:
    return "".join(
        f" {_text(name)}" if value is True else f' {_text(name)}="{_text(value)}"'
        for name, value in widget["attrs"].items()
        if value is not False
    )


def _text(value: Any) -> str:
    return conditional_escape(value if isinstance(value, str) else str(value))


PLAIN: dict[str, Callable[[Widget], str]] = {
    **{f"{FOLDER}{name}.html": _input for name in INPUTS},
    f"{FOLDER}select.html": _select,
}


class Renderer(DjangoTemplates):
    """Django's own renderer but for PLAIN, whose output is the same."""

    def render(self, template_name: str, context: dict[str, Any], request: HttpRequest | None = None) -> str:
        draw = PLAIN.get(template_name)
        return SafeString(draw(context["widget"])) if draw else super().render(template_name, context, request)
