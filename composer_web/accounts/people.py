"""Writes of accounts: invitations, installation roles, disabling. For admins only; the last admin cannot be removed."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from allauth.usersessions.models import UserSession
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from composer_web.accounts.models import AuditEntry, Invitation, Membership, Project, Role, User
from composer_web.accounts.services import audit, create_user, set_role
from composer_web.core.errors import Conflict, NotFound, UserError
from composer_web.env import env

MAX_DAYS = 30
MAX_OPEN = 500
PATH = "/join/?code="
KEPT, AGREED = "user.role_kept", "user.role_agreed"
"""Audit entries: the provider's groups no longer make the last admin one, or do so again."""


def people() -> QuerySet[User]:
    """Users for lists, with their project roles."""
    return User.objects.prefetch_related("memberships__project").order_by("username")


def get_person(username: str) -> User:
    """Raises NotFound."""
    found = people().filter(username=username).first()
    if found is None:
        raise NotFound("account", repr(username[:80]))
    return found


def invitations() -> QuerySet[Invitation]:
    """Invitations that can still be used."""
    return Invitation.objects.select_related("created_by", "project").filter(
        used_at=None, withdrawn_at=None, expires_at__gt=timezone.now()
    )


@transaction.atomic
def invite(
    *,
    actor: User | None,
    username: str,
    role: str = Role.VIEWER,
    email: str = "",
    project: str = "",
    project_role: str = "",
    days: int = 7,
) -> tuple[Invitation, str]:
    """Create an invitation. Returns it with its secret, which is shown only once. With `project`, the user becomes a
    member with `project_role`. Raises UserError naming the field."""
    username, email = username.strip(), email.strip()
    _check_roles(role, project_role)
    try:
        UnicodeUsernameValidator()(username)
        if len(username) > 150:
            raise ValidationError("a user name has at most 150 characters")
    except ValidationError as error:
        raise UserError("username", " ".join(error.messages)) from error
    try:
        if email:
            validate_email(email)
    except ValidationError as error:
        raise UserError("email", " ".join(error.messages)) from error
    if User.objects.filter(username__iexact=username).exists():
        raise UserError("username", f"the name {username!r} is taken; choose another")
    if invitations().filter(username__iexact=username).exists():
        raise UserError("username", f"{username!r} is invited already; withdraw that invitation first")
    if not 1 <= days <= MAX_DAYS:
        raise UserError("days", f"an invitation is good for 1 to {MAX_DAYS} days, not {days}")
    if invitations().count() >= MAX_OPEN:
        raise UserError("username", f"{MAX_OPEN} invitations are open, which is the most; withdraw some")
    place = Project.objects.filter(slug=project, archived_at=None).first() if project else None
    if project and place is None:
        raise UserError("project", f"there is no project {project[:40]!r}")
    if place is not None and not project_role:
        raise UserError("project_role", "say which role they have in the project")
    secret = secrets.token_urlsafe(32)
    made = Invitation.objects.create(
        username=username, email=email, role=role, project=place, project_role=project_role if place else "",
        digest=_digest(secret), created_by=actor, expires_at=timezone.now() + timedelta(days=days),
    )  # fmt: skip
    audit(actor=actor, action="user.invite", target=f"invitation:{made.pk}", username=username, role=role, email=email)
    return made, secret


def send(invitation: Invitation, link: str) -> bool:
    """Send the link by e-mail if an address and a mail server are configured. Raises UserError if the server
    refuses."""
    if not (invitation.email and env().email_url):
        return False
    text = (
        f"You are invited to OpenComposer as {invitation.username}.\n\nChoose your password until "
        f"{invitation.expires_at:%Y-%m-%d %H:%M} UTC at\n{link}\n\nThe link works once.\n"
    )
    try:
        EmailMessage("Your invitation to OpenComposer", text, to=[invitation.email]).send()
    except OSError as error:  # smtplib's errors are
        raise UserError("email", f"the mail server did not take it ({error}); hand the link over yourself") from error
    return True


@transaction.atomic
def withdraw(*, invitation: Invitation, actor: User | None) -> None:
    """Revoke an invitation. Raises Conflict if it has been used."""
    row = Invitation.objects.select_for_update(of=("self",)).get(pk=invitation.pk)
    if row.used_at is not None:
        raise Conflict(f"{row.username} has used it already; disable the account instead")
    if row.withdrawn_at is None:
        row.withdrawn_at = timezone.now()
        row.save(update_fields=["withdrawn_at"])
        audit(actor=actor, action="user.uninvite", target=f"invitation:{row.pk}", username=row.username)


def invited(secret: str) -> Invitation | None:
    """Open invitation of a link."""
    return invitations().filter(digest=_digest(secret)).first() if secret else None


