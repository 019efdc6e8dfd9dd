from django.urls import path, re_path

from composer_web.gateway.http import views
from composer_web.gateway.serving import chat

app_name = "gateway"
urlpatterns = [
    path("v1/chat/completions", chat.chat_completions, name="chat"),
    path("v1/models", chat.model_list, name="models"),
    path("v1/models/<str:name>", chat.model_detail, name="model"),
    path("sessions/", views.session_list, name="sessions"),
    path("sessions/<int:pk>/", views.session_detail, name="session"),
    re_path(r"^sessions/(?P<pk>\d+)/download\.(?P<form>jsonl|atif)$", views.session_download, name="download"),
    path("sessions/<int:pk>/promote/", views.session_promote, name="promote"),
    path("sessions/<int:pk>/delete/", views.session_delete, name="delete"),
    path("sessions/settings/", views.settings_page, name="settings"),
    path("sessions/settings/change/", views.settings_change, name="settings-change"),
    path("sessions/erase/", views.erase, name="erase"),
]
