"""Root of all addresses: the JSON API and the pages of the apps."""

from __future__ import annotations

from django.urls import include, path

from composer_web.api import views
from composer_web.api_root import api

handler404 = "composer_web.api.views.not_found"

urlpatterns = [
    path("api/v1/docs", views.docs, name="api-docs"),
    path("api/v1/", api.urls),
    path("", include("composer_web.accounts.urls")),
    path("", include("composer_web.accounts.auth_urls")),
    path("", include("composer_web.runs.urls")),
    path("", include("composer_web.rollouts.urls")),
    path("", include("composer_web.review.urls")),
    path("", include("composer_web.datasets.urls")),
    path("", include("composer_web.tasks.urls")),
    path("", include("composer_web.policies.urls")),
    path("", include("composer_web.evals.urls")),
    path("", include("composer_web.repositories.urls")),
    path("", include("composer_web.gateway.urls")),
    path("", include("composer_web.alerts.urls")),
    path("", include("composer_web.system.urls")),
]
