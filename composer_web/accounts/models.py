"""People, what they may do, their API tokens, and what they did."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser
from django.db import models


class Role(models.TextChoices):
    VIEWER = "viewer", "Viewer: reads everything"
    REVIEWER = "reviewer", "Reviewer: also curates tasks and reviews trajectories"
    OPERATOR = "operator", "Operator: also starts, stops and configures runs"
    ADMIN = "admin", "Admin: also manages people and tokens"


class User(AbstractUser):
    role = models.CharField(max_length=10, choices=Role, default=Role.VIEWER)

    def may(self, role: str) -> bool:
        """Whether this person has at least the rights of `role`."""
        order = Role.values
        return self.is_active and order.index(self.role) >= order.index(role)


class ApiToken(models.Model):
    """A key for scripts. Only its SHA-256 is stored; `prefix` lets people tell their tokens apart."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=80)
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list, help_text="Of read, review, operate, admin")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class AuditEntry(models.Model):
    """One change that a person or token made. Append-only (database trigger)."""

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

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.target}"
