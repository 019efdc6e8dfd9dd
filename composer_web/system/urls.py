from django.urls import path

from composer_web.quotas.http import views as quota_views
from composer_web.system import fidelity_views, prometheus, search_views, views

app_name = "ops"
urlpatterns = [
    path("", views.home, name="home"),
    path("failures/", views.failures, name="failures"),
    path("hardware/", views.hardware, name="hardware"),
    path("sample/", views.sample, name="sample"),
    path("search/", search_views.search, name="search"),
    path("metrics", prometheus.metrics, name="metrics"),
    path("system/", views.system, name="system"),
    path("system/reconcile/", views.reconcile, name="reconcile"),
    path("system/quotas/", quota_views.quota_list, name="quotas"),
    path("system/fidelity/", fidelity_views.fidelity_page, name="fidelity"),
    path("system/fidelity/measure/", fidelity_views.fidelity_measure, name="fidelity-measure"),
]
