"""`{% run_presets as presets %}`: presets to start a run from, on pages below the launch form."""

from __future__ import annotations

from django import template

from composer_web.runs.launch.presets import PRESETS, Preset

register = template.Library()


@register.simple_tag
def run_presets() -> tuple[Preset, ...]:
    return PRESETS
