from django.urls import path

from composer_web.datasets.http import views

app_name = "datasets"
urlpatterns = [
    path("datasets/", views.dataset_list, name="list"),
    path("datasets/new/", views.dataset_new, name="new"),
    path("datasets/<int:pk>/", views.dataset, name="detail"),
    path("datasets/<int:pk>/remove/", views.dataset_remove, name="remove"),
]
