"""Sign-in URLs under allauth's names, without sign-up, password reset and verification."""

from allauth.account import views as allauth
from django.urls import include, path

from composer_web.accounts.http import views

urlpatterns = [
    path("login/", views.Login.as_view(), name="account_login"),
    path("logout/", views.Logout.as_view(), name="account_logout"),
    path("account/inactive/", allauth.account_inactive, name="account_inactive"),
    path("account/password/", allauth.password_change, name="account_change_password"),
    path("reauthenticate/", allauth.reauthenticate, name="account_reauthenticate"),
    path("2fa/webauthn/reauthenticate/", views.ReauthenticateByKey.as_view(), name="mfa_reauthenticate_webauthn"),
    path("2fa/", include("allauth.mfa.urls")),
    path("account/sessions/", include("allauth.usersessions.urls")),
    path("account/sign-on/", include("allauth.socialaccount.urls")),
    path("", include("allauth.socialaccount.providers.openid_connect.urls")),
]
