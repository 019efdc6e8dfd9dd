"""What a quota holds back, on the pages of runs."""

from __future__ import annotations

from typing import Any

from django import template

from composer_web.quotas import gpus, limits

register = template.Library()


@register.simple_tag
def quota_note(run: Any) -> str:
    """Why a quota lets a running run dispatch nothing now, or a queued one wait; empty when none does."""
    if run.state == "queued":
        return gpus.why_waiting(run)
    size = run.config.get("stage", {}).get("group_size")
    return limits.why_held(run, group_size=size) if size else ""
