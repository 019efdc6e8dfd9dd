from django.urls import path

from composer_web.rollouts import views

app_name = "rollouts"
urlpatterns = [
    path("rollouts/", views.rollout_list, name="list"),
    path("rollouts/<int:pk>/", views.rollout_detail, name="detail"),
    path("rollouts/<int:pk>/tokens/", views.rollout_tokens, name="tokens"),
    path("rollouts/<int:pk>/download/", views.rollout_download, name="download"),
]
