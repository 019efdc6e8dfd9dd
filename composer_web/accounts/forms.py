"""Forms of accounts."""

from __future__ import annotations

from allauth.account.forms import LoginForm as AllauthLoginForm
from django import forms
from django.http import QueryDict

from composer_web.accounts.models import Role, User
from composer_web.accounts.permissions import reach
from composer_web.accounts.services import MAX_DAYS, SCOPES


class LoginForm(AllauthLoginForm):
    """The user name is posted as `username`."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        data = kwargs.get("data")
        if isinstance(data, QueryDict):
            data = data.copy()
            data["login"] = data.get("username", "")
            kwargs["data"] = data
        super().__init__(*args, **kwargs)


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
            "metrics": "let Prometheus read /metrics",
            "gateway": "use the gateway",
            "read": "read everything",
            "review": "review and curate",
            "operate": "start and stop runs",
            "admin": "manage people",
        }
        places = reach(user)
        order = Role.values.index
        widest = max({user.role, *(place["role"] for place in places)}, key=order)
        allowed = [(s, f"{s}: {words[s]}") for s, role in SCOPES.items() if order(role) <= order(widest)]
        self.fields["scopes"].choices = allowed  # type: ignore[attr-defined]
        if len(places) > 1:
            names = [("", "all of yours"), *((place["slug"], place["name"]) for place in places)]
            self.fields["project"] = forms.ChoiceField(choices=names, required=False, label="Project")
        self.fields["scopes"].initial = ["read"]
