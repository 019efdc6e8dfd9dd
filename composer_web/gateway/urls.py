from django.urls import path

from composer_web.gateway import chat

app_name = "gateway"
urlpatterns = [
    path("v1/chat/completions", chat.chat_completions, name="chat"),
    path("v1/models", chat.model_list, name="models"),
    path("v1/models/<str:name>", chat.model_detail, name="model"),
]
