"""Numbers in a submitted form. An invalid number raises a UserError naming the field."""

from __future__ import annotations

import math

from django.http import HttpRequest

from composer_web.core.errors import UserError


def number(request: HttpRequest, name: str, default: float | None = None) -> float:
    """Raises UserError; also for an empty field without a `default`."""
    text = request.POST.get(name, "").strip()
    if not text and default is not None:
        return float(default)
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise UserError(name, f"{name} is a number, not {text[:40]!r}")
    return found


def whole(request: HttpRequest, name: str, default: int | None = None) -> int:
    found = number(request, name, default)
    if not found.is_integer():
        raise UserError(name, f"{name} is a whole number, not {found:g}")
    return int(found)


def optional_number(request: HttpRequest, name: str) -> float | None:
    """None for an empty field."""
    return number(request, name) if request.POST.get(name, "").strip() else None


def optional_whole(request: HttpRequest, name: str) -> int | None:
    return whole(request, name) if request.POST.get(name, "").strip() else None
