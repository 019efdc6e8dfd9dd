"""A report's blocks as its page shows them: text as HTML, panels with the addresses of their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.safestring import SafeString

from composer_web.runs.charts import comparing, layouts, panels
from composer_web.runs.charts.panels import Panel
from composer_web.runs.live.charting import places
from composer_web.runs.models import Run
from composer_web.runs.reports.blocks import Content, PanelBlock, TextBlock
from composer_web.runs.reports.text import render


@dataclass(frozen=True)
class Drawn:
    """`html` of a text, or `panel` with the context of partials/chart.html."""

    html: SafeString | None = None
    block: PanelBlock | None = None
    panel: Panel | None = None
    chart: Mapping[str, Any] | None = None
    missing: tuple[int, ...] = ()
    """Runs that the project does not have (any more)."""
    group_choices: tuple[str, ...] = ()


def drawn(block: TextBlock | PanelBlock, runs: Mapping[int, Run]) -> Drawn:
    if isinstance(block, TextBlock):
        return Drawn(html=render(block.text))
    mine = [runs[pk] for pk in block.runs if pk in runs]
    missing = tuple(pk for pk in block.runs if pk not in runs)
    if not mine:
        return Drawn(block=block, missing=missing)
    built_in = panels.headline(mine[0].kind, mine[0].latest)
    if len(mine) > 1:
        built_in = panels.overlaid(run.kind for run in mine)
    (panel,) = layouts.shaped([block], built_in)
    choices = comparing.group_choices(mine) if len(mine) > 1 else []
    groups = comparing.groups(mine, block.group) if block.group in choices else ()
    return Drawn(block=block, panel=panel, chart=places(mine, groups), missing=missing, group_choices=tuple(choices))


def all_drawn(content: Content, runs: Mapping[int, Run]) -> list[Drawn]:
    return [drawn(block, runs) for block in content.blocks]
