"""What partials/chart.html needs to know of the runs that its panels draw."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.urls import reverse

from composer_web.runs import feed
from composer_web.runs.models import Run


def charts(runs: Sequence[Run]) -> dict[str, Any]:
    """Where each run's values and events come from; several runs lie over each other."""
    places = [
        {
            "id": run.pk,
            "name": run.name,
            "url": reverse("runs:metrics", args=[run.pk]),
            "marks": reverse("runs:marks", args=[run.pk]),
        }
        for run in runs
    ]
    return {
        "chart_runs": json.dumps(places),
        "chart_topics": " ".join(f"run:{run.pk}" for run in runs),
        "chart_watch": " ".join(str(run.pk) for run in runs) if len(runs) <= feed.MOST else "",
        "overlay": len(runs) > 1,
    }
