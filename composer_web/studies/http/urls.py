from django.urls import path

from composer_web.studies.http import views

app_name = "studies"
urlpatterns = [
    path("runs/studies/", views.study_list, name="list"),
    path("runs/studies/new/", views.study_new, name="new"),
    path("runs/studies/<int:pk>/", views.study_detail, name="detail"),
    path("runs/studies/<int:pk>/stop/", views.study_stop, name="stop"),
]
