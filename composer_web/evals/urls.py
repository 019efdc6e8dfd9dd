from django.urls import path

from composer_web.evals import views

app_name = "evals"
urlpatterns = [
    path("evals/", views.evaluation_list, name="list"),
    path("evals/<int:pk>/", views.evaluation_detail, name="detail"),
]
