from django.urls import path

from composer_web.ui.http import views

app_name = "ui"
urlpatterns = [
    path("views/", views.view_save, name="view-save"),
    path("views/<int:pk>/delete/", views.view_delete, name="view-delete"),
]
