"""Infrastructure of all apps: the outbox, leases and heartbeats."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class Outbox(models.Model):
    """A Celery message that must be sent because its transaction committed. Delivered at least once.

    Pending messages with one task, queue and `key` are sent as one (`ops/outbox.py`).
    """

    task = models.CharField(max_length=100)
    kwargs = models.JSONField(default=dict)
    queue = models.CharField(max_length=200)
    key = models.CharField(max_length=120, null=True, blank=True)  # noqa: DJ001 (null: never merged)
    created_at = models.DateTimeField(auto_now_add=True)
    due_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveIntegerField(default=0)

    class Meta:
        verbose_name_plural = "outbox"
        indexes = [models.Index("due_at", name="outbox_due", condition=models.Q(sent_at=None))]

    def __str__(self) -> str:
        return f"{self.task} {self.kwargs}"


class Lease(models.Model):
    """Current owner of a resource. `token` grows with every owner, so that writes of former owners are rejected."""

    resource = models.CharField(primary_key=True, max_length=80)
    owner = models.CharField(max_length=120, blank=True)
    token = models.PositiveBigIntegerField(default=0)
    taken_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.resource} held by {self.owner or 'nobody'}"


class WorkerHeartbeat(models.Model):
    """Heartbeat of a live process: web, worker, trainer, inference."""

    name = models.CharField(primary_key=True, max_length=120)
    kind = models.CharField(max_length=20)
    pid = models.PositiveIntegerField()
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField()
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ["kind", "name"]

    def __str__(self) -> str:
        return self.name


class Quota(models.Model):
    """Limits on what the runs of a user or of a project may use at once. A row with neither applies to every user
    without a quota of their own. Null means no limit."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, blank=True, related_name="quota"
    )
    project = models.OneToOneField(
        "accounts.Project", on_delete=models.PROTECT, null=True, blank=True, related_name="quota"
    )
    concurrent_rollouts = models.PositiveIntegerField(null=True, blank=True)
    storage_gib = models.FloatField(null=True, blank=True, help_text="Kept checkpoints, in GiB")
    gpu_share = models.FloatField(null=True, blank=True, help_text="Of all rollouts in flight, while others run")
    gpus = models.PositiveIntegerField(null=True, blank=True, help_text="That its runs train on at once")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "project"], name="quota_one_for_everybody", nulls_distinct=False),
            models.CheckConstraint(
                condition=models.Q(user=None) | models.Q(project=None), name="quota_of_a_person_or_a_project"
            ),
            models.CheckConstraint(
                condition=models.Q(gpu_share=None) | models.Q(gpu_share__gt=0, gpu_share__lt=1), name="quota_share"
            ),
        ]

    def __str__(self) -> str:
        return f"quota of {self.user or self.project or 'everybody'}"
