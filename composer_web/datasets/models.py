"""Datasets of conversations for SFT."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from composer_web.accounts.scoping import KeepsProject, Owned


class DatasetState(models.TextChoices):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


OPEN = (DatasetState.WAITING, DatasetState.RUNNING)


class Dataset(Owned):
    """Conversations under one name. A worker prepares it once; what it holds never changes, so that runs may name it."""

    name = models.SlugField(max_length=80, db_index=False)
    state = models.CharField(max_length=8, choices=DatasetState, default=DatasetState.WAITING)
    wanted = models.JSONField(
        default=dict, help_text="datasets.schemas.Wanted: its sources, and suites to keep clear of"
    )
    provenance = models.JSONField(
        null=True, blank=True, help_text="trainer.sft.conversations.store.Provenance, once it is prepared"
    )
    conversations = models.PositiveIntegerField(default=0)
    dropped = models.PositiveIntegerField(default=0, help_text="Left out, by reason in the provenance")
    cause = models.TextField(blank=True, help_text="Why it failed")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="one_dataset_of_a_name"),
            models.CheckConstraint(
                condition=~models.Q(state="done") | models.Q(provenance__isnull=False, conversations__gt=0),
                name="dataset_done_says_what_it_holds",
            ),
        ]
        triggers = [KeepsProject()]

    def __str__(self) -> str:
        return self.name


class DatasetRollout(models.Model):
    """A rollout that a dataset was made from: its trajectory stays as long as the dataset."""

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="sources", db_index=False)
    rollout = models.ForeignKey("rollouts.Rollout", on_delete=models.PROTECT, related_name="datasets")

    class Meta:
        ordering = ["dataset_id", "rollout_id"]
        constraints = [models.UniqueConstraint(fields=["dataset", "rollout"], name="dataset_has_rollout_once")]

    def __str__(self) -> str:
        return f"{self.dataset_id}[{self.rollout_id}]"
