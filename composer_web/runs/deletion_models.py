"""Deletions of stored files of ended runs and evaluations. The rows about them stay."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from composer_web.accounts.scoping import Owned, ProjectOf
from composer_web.core.triggers import Immutable


class FileKind(models.TextChoices):
    CHECKPOINTS = "checkpoints", "checkpoints"
    VERSIONS = "versions", "weight versions"
    TRAJECTORIES = "trajectories", "trajectories"


class DeletionState(models.TextChoices):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    """Something came to use what was left. The cause names it."""


DELETION_OPEN = (DeletionState.WAITING, DeletionState.RUNNING)


class FileDeletion(Owned):
    """Files of one kind that were deleted, or are being deleted: when, by whom, how much.

    A worker marks what goes (`marked`), deletes it, and then advances `done_to`. What lies between the two after a kill is
    deleted again. Both are steps of checkpoints or ids of groups.
    """

    run = models.ForeignKey(
        "runs.Run", on_delete=models.PROTECT, null=True, blank=True, related_name="file_deletions", db_index=False
    )
    evaluation = models.ForeignKey(
        "evals.Evaluation", on_delete=models.PROTECT, null=True, blank=True, related_name="file_deletions"
    )
    kind = models.CharField(max_length=12, choices=FileKind)
    final = models.BooleanField(default=False, help_text="With the newest checkpoint")
    annotated = models.BooleanField(default=False, help_text="With trajectories that somebody annotated or labelled")
    state = models.CharField(max_length=8, choices=DeletionState, default=DeletionState.WAITING)
    marked = models.BigIntegerField(default=-1)
    done_to = models.BigIntegerField(default=-1)
    items = models.PositiveIntegerField(default=0, help_text="Checkpoints, versions or trajectories deleted so far")
    bytes = models.PositiveBigIntegerField(default=0, help_text="Bytes that these took")
    cause = models.TextField(blank=True, help_text="Why it stopped, or why it is being tried again")
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="Empty: retention",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["run", "-id"], name="file_deletion_by_run")]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(run__isnull=False, evaluation__isnull=True)
                | models.Q(run__isnull=True, evaluation__isnull=False, kind="trajectories"),
                name="file_deletion_has_one_owner",
            ),
            models.CheckConstraint(condition=models.Q(kind__in=FileKind.values), name="file_deletion_kind_is_known"),
            models.UniqueConstraint(
                fields=["run", "evaluation", "kind"],
                condition=models.Q(state__in=["waiting", "running"]),
                nulls_distinct=False,
                name="file_deletion_open_once",
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=["waiting", "running"], finished_at=None)
                | models.Q(state__in=["done", "stopped"], finished_at__isnull=False),
                name="file_deletion_ends_once",
            ),
            models.CheckConstraint(
                condition=~models.Q(state="stopped") | ~models.Q(cause=""), name="file_deletion_stopped_says_why"
            ),
            models.CheckConstraint(
                condition=models.Q(marked__gte=models.F("done_to")), name="file_deletion_marks_before_it_deletes"
            ),
        ]
        triggers = [
            ProjectOf("run", "evaluation"),
            Immutable("run_id", "evaluation_id", "kind", "final", "annotated", "requested_by_id", "created_at"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {f'run {self.run_id}' if self.run_id else f'evaluation {self.evaluation_id}'}"

    @property
    def open(self) -> bool:
        return self.state in DELETION_OPEN

    @property
    def by(self) -> str:
        """Who asked for it."""
        return self.requested_by.get_username() if self.requested_by else "retention"
