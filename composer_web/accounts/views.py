"""Views of log-in and API tokens."""

from __future__ import annotations

from typing import Any

from allauth.account.views import LoginView as AllauthLoginView
from allauth.mfa.webauthn.views import ReauthenticateWebAuthnView
from django.contrib import messages
from django.contrib.auth import views as auth
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST
from redis.exceptions import RedisError

from composer_web.accounts import services
from composer_web.accounts.forms import TokenForm
from composer_web.core.errors import UserError
from composer_web.env import env
from composer_web.ui.pages import PageRequest, act, page, show


class Login(AllauthLoginView):
    """Log-in by password, then by a second factor if set up, or through the OIDC provider."""

    template_name = "accounts/login.html"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return super().dispatch(request, *args, **kwargs)
        except RedisError:
            problem = (
                "Attempts are counted by the broker, which does not answer. Try again in a moment, or look at its log."
            )
            return render(request, "accounts/refused.html", {"problem": problem}, status=503)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        found: dict[str, Any] = super().get_context_data(**kwargs)
        return {**found, "oidc_name": env().oidc_name if env().oidc_issuer else ""}


class Logout(auth.LogoutView):
    http_method_names = ["post"]


class ReauthenticateByKey(ReauthenticateWebAuthnView):
    """Repeats the request for a rejected key on the same page."""

    def form_invalid(self, form: Any) -> HttpResponse:
        for problem in form.errors.get("credential", []):
            messages.error(self.request, problem)
        return redirect(self.passthrough_next_url(self.request.path))


@page()
def tokens(request: PageRequest) -> HttpResponse:
    """The user's tokens. The secret of a new token appears in this response only."""
    user = request.user
    secret = ""
    form = TokenForm(request.POST or None, user=user)
    if request.method == "POST" and form.is_valid():
        try:
            token, secret = services.create_token(user=user, **form.cleaned_data)
        except UserError as error:
            form.add_error(error.field if error.field in form.fields else None, str(error))
        else:
            messages.success(request, f"Token “{token.name}” is made.")
            form = TokenForm(user=user)
    shown = {"form": form, "tokens": user.tokens.select_related("project"), "new_token": secret}
    answer = show(request, "accounts/tokens.html", shown)
    answer["Cache-Control"] = "no-store"
    return answer


@require_POST
@page()
def revoke(request: PageRequest, pk: int) -> HttpResponse:
    token = request.user.tokens.filter(pk=pk).first()
    if token is None:
        raise Http404("you have no such token")
    return act(
        request,
        lambda: services.revoke_token(token=token, by=request.user),
        done=f"Token “{token.name}” is revoked.",
        to="accounts:tokens",
    )
