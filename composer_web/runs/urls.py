from django.urls import path

from composer_web.runs import form_views, views

app_name = "runs"
urlpatterns = [
    path("runs/", views.run_list, name="list"),
    path("runs/new/", form_views.run_new, name="new"),
    path("runs/new/check/", form_views.run_check, name="check"),
    path("runs/compare/", views.run_compare, name="compare"),
    path("runs/bulk/<slug:action>/", views.run_bulk, name="bulk"),
    path("runs/<int:pk>/", views.run_detail, name="detail"),
    path("runs/<int:pk>/part/<slug:part>/", views.run_part, name="part"),
    path("runs/<int:pk>/metrics/", views.run_metrics, name="metrics"),
    path("runs/<int:pk>/<slug:action>/", views.run_action, name="action"),
]
