"""Response times of this process, for `/metrics`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware
from prometheus_client import CollectorRegistry, Histogram

registry = CollectorRegistry()
latency = Histogram(
    "opencomposer_http_seconds",
    "Time to the answer, by route",
    ["method", "route", "status"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 10),
    registry=registry,
)


@sync_and_async_middleware
def timing(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Measure every response time; of a stream, the time until its headers."""

    def note(request: HttpRequest, answer: HttpResponse, began: float) -> None:
        found = request.resolver_match
        route = (found.view_name or found.route) if found else "unknown"
        latency.labels(request.method, route, answer.status_code).observe(time.perf_counter() - began)

    def handle(request: HttpRequest) -> HttpResponse:
        began = time.perf_counter()
        answer: HttpResponse = get_response(request)
        note(request, answer, began)
        return answer

    async def handle_async(request: HttpRequest) -> HttpResponse:
        began = time.perf_counter()
        answer: HttpResponse = await get_response(request)
        note(request, answer, began)
        return answer

    return handle_async if iscoroutinefunction(get_response) else handle
