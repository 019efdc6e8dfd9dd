from django.urls import path

from composer_web.policies import views

app_name = "policies"
urlpatterns = [
    path("policies/", views.policy_list, name="list"),
    path("policies/<str:name>/", views.policy_detail, name="detail"),
]
