"""What partials/chart.html needs to know of the runs that its panels draw."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from composer_web.runs import feed, metrics, panels
from composer_web.runs.models import Run


def further(runs: Sequence[Run]) -> list[panels.Panel]:
    """What the runs have recorded and no headline chart shows."""
    kinds = list(dict.fromkeys(run.kind for run in runs))
    shown = panels.headline(runs[0].kind, runs[0].latest) if len(runs) == 1 else panels.overlaid(kinds)
    return panels.further(shown, kinds, {name for run in runs for name in metrics.names(run)})


def charts(runs: Sequence[Run]) -> dict[str, Any]:
    """A page of charts: where values and events come from, and how many panels more there are."""
    asked = urlencode([("run", run.pk) for run in runs])
    return {**places(runs), "further_count": len(further(runs)), "further_url": f"{reverse('runs:further')}?{asked}"}


def places(runs: Sequence[Run]) -> dict[str, Any]:
    """Where each run's values and events come from; several runs lie over each other."""
    found = [
        {
            "id": run.pk,
            "name": run.name,
            "url": reverse("runs:metrics", args=[run.pk]),
            "marks": reverse("runs:marks", args=[run.pk]),
        }
        for run in runs
    ]
    return {
        "chart_runs": json.dumps(found),
        "chart_topics": " ".join(f"run:{run.pk}" for run in runs),
        "chart_watch": " ".join(str(run.pk) for run in runs) if len(runs) <= feed.MOST else "",
        "overlay": len(runs) > 1,
    }
