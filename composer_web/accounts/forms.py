"""Forms of accounts."""

from __future__ import annotations

from django import forms
from django.contrib.auth.forms import AuthenticationForm

from composer_web.accounts.models import User
from composer_web.accounts.services import MAX_DAYS, SCOPES


class LoginForm(AuthenticationForm):
    error_messages = {
        "invalid_login": "User name or password is wrong.",
        "inactive": "This account is switched off; ask an admin.",
    }


class TokenForm(forms.Form):
    name = forms.CharField(max_length=80, label="Name", help_text="Where it is used, for example nightly-eval")
    days = forms.IntegerField(
        min_value=1, max_value=MAX_DAYS, initial=90, label="Days", help_text=f"Until it expires; at most {MAX_DAYS}"
    )
    scopes = forms.MultipleChoiceField(
        label="Scopes", help_text="What it may do; never more than you may", widget=forms.CheckboxSelectMultiple
    )

    def __init__(self, *args: object, user: User, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        words = {
            "gateway": "use the gateway",
            "read": "read everything",
            "review": "review and curate",
            "operate": "start and stop runs",
            "admin": "manage people",
        }
        self.fields["scopes"].choices = [(s, f"{s}: {words[s]}") for s, role in SCOPES.items() if user.may(role)]  # type: ignore[attr-defined]
        self.fields["scopes"].initial = ["read"]
