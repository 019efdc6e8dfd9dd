"""`{% curve points "Reward" %}`: a small line chart as SVG, drawn by the server, for pages that are not about one chart."""

from __future__ import annotations

from collections.abc import Sequence

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from composer_web.ui.templatetags.ui import num, percent

register = template.Library()

WIDTH, HEIGHT = 300.0, 90.0
"""Units of the drawing. It is stretched to its place; lines keep their width."""
MARKED = 24
"""Up to this many points each gets a mark: they are measurements apart from each other."""
Point = tuple[int, float]


def place(points: Sequence[Point], low: float, high: float) -> list[tuple[float, float]]:
    """Coordinates in the drawing: steps from left to right, values from bottom to top."""
    first, last = points[0][0], points[-1][0]
    steps, spread = (last - first) or 1, (high - low) or 1.0
    return [(WIDTH * (x - first) / steps, HEIGHT - HEIGHT * (y - low) / spread) for x, y in points]


def bounds(values: Sequence[float], share: bool) -> tuple[float, float]:
    """Lowest and highest value of the axis. A share's axis begins at 0."""
    low, high = min(values), max(values)
    if share:
        return 0.0, min(1.0, max(0.05, high * 1.1))
    margin = 0.08 * ((high - low) or abs(high) or 1.0)
    return low - margin, high + margin


@register.simple_tag
def curve(points: Sequence[Point], label: str, unit: str = "", tone: str = "1") -> SafeString:
    """`unit` "%" shows shares as percentages; `tone` is the number of a series colour."""
    if not points:
        return format_html('<div class="curve curve--empty"><span>{}</span></div>', "No measurement yet")
    share = unit == "%"

    def said(value: float) -> str:
        return percent(value, 0) if share else num(value)

    low, high = bounds([value for _, value in points], share)
    placed = place(points, low, high)
    if len(placed) == 1:
        placed = [(WIDTH / 2, placed[0][1])]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    area = f"{placed[0][0]:.1f},{HEIGHT} {line} {placed[-1][0]:.1f},{HEIGHT}"
    marks = placed if len(placed) <= MARKED else placed[-1:]
    dots = " ".join(f"M{x:.1f} {y:.1f}h0" for x, y in marks)
    said_all = (
        f"{label}: from {said(points[0][1])} at step {points[0][0]} to {said(points[-1][1])} at step {points[-1][0]}"
    )
    return format_html(
        '<div class="curve curve--{}"><span class="curve__top">{}</span><span class="curve__low">{}</span>'
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}"><title>{}</title>'
        '<path class="curve__grid" d="M0 0H{}M0 {}H{}M0 {}H{}"/>'
        '<polygon points="{}"/><polyline points="{}"/><path class="curve__dots" d="{}"/></svg>'
        '<span class="curve__first">step {}</span><span class="curve__last">{}</span></div>',
        tone, said(high), said(low), WIDTH, HEIGHT, said_all, said_all,
        WIDTH, HEIGHT / 2, WIDTH, HEIGHT, WIDTH,
        area, line, dots, points[0][0], points[-1][0] if len(points) > 1 else "",
    )  # fmt: skip
