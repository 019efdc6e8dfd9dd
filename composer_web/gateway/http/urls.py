from django.urls import path

from composer_web.gateway.http import views
from composer_web.gateway.serving import chat

app_name = "gateway"
urlpatterns = [
    path("v1/chat/completions", chat.chat_completions, name="chat"),
    path("v1/models", chat.model_list, name="models"),
    path("v1/models/<str:name>", chat.model_detail, name="model"),
    path("gateway/sessions/", views.session_list, name="sessions"),
    path("gateway/sessions/<int:pk>/", views.session_detail, name="session"),
    path("gateway/sessions/<int:pk>/download.<slug:form>", views.session_download, name="download"),
    path("gateway/sessions/<int:pk>/drafts/", views.create_draft, name="create-draft"),
    path("gateway/sessions/<int:pk>/delete/", views.session_delete, name="delete"),
    path("gateway/settings/", views.settings_page, name="settings"),
    path("gateway/settings/change/", views.settings_change, name="settings-change"),
    path("gateway/erase/", views.erase, name="erase"),
]
