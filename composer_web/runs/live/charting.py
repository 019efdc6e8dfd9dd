"""Context of partials/chart.html for the runs that its panels draw."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from composer_web.runs import metrics
from composer_web.runs.charts import comparing, layouts, panels
from composer_web.runs.live import feed
from composer_web.runs.models import Run

BEST_OF_K = ("reward/best_of_k", "eval/best_of_k")
"""Metrics that are averaged over runs of one K only."""


def further(runs: Sequence[Run]) -> list[panels.Panel]:
    """Panels for recorded metrics that no headline chart shows."""
    kinds = list(dict.fromkeys(run.kind for run in runs))
    shown = layouts.panels_of(runs[0]) if len(runs) == 1 else panels.overlaid(kinds)
    return panels.further(shown, kinds, metrics.names(*runs))


def charts(runs: Sequence[Run], groups: Sequence[str] = ()) -> dict[str, Any]:
    """Context of a page of charts: URLs of values and events, and the number of further panels. `groups`: of each run."""
    asked = urlencode([("run", run.pk) for run in runs])
    return {
        **places(runs, groups),
        "further_count": len(further(runs)),
        "further_url": f"{reverse('runs:further')}?{asked}",
    }


def places(runs: Sequence[Run], groups: Sequence[str] = ()) -> dict[str, Any]:
    """URLs of each run's values and events. Several runs share each panel."""
    found = [
        {
            "id": run.pk,
            "name": run.name,
            "url": reverse("runs:metrics", args=[run.pk]),
            "marks": reverse("runs:marks", args=[run.pk]),
            # The list that a press on a step of a chart opens; only rollouts of an RL run are trained in steps.
            "rollouts": reverse("rollouts:of-run", args=[run.pk]) if run.kind == "rl" else "",
            "group": group,
            "best_of": {key: k for key in BEST_OF_K if (k := comparing.best_of(run, key))},
        }
        for run, group in zip(runs, groups or [""] * len(runs), strict=True)
    ]
    return {
        "chart_runs": json.dumps(found),
        "chart_topics": " ".join(f"run:{run.pk}" for run in runs),
        "chart_watch": " ".join(str(run.pk) for run in runs) if len(runs) <= feed.MAX else "",
        "overlay": len(runs) > 1,
    }
