"""Users, projects, memberships, API tokens and audit entries."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils.crypto import salted_hmac

from composer_web.accounts import access
from composer_web.accounts.audit_triggers import Audited, TakesChanges
from composer_web.core.triggers import AppendOnly

DEFAULT_PROJECT = 1
"""Id of the project that every installation has. Objects from before projects existed belong to it."""


class Role(models.TextChoices):
    VIEWER = "viewer", "Viewer: reads everything"
    REVIEWER = "reviewer", "Reviewer: also curates tasks and reviews trajectories"
    OPERATOR = "operator", "Operator: also starts, stops and configures runs"
    ADMIN = "admin", "Admin: also manages people and tokens"


class User(AbstractUser):
    role = models.CharField(max_length=10, choices=Role, default=Role.VIEWER)
    logins = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Part of what sessions are signed with: one more ends all of them"
    )

    class Meta(AbstractUser.Meta):
        triggers = [Audited("username", "role", "is_active", "email", secret=["password"], removed=True)]

    placed: list[dict[str, Any]] | None = None
    """Every project with this user's membership in it, if the query included it (`permissions.with_places`)."""

    def _get_session_auth_hash(self, secret: str | None = None) -> str:
        salt = "django.contrib.auth.models.AbstractBaseUser.get_session_auth_hash"  # as ever, until sessions were ended
        salt += f".{self.logins}" if self.logins else ""
        return salted_hmac(salt, self.password, secret=secret, algorithm="sha256").hexdigest()

    def may(self, role: str) -> bool:
        """Whether the user has at least `role`: in the project of the current request, else by account. A token
        never grants more than its scopes allow."""
        now = access.current()
        here = now is None or now.user_id != self.pk or Role.values.index(now.ceiling) >= Role.values.index(role)
        return here and self.ranks(role)

    def ranks(self, role: str) -> bool:
        """`may` regardless of the token. For content hidden from users because of their work, not their permissions."""
        now = access.current()
        mine = self.role if now is None or now.user_id != self.pk else now.role
        order = Role.values
        return self.is_active and mine in order and order.index(mine) >= order.index(role)


class Project(models.Model):
    """Isolated workspace for runs and their inputs. An object belongs to exactly one project; see docs/guides/team.md."""

    slug = models.SlugField(max_length=40, unique=True)
    name = models.CharField(max_length=80)
    open = models.BooleanField(
        default=False, help_text="Everybody with an account has in it at least the role of the account"
    )
    library = models.BooleanField(
        default=False, help_text="Its tasks, suites, environments and policies may be read and used in every project"
    )
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    archived_at = models.DateTimeField(null=True, blank=True, help_text="Since when only admins reach it")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=~models.Q(pk=DEFAULT_PROJECT) | models.Q(archived_at=None), name="default_project_stays"
            )
        ]
        triggers = [Audited("slug", "name", "open", "library", "archived_at")]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """Role of one user in one project."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role, default=Role.VIEWER)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["project_id", "user__username"]
        constraints = [
            models.UniqueConstraint(fields=["project", "user"], name="one_membership"),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="membership_role"),
        ]
        triggers = [Audited("project_id", "user_id", "role", removed=True)]

    def __str__(self) -> str:
        return f"{self.user_id} is {self.role} of {self.project_id}"


class Invitation(models.Model):
    """A one-time link for setting an account's password. Only its SHA-256 is stored."""

    username = models.CharField(max_length=150)
    email = models.EmailField(blank=True)
    role = models.CharField(max_length=10, choices=Role, default=Role.VIEWER)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    project_role = models.CharField(max_length=10, choices=Role, blank=True)
    digest = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    used_by = models.OneToOneField(User, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="invitation_role"),
            models.CheckConstraint(
                condition=models.Q(project=None, project_role="")
                | models.Q(project__isnull=False, project_role__in=Role.values),
                name="invitation_project_role",
            ),
            models.CheckConstraint(
                condition=models.Q(used_at=None, used_by=None)
                | models.Q(used_at__isnull=False, used_by__isnull=False, withdrawn_at=None),
                name="invitation_works_once",
            ),
        ]
        triggers = [Audited("username", "email", "role", "used_at", "withdrawn_at")]

    def __str__(self) -> str:
        return f"invitation of {self.username}"


class ApiToken(models.Model):
    """API token for scripts. Only its SHA-256 is stored; `prefix` identifies it to users."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=80)
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list, help_text="Of read, review, operate, admin")
    project = models.ForeignKey(
        Project,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="tokens",
        help_text="The one project where it is valid; empty for all of its owner's",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        triggers = [Audited("name", "scopes", "expires_at", "revoked_at", removed=True)]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class AuditEntry(models.Model):
    """One change made by a user or token. Append-only (database trigger)."""

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    actor = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    actor_name = models.CharField(max_length=150)
    action = models.CharField(max_length=60, help_text="noun.verb, for example run.start")
    target = models.CharField(max_length=120, blank=True)
    detail = models.JSONField(default=dict)
    via = models.CharField(max_length=8, default="system", help_text="page, api, token or system")
    address = models.GenericIPAddressField(null=True, blank=True)
    credential = models.CharField(max_length=100, blank=True, default="", help_text="Which token was used")
    changes = models.JSONField(default=list, help_text="[{row, before, after}], written by a trigger")

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "audit entries"
        indexes = [
            models.Index(fields=["target", "-id"], name="audit_of_target"),
            models.Index(fields=["actor", "-id"], name="audit_of_actor"),
        ]
        triggers = [AppendOnly(), TakesChanges()]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.target}"
