"""The pages of failures, as the server makes them: none of them can be asked for by an address."""

from __future__ import annotations

import os

import django
from django.apps import apps


def rendered(template: str) -> str:
    if not apps.ready:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "composer_web.settings")
        django.setup()
    from django.contrib.auth.models import AnonymousUser
    from django.template.loader import render_to_string
    from django.test import RequestFactory

    request = RequestFactory().get("/")
    request.user = AnonymousUser()
    return render_to_string(template, request=request)
