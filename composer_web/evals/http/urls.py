from django.urls import path

from composer_web.evals.http import bulk_views, comparing_views, release_views, starting_views, views

app_name = "evals"
urlpatterns = [
    path("evaluations/", views.evaluation_list, name="list"),
    path("evaluations/<int:pk>/", views.evaluation_detail, name="detail"),
    path("evaluations/<int:pk>/preview/", views.evaluation_preview, name="preview"),
    path("evaluations/bulk/<slug:action>/", bulk_views.evaluation_bulk, name="bulk"),
    path("evaluations/<int:pk>/download/", views.evaluation_log, name="log"),
    path("evaluations/<int:pk>/grade/", comparing_views.evaluation_grade, name="grade"),
    path("evaluations/<int:pk>/cancel/", starting_views.evaluation_cancel, name="cancel"),
    path("policies/<str:name>/evaluate/", starting_views.evaluation_start, name="start"),
    path("evaluations/compare/", comparing_views.evaluation_compare, name="compare"),
    path("evaluations/tasks/<slug:slug>/", comparing_views.task_history, name="task"),
    path("evaluations/releases/", release_views.release_list, name="releases"),
    path("evaluations/releases/publish/", release_views.release_publish, name="publish"),
    path("evaluations/releases/<slug:benchmark>/<int:number>/", release_views.release_detail, name="release"),
    path("evaluations/releases/<slug:benchmark>/<int:number>/run/", release_views.release_run, name="release-run"),
    path(
        "evaluations/releases/<slug:benchmark>/<int:number>/check/", release_views.release_check, name="release-check"
    ),
]
