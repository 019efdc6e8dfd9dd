from django.urls import path

from composer_web.repositories.http import views

app_name = "repositories"
urlpatterns = [
    path("environments/", views.environment_list, name="list"),
    path("environments/build/", views.environment_build, name="build"),
    path("environments/new/", views.repository_new, name="new"),
    path("environments/<int:pk>/", views.environment_detail, name="detail"),
    path("environments/<int:pk>/again/", views.environment_again, name="again"),
    path("environments/<int:pk>/cancel/", views.environment_cancel, name="cancel"),
]
