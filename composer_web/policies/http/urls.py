from django.urls import path

from composer_web.policies.http import endpoint_views, import_views, measuring_views, promotion_views, views

app_name = "policies"
urlpatterns = [
    path("policies/", views.policy_list, name="list"),
    path("policies/import/", import_views.policy_import, name="import"),
    path("policies/imports/", import_views.imports, name="imports"),
    path("policies/endpoints/add/", endpoint_views.endpoint_add, name="endpoint-add"),
    path("policies/<str:name>/preview/", views.policy_preview, name="policy-preview"),
    path("policies/<str:name>/endpoint/", endpoint_views.endpoint_change, name="endpoint-change"),
    path("policies/<str:name>/measure/", measuring_views.measure, name="measure"),
    path("policies/<str:name>/measured/", measuring_views.measured, name="measured"),
    path("measurements/<int:pk>/stop/", measuring_views.measurement_stop, name="measurement-stop"),
    path("policies/<str:name>/", views.policy_detail, name="detail"),
    path("promotion/", promotion_views.promotion_page, name="promotion"),
    path("promotion/preview/", promotion_views.promotion_preview, name="preview"),
    path("promotion/change/", promotion_views.promotion_change, name="promotion-change"),
    path("promotion/gate/", promotion_views.gate_change, name="gate-change"),
]
