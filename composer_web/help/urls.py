from django.urls import path

from composer_web.help import views

app_name = "help"
urlpatterns = [
    path("help/", views.help_page, {"page": ""}, name="index"),
    path("help/<path:page>", views.help_page, name="page"),
]
