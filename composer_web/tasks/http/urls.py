from django.urls import path

from composer_web.tasks.http import admission_views, curation_views, exchange_views, import_views, views

app_name = "tasks"
urlpatterns = [
    path("tasks/facets/", curation_views.task_facets, name="facets"),
    path("tasks/review/", curation_views.review, name="review"),
    path("tasks/review/<slug:slug>/", curation_views.review_task, name="review-task"),
    path("tasks/review/<slug:slug>/<slug:action>/", curation_views.review_submit, name="review-submit"),
    path("tasks/bulk/", curation_views.bulk, name="bulk"),
    path("tasks/undo/", curation_views.undo, name="undo"),
    path("tasks/changes/", curation_views.changes, name="changes"),
    path("tasks/disagreements/", curation_views.disagreements, name="disagreements"),
    path("tasks/<slug:slug>/preview/", views.task_preview, name="preview"),
    path("tasks/<slug:slug>/compare/", curation_views.compare, name="compare"),
    path("suites/open/", curation_views.suite_open, name="suite-open"),
    path("tasks/controls/run/", views.task_controls, name="controls"),
    path("generators/", exchange_views.generator_list, name="generators"),
    path("generators/run/", exchange_views.generator_run, name="generate"),
    path("generators/jobs/<int:pk>/stop/", exchange_views.generation_stop, name="generation-stop"),
    path("imports/", import_views.imports, name="imports"),
    path("imports/tasks/", import_views.import_tasks, name="import-tasks"),
    path("imports/trajectory/", import_views.import_trajectory, name="import-trajectory"),
    path("imports/<slug:name>/", import_views.trajectory, name="trajectory"),
    path("suites/<slug:name>/preview/", views.suite_preview, name="suite-preview"),
    path("suites/<slug:name>/difficulty/", import_views.suite_difficulty, name="suite-difficulty"),
    path("suites/<slug:name>/prepass/", import_views.suite_prepass, name="suite-prepass"),
    path("tasks/<slug:slug>/export/<slug:form>/", exchange_views.task_export, name="export"),
    path("suites/<slug:name>/export/<slug:form>/", exchange_views.suite_export, name="suite-export"),
    path("tasks/", views.task_list, name="list"),
    path("tasks/<slug:slug>/", views.task_detail, name="detail"),
    path("suites/", views.suite_list, name="suites"),
    path("suites/<slug:name>/", views.suite_detail, name="suite"),
    path("suites/<slug:name>/admit/<slug:action>/", admission_views.suite_admit, name="suite-admit"),
    path("suites/<slug:name>/controls/", views.suite_controls, name="suite-controls"),
]
