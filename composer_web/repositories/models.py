"""Environments: prepared repositories with their builds."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from composer_web.accounts.audit_triggers import Audited
from composer_web.accounts.scoping import KeepsProject, Material, ProjectOf
from composer_web.core.history import RecordsState, Transition, legal_pairs, pairs


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


class SourceKind(models.TextChoices):
    GIT = "git", "Git address"
    PATH = "path", "Git repository on this machine"
    ARCHIVE = "archive", "Uploaded archive"
    SDIST = "sdist", "PyPI source distribution"


class Repository(Material):
    """Where an environment's checkout comes from. The revision is pinned once it was fetched."""

    name = models.CharField(max_length=120, unique=True)
    kind = models.CharField(max_length=16, choices=SourceKind)
    location = models.CharField(max_length=500, help_text="Address, path, file name of the upload, or package name")
    revision = models.CharField(
        max_length=200, blank=True, help_text="Branch, tag, commit or version that was asked for"
    )
    pin = models.CharField(
        max_length=140, blank=True, help_text="The commit, or the version and hash, that was fetched"
    )
    licence = models.CharField(max_length=120, blank=True)
    notes = models.JSONField(default=list, help_text="What the checkout leaves out")
    token = models.TextField(blank=True, editable=False, help_text="Encrypted (see tokens.py)")
    archive_key = models.CharField(max_length=200, blank=True, help_text="The upload in the artifact store")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(condition=models.Q(kind__in=SourceKind.values), name="repository_kind_known"),
            models.CheckConstraint(
                condition=models.Q(kind="archive") | models.Q(archive_key=""), name="repository_upload_only_of_archives"
            ),
        ]
        triggers = [
            KeepsProject(),
            Audited("name", "kind", "location", "revision", "licence", "notes", secret=["token"]),
        ]

    def __str__(self) -> str:
        return self.name


class Environment(Material):
    """A prepared repository image: files, toolchain, and how to run its tests."""

    name = models.CharField(max_length=120, unique=True)
    repository = models.OneToOneField(
        Repository, on_delete=models.PROTECT, null=True, blank=True, related_name="environment"
    )
    source = models.CharField(max_length=700, help_text="What it is built from, for example package==1.2.3")
    digest = models.CharField(max_length=80, null=True, blank=True, unique=True)
    state = models.CharField(max_length=16, choices=EnvironmentState, default=EnvironmentState.REQUESTED)
    detail = models.JSONField(default=dict, help_text="Tests found, files, bytes, Python version")
    log_key = models.CharField(max_length=200, blank=True, help_text="Build log in the artifact store")
    failure = models.TextField(blank=True)
    cancel_requested = models.BooleanField(default=False, help_text="The builder stops at its next look")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        triggers = [ProjectOf("repository"), RecordsState(), Audited("name", "state", "cancel_requested")]

    def __str__(self) -> str:
        return self.name


class EnvironmentTransition(Transition):
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="transitions")

    class Meta(Transition.Meta):
        constraints = [
            models.CheckConstraint(condition=legal_pairs(ENVIRONMENT_LEGAL), name="environment_legal_transition")
        ]


class BuildLine(models.Model):
    """A piece of a running build's log; gone when the build ends and its whole log is kept as an artifact."""

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="lines")
    text = models.TextField()
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return self.text[:80]
