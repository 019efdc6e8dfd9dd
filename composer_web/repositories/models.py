"""Environments: repositories prepared for work, with their builds."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from composer_web.ops.history import Transition, legal_pairs, pairs


class EnvironmentState(models.TextChoices):
    REQUESTED = "requested"
    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"


ENVIRONMENT_LEGAL = pairs(
    {
        "": ["requested", "ready"],
        "requested": ["building", "failed"],
        "building": ["ready", "failed", "requested"],
        "failed": ["requested"],
    }
)


class Environment(models.Model):
    """A prepared repository image: files, toolchain, and how to run its tests."""

    name = models.CharField(max_length=120, unique=True)
    source = models.CharField(max_length=200, help_text="What it is built from, for example package==1.2.3")
    digest = models.CharField(max_length=80, null=True, blank=True, unique=True)
    state = models.CharField(max_length=16, choices=EnvironmentState, default=EnvironmentState.REQUESTED)
    detail = models.JSONField(default=dict, help_text="Tests found, files, bytes, Python version")
    log_key = models.CharField(max_length=200, blank=True, help_text="Build log in the artifact store")
    failure = models.TextField(blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class EnvironmentTransition(Transition):
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="transitions")

    class Meta(Transition.Meta):
        constraints = [
            models.CheckConstraint(condition=legal_pairs(ENVIRONMENT_LEGAL), name="environment_legal_transition")
        ]
