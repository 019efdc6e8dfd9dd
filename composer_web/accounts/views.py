"""Log-in and API tokens."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import views as auth
from django.http import Http404, HttpResponse
from django.views.decorators.http import require_POST

from composer_web.accounts import services
from composer_web.accounts.forms import LoginForm, TokenForm
from composer_web.ops.errors import UserError
from composer_web.ops.pages import PageRequest, act, page, show


class Login(auth.LoginView):
    template_name = "accounts/login.html"
    authentication_form = LoginForm
    redirect_authenticated_user = True


class Logout(auth.LogoutView):
    http_method_names = ["post"]


@page()
def tokens(request: PageRequest) -> HttpResponse:
    """One's own tokens; a new token's secret is in this one answer only."""
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
    answer = show(request, "accounts/tokens.html", {"form": form, "tokens": user.tokens.all(), "new_token": secret})
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
