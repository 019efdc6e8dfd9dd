"""Root of all addresses: the JSON API and the pages of the apps."""

from __future__ import annotations

from django.urls import include, path, re_path

from composer_web.api import views
from composer_web.api_root import api

handler404 = "composer_web.api.views.not_found"

urlpatterns = [
    re_path(r"^(?:evals|sessions)/", views.moved),
    path("api/v1/docs", views.docs, name="api-docs"),
    path("api/v1/", api.urls),
    path("", include("composer_web.accounts.http.urls")),
    path("", include("composer_web.accounts.http.auth_urls")),
    path("", include("composer_web.rollouts.http.urls")),  # before runs, whose `runs/<pk>/<action>/` takes any word
    path("", include("composer_web.runs.http.urls")),
    path("", include("composer_web.studies.http.urls")),
    path("", include("composer_web.review.http.urls")),
    path("", include("composer_web.datasets.http.urls")),
    path("", include("composer_web.tasks.http.urls")),
    path("", include("composer_web.policies.http.urls")),
    path("", include("composer_web.evals.http.urls")),
    path("", include("composer_web.repositories.http.urls")),
    path("", include("composer_web.gateway.http.urls")),
    path("", include("composer_web.alerts.http.urls")),
    path("", include("composer_web.help.urls")),
    path("", include("composer_web.ui.http.urls")),
    path("", include("composer_web.system.urls")),
]
