from django.urls import path

from composer_web.accounts import audit_views, views

app_name = "accounts"
urlpatterns = [
    path("login/", views.Login.as_view(), name="login"),
    path("logout/", views.Logout.as_view(), name="logout"),
    path("tokens/", views.tokens, name="tokens"),
    path("tokens/<int:pk>/revoke/", views.revoke, name="token-revoke"),
    path("audit/", audit_views.audit_log, name="audit"),
    path("audit/export.csv", audit_views.audit_csv, name="audit-csv"),
]
