from django.urls import path

from composer_web.ops import views

app_name = "ops"
urlpatterns = [
    path("", views.home, name="home"),
    path("system/", views.system, name="system"),
    path("system/reconcile/", views.reconcile, name="reconcile"),
]
