"""The System tab of a run: what its workers use of their machines, where the time goes, which engines serve it."""

from __future__ import annotations

import math

from django.http import HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from composer_web.env import env
from composer_web.runs import selectors
from composer_web.runs.charts import system_metrics
from composer_web.runs.http.tab_views import tab_context
from composer_web.ui.pages import PageRequest, page, show

MAX_KEYS = 60
MAX_BUCKETS = 1000


@require_safe
@page()
def run_system(request: PageRequest, pk: int) -> HttpResponse:
    run = selectors.get_run(pk)
    context = {**tab_context(run, "system", "timing"), **system_metrics.charts(run)}
    return show(request, "runs/system.html", {**context, "usage_days": env().system_metrics_days})


@require_safe
@page()
def run_usage(request: PageRequest, pk: int) -> HttpResponse:
    """Points of some lines for js/chart.js: {series: {key: [{x, min, max, last}]}}, x in seconds since the start."""
    run = selectors.get_run(pk)
    keys = [key for key in request.GET.get("keys", "").split(",") if key][:MAX_KEYS]
    try:
        first, last = (float(request.GET[name]) if name in request.GET else None for name in ("from", "to"))
        count = min(MAX_BUCKETS, max(1, int(request.GET.get("buckets", 240))))
        if not all(edge is None or math.isfinite(edge) for edge in (first, last)):
            raise ValueError("not finite")
    except ValueError:
        message = "from and to are seconds since the start of the run, buckets is a whole number"
        return JsonResponse({"error": {"code": "invalid", "message": message}}, status=422)
    return JsonResponse({"series": system_metrics.points(run, keys, count=count, first=first, last=last)})