@transaction.atomic
def accept(*, secret: str, password: str) -> User:
    """Create the invited account. Raises UserError for a weak password, Conflict for a used link."""
    row = invitations().select_for_update(of=("self",)).filter(digest=_digest(secret)).first()
    if row is None:
        raise Conflict("this invitation is used, withdrawn or too old; ask an admin for another")
    validate(password, row.username)
    user = create_user(username=row.username, password=password, role=row.role, by=row.created_by)
    if row.email:
        user.email = row.email
        user.save(update_fields=["email"])
    if row.project is not None:
        Membership.objects.create(project=row.project, user=user, role=row.project_role)
    row.used_at, row.used_by = timezone.now(), user
    row.save(update_fields=["used_at", "used_by"])
    audit(actor=user, action="user.join", target=f"invitation:{row.pk}", username=user.username, role=user.role)
    return user


def validate(password: str, username: str) -> None:
    try:
        validate_password(password, User(username=username))
    except ValidationError as error:
        raise UserError("password", " ".join(error.messages)) from error


@transaction.atomic
def change_role(*, user: User, role: str, actor: User | None) -> User:
    """Set the user's installation role. Raises UserError, and Conflict for the last admin."""
    _check_roles(role, "")
    _keep_an_admin(user, still=role == Role.ADMIN)
    return set_role(user=user, role=role, by=actor)


@transaction.atomic
def follow_provider(*, user: User, role: str) -> User:
    """Apply the role from the identity provider. The last admin keeps theirs: the refusal is audited, and the health
    page shows it (`kept_admin`) until there is another admin or the provider agrees again."""
    if user.role != role:
        try:
            return change_role(user=user, role=role, actor=None)
        except Conflict:
            if kept_admin() is None:  # once, not at each log-in
                audit(actor=None, action=KEPT, target=f"user:{user.pk}", kept=user.role, asked=role, by="OIDC")
    elif kept_admin() is not None:
        audit(actor=None, action=AGREED, target=f"user:{user.pk}", role=role, by="OIDC")
    return user


def admins() -> list[tuple[int, str]]:
    """Admins of the installation who can log in."""
    return list(User.objects.filter(role=Role.ADMIN, is_active=True).values_list("pk", "username"))


def kept_admin(known: list[tuple[int, str]] | None = None) -> tuple[str, str] | None:
    """Name of the only admin and the role that the provider assigns instead. None without such a conflict."""
    known = admins() if known is None else known
    if len(known) != 1:
        return None
    ((pk, username),) = known
    last = AuditEntry.objects.filter(target=f"user:{pk}", action__in=(KEPT, AGREED)).first()
    return (username, str(last.detail["asked"])) if last is not None and last.action == KEPT else None


@transaction.atomic
def disable(*, user: User, actor: User | None) -> User:
    """Disable an account: its sign-in sessions end, and its tokens are revoked permanently. Raises Conflict."""
    _keep_an_admin(user, still=False)
    user.is_active = False
    user.save(update_fields=["is_active"])
    tokens = user.tokens.filter(revoked_at=None).update(revoked_at=timezone.now())
    sessions = end_sessions(user)
    audit(actor=actor, action="user.disable", target=f"user:{user.pk}", username=user.username,
          tokens=tokens, sessions=sessions)  # fmt: skip
    return user


@transaction.atomic
def enable(*, user: User, actor: User | None) -> User:
    """Allow log-in again, with new sessions and tokens."""
    user.is_active = True
    user.save(update_fields=["is_active"])
    audit(actor=actor, action="user.enable", target=f"user:{user.pk}", username=user.username)
    return user


def end_sessions(user: User) -> int:
    """End all sign-in sessions of a user. Returns the number of recorded sessions; unrecorded ones end too."""
    user.logins += 1  # part of what every session is signed with
    user.save(update_fields=["logins"])
    found = list(UserSession.objects.filter(user=user))
    for session in found:
        session.end()
    return len(found)


def _keep_an_admin(user: User, *, still: bool) -> None:
    """Serialise the check with a lock: two admins who demote each other at once would leave none."""
    admins = list(
        User.objects.select_for_update()
        .filter(role=Role.ADMIN, is_active=True)
        .order_by("pk")
        .values_list("pk", flat=True)
    )
    if not still and admins == [user.pk]:
        raise Conflict(f"{user.username} is the last admin; make somebody else one first")


def _check_roles(role: str, project_role: str) -> None:
    for field, found in (("role", role), ("project_role", project_role)):
        if found not in Role.values and (found or field == "role"):
            raise UserError(field, f"role {found!r} is unknown; use one of {', '.join(Role.values)}")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
