"""The handler of pages: one thread per request, and the event loop for what is asynchronous."""

from __future__ import annotations

import threading

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import path
from httpx import ASGITransport, AsyncClient

from composer_web.core.network.one_thread import OneThreadHandler

seen: list[str] = []


def first(get_response):
    def handle(request: HttpRequest) -> HttpResponse:
        seen.append(threading.current_thread().name)
        return get_response(request)

    return handle


def plain(request: HttpRequest) -> HttpResponse:
    seen.append(threading.current_thread().name)
    return HttpResponse("plain")


async def slow(request: HttpRequest) -> HttpResponse:
    seen.append(threading.current_thread().name)
    return HttpResponse("slow")


urlpatterns = [path("plain", plain), path("slow", slow)]


async def answer(address: str) -> str:
    seen.clear()
    with override_settings(
        ROOT_URLCONF=__name__,
        MIDDLEWARE=["composer_web.core.network.latency.timing", f"{__name__}.first", f"{__name__}.first"],
        ALLOWED_HOSTS=["*"],
    ):
        async with AsyncClient(transport=ASGITransport(OneThreadHandler()), base_url="http://here") as client:
            return (await client.get(address)).text


@pytest.mark.asyncio
async def test_middlewares_and_view_run_in_one_thread_that_is_not_the_loops() -> None:
    assert await answer("/plain") == "plain"
    assert len(seen) == 3 and len(set(seen)) == 1 and seen[0] != threading.current_thread().name


@pytest.mark.asyncio
async def test_an_asynchronous_view_runs_on_the_event_loop() -> None:
    assert await answer("/slow") == "slow"
    assert seen[-1] == threading.current_thread().name
