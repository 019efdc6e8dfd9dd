"""Root of all addresses: pages of the apps, the JSON API, and health."""

from __future__ import annotations

from importlib.util import find_spec

from django.urls import include, path

PAGES = ("accounts", "runs", "rollouts", "tasks", "policies", "evals", "repositories", "ops", "live")

urlpatterns = [
    path("", include(f"composer_web.{app}.urls")) for app in PAGES if find_spec(f"composer_web.{app}.urls")
]
