"""ASGI handler of pages and the API: one change of threads per request.

Django's own handler runs the hooks of each middleware in a thread and goes back to the event loop in between. With the
middlewares of this product that is about twenty changes, and each waits for the interpreter's lock: next to a thread
that computes, a page took a dozen times longer than its own work.
"""

from __future__ import annotations

import django
from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest
from django.http.response import HttpResponseBase


class OneThreadHandler(ASGIHandler):
    """Runs middlewares and view in the request's thread. An asynchronous view still runs on the event loop."""

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        return await sync_to_async(self.get_response, thread_sensitive=True)(request)


def application() -> OneThreadHandler:
    """Django's, set up."""
    django.setup(set_prefix=False)
    return OneThreadHandler()
