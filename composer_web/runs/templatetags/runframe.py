"""`{% run_frame run "rollouts" %}`: name, state, actions and tabs of a run above each page that belongs to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import template
from django.urls import reverse

from composer_web.runs import selectors
from composer_web.runs.live import parts
from composer_web.runs.models import Run

register = template.Library()


@dataclass(frozen=True)
class Tab:
    name: str
    label: str
    icon: str
    url: str


TABS: tuple[tuple[str, str, str, str], ...] = (
    ("overview", "Overview", "gauge", "runs:detail"),
    ("charts", "Charts", "chart-line", "runs:charts"),
    ("rollouts", "Rollouts", "list-tree", "rollouts:of-run"),
    ("evals", "Evals", "flask-conical", "runs:evals"),
    ("config", "Config", "sliders-horizontal", "runs:config"),
    ("logs", "Logs", "scroll-text", "runs:logs"),
    ("system", "System", "cpu", "runs:system"),
)
"""Name, label, icon and page of each tab, in their order."""
OF_RL = ("rollouts",)
"""Tabs that only an RL run has."""


def tabs(run: Run) -> list[Tab]:
    return [
        Tab(name, label, icon, reverse(page, args=[run.pk]))
        for name, label, icon, page in TABS
        if run.kind == "rl" or name not in OF_RL
    ]


def tab_page(name: str) -> str:
    """Name of the page of a tab; that of the overview for an unknown one."""
    return next((page for tab, _, _, page in TABS if tab == name), "runs:detail")


@register.inclusion_tag("runs/_frame.html", takes_context=True)
def run_frame(context: template.Context, run: Run, tab: str, *, deep: bool = False) -> dict[str, Any]:
    """The frame with `tab` marked. `deep`: the page below has a title of its own, such as a rollout's."""
    whole = selectors.get_run(run.pk) if deep else run
    return {
        "request": context["request"],
        "csrf_token": context.get("csrf_token"),
        "may_operate": context.get("may_operate"),
        "run": whole,
        "tabs": tabs(whole),
        "tab": tab,
        "deep": deep,
        **parts.PARTS["head"](whole),
    }
