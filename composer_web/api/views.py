"""The page that documents the JSON API and lets a person try it."""

from __future__ import annotations

from django.http import HttpResponse
from django.views.decorators.http import require_GET

from composer_web.ops.pages import PageRequest, page, show


@require_GET
@page()
def docs(request: PageRequest) -> HttpResponse:
    """Swagger from the files that django-ninja ships; requests from it carry this page's session and CSRF token."""
    return show(request, "api/docs.html")
