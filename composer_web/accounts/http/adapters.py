"""allauth adapters: sign-up is disabled, OIDC claims determine the role, and secrets of second factors are encrypted in
the database."""

from __future__ import annotations

import secrets
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialLogin
from django.db import transaction
from django.http import HttpRequest
from django.shortcuts import render

from composer_web.accounts.models import Role, User
from composer_web.accounts.people import follow_provider
from composer_web.accounts.services import audit
from composer_web.core.encryption import Unreadable, seal, unseal
from composer_web.env import env

PURPOSE = b"second factors"
MFA_LABEL = "OpenComposer"


class AccountAdapter(DefaultAccountAdapter):
    """An admin creates password accounts."""

    error_messages = {
        **DefaultAccountAdapter.error_messages,
        "username_password_mismatch": "User name or password is wrong.",
        "too_many_login_attempts": "Too many attempts with a wrong password. Wait five minutes, then try again.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False


class MFAAdapter(DefaultMFAAdapter):
    """Encrypts secrets of second factors, and sets the names that security keys display."""

    error_messages = {
        **DefaultMFAAdapter.error_messages,
        "incorrect_code": "The code or key is wrong or was used already; try again with the next code, or your own key.",
    }

    def encrypt(self, text: str) -> str:
        return seal(text, purpose=PURPOSE)

    def decrypt(self, encrypted_text: str) -> str:
        found = unseal(encrypted_text, purpose=PURPOSE)
        if found is None:
            raise Unreadable("there is no secret; remove the second factor and set it up again")
        return found.get_secret_value()

    def get_totp_issuer(self) -> str:
        return MFA_LABEL

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        """Keys are bound to the host in use. A key for the public host does not work at another."""
        return {**super().get_public_key_credential_rp_entity(), "name": MFA_LABEL}

    def generate_authenticator_name(self, user: User, type: str) -> str:  # the argument's name is allauth's
        number = Authenticator.objects.filter(user=user, type=type).count() + 1
        return "Security key" if number == 1 else f"Security key {number}"


class OIDCAdapter(DefaultSocialAccountAdapter):
    """Sign-in by OpenID Connect, limited to users that the installation names."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return bool(role_of(_claims(sociallogin)))

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return True  # a form would let people choose a name that is not theirs

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Reject a user who is no longer named. Update the role of a user whose group changed."""
        claims = _claims(sociallogin)
        role = role_of(claims)
        if sociallogin.state.get("process") == "connect":
            return
        if not role:
            text = "Your account there is known, but nothing says that it may use OpenComposer. Ask an admin."
            answer = render(request, "accounts/refused.html", {"problem": text}, status=403)
            raise ImmediateHttpResponse(answer)
        user = sociallogin.user
        if sociallogin.is_existing and _by_group(claims):
            follow_provider(user=user, role=role)

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        role = role_of(_claims(sociallogin))
        assert role, "is_open_for_signup asked the same"
        with transaction.atomic():
            sociallogin.user.role = role
            user: User = super().save_user(request, sociallogin, form)
            audit(
                actor=None, action="user.create", target=f"user:{user.pk}", username=user.username, role=role, by="OIDC"
            )
        return user

    def populate_user(self, request: HttpRequest, sociallogin: SocialLogin, data: dict[str, Any]) -> Any:
        user = super().populate_user(request, sociallogin, data)
        if User.objects.filter(username=user.username).exists():  # never the account of somebody else
            user.username = f"{user.username[:120]}-{secrets.token_hex(3)}"
        return user


def _claims(sociallogin: SocialLogin) -> dict[str, Any]:
    """The provider's claims about the user. The signed token takes precedence."""
    data = sociallogin.account.extra_data or {}
    return {**(data.get("userinfo") or {}), **(data.get("id_token") or {})}


def _by_group(claims: dict[str, Any]) -> str:
    """Highest role granted by the user's groups. Empty for none."""
    given = claims.get(env().oidc_claim, [])
    groups = {given} if isinstance(given, str) else {str(group) for group in given or []}
    pairs = [pair.strip().rpartition("=") for pair in env().oidc_roles.split(",") if pair.strip()]
    roles = [role for group, _, role in pairs if group in groups]
    return max(roles, key=Role.values.index, default="")


def role_of(claims: dict[str, Any]) -> str:
    """Role for these claims. Empty if the user may not sign in."""
    if role := _by_group(claims):
        return role
    domain = str(claims.get("email", "")).rpartition("@")[2].lower()
    named = {name.strip().lower() for name in env().oidc_domains.split(",") if name.strip()}
    return str(Role.VIEWER) if domain in named and claims.get("email_verified") is True else ""
