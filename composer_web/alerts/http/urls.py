from django.urls import path

from composer_web.alerts.http import views

app_name = "alerts"
urlpatterns = [
    path("alerts/", views.alert_list, name="list"),
    path("alerts/rules/", views.rule_list, name="rules"),
    path("alerts/rules/<int:pk>/", views.rule_edit, name="rule-edit"),
    path("alerts/rules/<int:pk>/<slug:action>/", views.rule_change, name="rule-change"),
    path("alerts/webhooks/", views.webhook_list, name="webhooks"),
    path("alerts/webhooks/<int:pk>/", views.webhook_edit, name="webhook-edit"),
    path("alerts/webhooks/<int:pk>/<slug:action>/", views.webhook_change, name="webhook-change"),
    path("alerts/deliveries/", views.delivery_list, name="deliveries"),
    path("alerts/deliveries/<int:pk>/repeat/", views.delivery_repeat, name="delivery-repeat"),
    path("notifications/", views.notice_list, name="notices"),
    path("notifications/read/", views.notice_read, name="read-all"),
    path("notifications/<int:pk>/read/", views.notice_read, name="read"),
]
