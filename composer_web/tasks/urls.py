from django.urls import path

from composer_web.tasks import views

app_name = "tasks"
urlpatterns = [
    path("tasks/controls/run/", views.task_controls, name="controls"),
    path("tasks/", views.task_list, name="list"),
    path("tasks/<slug:slug>/", views.task_detail, name="detail"),
    path("suites/", views.suite_list, name="suites"),
    path("suites/<slug:name>/", views.suite_detail, name="suite"),
    path("suites/<slug:name>/controls/", views.suite_controls, name="suite-controls"),
]
