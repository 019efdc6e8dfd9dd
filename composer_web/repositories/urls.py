from django.urls import path

from composer_web.repositories import views

app_name = "repositories"
urlpatterns = [
    path("environments/", views.environment_list, name="list"),
    path("environments/build/", views.environment_build, name="build"),
    path("environments/<int:pk>/", views.environment_detail, name="detail"),
]
