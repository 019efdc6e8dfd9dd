from django.urls import path

from composer_web.tasks import exchange_views, views

app_name = "tasks"
urlpatterns = [
    path("tasks/controls/run/", views.task_controls, name="controls"),
    path("generators/", exchange_views.generator_list, name="generators"),
    path("generators/run/", exchange_views.generator_run, name="generate"),
    path("suites/import/", exchange_views.suite_import, name="suite-import"),
    path("tasks/<slug:slug>/export/<slug:form>/", exchange_views.task_export, name="export"),
    path("suites/<slug:name>/export/<slug:form>/", exchange_views.suite_export, name="suite-export"),
    path("tasks/", views.task_list, name="list"),
    path("tasks/<slug:slug>/", views.task_detail, name="detail"),
    path("suites/", views.suite_list, name="suites"),
    path("suites/<slug:name>/", views.suite_detail, name="suite"),
    path("suites/<slug:name>/controls/", views.suite_controls, name="suite-controls"),
]
