"""The page that documents the JSON API, and what is said where there is nothing or nothing can be stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.db import DataError
from django.http import HttpRequest, HttpResponse, HttpResponsePermanentRedirect, JsonResponse
from django.utils.decorators import sync_and_async_middleware
from django.views.decorators.http import require_safe
from django.views.defaults import page_not_found

from composer_web.ui.pages import PageRequest, page, show


@require_safe
@page()
def docs(request: PageRequest) -> HttpResponse:
    """Swagger from the files that django-ninja ships; requests from it carry this page's session and CSRF token."""
    return show(request, "api/docs.html")


def moved(request: HttpRequest) -> HttpResponse:
    """Redirect the page addresses of release 0.1: `/evals/`, and `/sessions/` with its settings. Removed after release 0.2."""
    noun, _, rest = request.get_full_path().removeprefix("/").partition("/")
    apart = rest.startswith(("settings/", "erase/"))
    target = "/evaluations/" if noun == "evals" else "/gateway/" if apart else "/gateway/sessions/"
    return HttpResponsePermanentRedirect(f"{target}{rest}", preserve_request=True)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """`handler404`: below the API's address a program asks, so the answer is JSON there."""
    if not request.path.startswith("/api/"):
        return page_not_found(request, exception)
    body = {"code": "not_found", "message": "there is nothing at this address", "field": "", "fields": {}}
    return JsonResponse({"error": body}, status=404)


def not_allowed(request: HttpRequest, answer: HttpResponse) -> HttpResponse:
    """A 405 of the API in the shape of its other errors."""
    if answer.status_code != 405 or not request.path.startswith("/api/"):
        return answer
    message = f"this address does not take {request.method}; it takes {answer['Allow']}"
    body = {"code": "method_not_allowed", "message": message, "field": "", "fields": {}}
    return JsonResponse({"error": body}, status=405, headers={"Allow": answer["Allow"]})


def unstorable(request: HttpRequest, error: Exception) -> HttpResponse | None:
    """What Postgres can hold under no name (a NUL, a number without end) is not there: no fault of the server."""
    return not_found(request, error) if isinstance(error, DataError) else None


@sync_and_async_middleware
def unstorable_middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Pages for which a value of the address or of a form cannot be stored. (The API has its own errors, but for methods
    that an address does not take.)"""

    def handle(request: HttpRequest) -> HttpResponse:
        answer: HttpResponse = get_response(request)
        return not_allowed(request, answer)

    async def handle_async(request: HttpRequest) -> HttpResponse:
        answer: HttpResponse = await get_response(request)
        return not_allowed(request, answer)

    chosen: Any = handle_async if iscoroutinefunction(get_response) else handle
    chosen.process_exception = unstorable
    return chosen
