"""Infrastructure of all apps: the outbox, leases, heartbeats, and what workers use of their machines."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
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


class WorkerSample(models.Model):
    """One measurement of a worker process and its host (`trainer.usage.Usage`), every 15 s.

    `core/queue/samples.py` bounds the table: after a day one sample in five minutes stays, and none after
    OPENCOMPOSER_SYSTEM_METRICS_DAYS.
    """

    worker = models.CharField(max_length=120)
    kind = models.CharField(max_length=20)
    host = models.CharField(max_length=255)
    at = models.DateTimeField()
    runs = ArrayField(models.BigIntegerField(), default=list, help_text="Runs that it worked for at that moment")
    cpu = models.FloatField(help_text="Cores that the process and its descendants used")
    memory = models.BigIntegerField(help_text="Resident bytes of the process and its descendants")
    host_cpu = models.FloatField(help_text="Busy share of all cores")
    host_cores = models.PositiveIntegerField()
    host_memory = models.BigIntegerField(help_text="Bytes in use")
    host_memory_total = models.BigIntegerField()
    received = models.FloatField(null=True, help_text="Network, bytes per second")
    sent = models.FloatField(null=True, help_text="Network, bytes per second")
    disk_read = models.FloatField(null=True, help_text="Bytes per second")
    disk_written = models.FloatField(null=True, help_text="Bytes per second")
    disk_used = models.BigIntegerField(null=True)
    disk_total = models.BigIntegerField(null=True)
    gpus = models.JSONField(default=list, help_text="[trainer.usage.GpuUsage]")

    class Meta:
        ordering = ["-at"]
        indexes = [
            models.Index(fields=["at"], name="worker_sample_at"),
            GinIndex(fields=["runs"], name="worker_sample_runs"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["worker", "at"], name="one_worker_sample_of_a_time"),
            models.CheckConstraint(
                condition=models.Q(cpu__gte=0, memory__gte=0, host_cpu__range=(0, 1), host_memory_total__gt=0),
                name="worker_sample_in_range",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.worker} at {self.at}"
