"""Infrastructure of all apps: the outbox, leases and heartbeats."""

from __future__ import annotations

from django.db import models


class Outbox(models.Model):
    """A Celery message that must be sent because its transaction committed. Delivered at least once.

    Pending messages with one task, queue and `key` are sent as one (`core/queue/outbox.py`).
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
