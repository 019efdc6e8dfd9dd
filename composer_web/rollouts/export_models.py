"""Exports of the lists."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from composer_web.accounts.scoping import KeepsProject, Owned


class ExportState(models.TextChoices):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    VOID = "void"
    """Part of the data had to be deleted, and the file with it."""


class Export(Owned):
    """A file with a filtered list. A worker writes it, and it is deleted on expiry."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="rollout_exports")
    what = models.CharField(max_length=12, default="rollouts", db_default="rollouts", help_text="Which table")
    format = models.CharField(max_length=8, choices=[("csv", "CSV"), ("jsonl", "JSON lines"), ("parquet", "Parquet")])
    query = models.TextField(blank=True, help_text="Filters, as the list's query string has them")
    state = models.CharField(max_length=8, choices=ExportState, default=ExportState.WAITING)
    rows = models.PositiveIntegerField(default=0, help_text="Written so far")
    total = models.PositiveIntegerField(null=True, blank=True, help_text="Rows to write")
    bytes = models.PositiveBigIntegerField(default=0)
    cause = models.TextField(blank=True, help_text="Why there is no file, and what to do")
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=~models.Q(state="done") | models.Q(expires_at__isnull=False), name="export_done_expires"
            ),
            models.CheckConstraint(
                condition=~models.Q(state__in=["failed", "void"]) | ~models.Q(cause=""),
                name="export_without_file_says_why",
            ),
        ]
        triggers = [KeepsProject()]

    def __str__(self) -> str:
        return f"export {self.pk}"
