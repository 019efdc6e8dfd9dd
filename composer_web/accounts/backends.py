"""Authentication backend that loads the user's project memberships in the same query."""

from __future__ import annotations

from allauth.account.auth_backends import AuthenticationBackend

from composer_web.accounts.models import User
from composer_web.accounts.permissions import with_places


class Backend(AuthenticationBackend):
    def get_user(self, user_id: int) -> User | None:
        user = with_places(User.objects.filter(pk=user_id)).first()
        return user if user is not None and self.user_can_authenticate(user) else None
