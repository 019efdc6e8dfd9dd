"""Datasets of conversations for SFT, and corpora of text for mid-training."""

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


class Prepared(Owned):
    """Training data that a worker prepares once. What they hold never changes, so that runs may name them."""

    state = models.CharField(max_length=8, choices=DatasetState, default=DatasetState.WAITING)
    wanted = models.JSONField(default=dict, help_text="As in datasets.schemas: sources, and suites to keep clear of")
    provenance = models.JSONField(null=True, blank=True, help_text="That of its files, once they are prepared")
    dropped = models.PositiveIntegerField(default=0, help_text="Left out, by reason in the provenance")
    cause = models.TextField(blank=True, help_text="Why it failed")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True


class Dataset(Prepared):
    """Conversations. The provenance is a trainer.sft.conversations.store.Provenance."""

    name = models.SlugField(max_length=80, db_index=False)
    conversations = models.PositiveIntegerField(default=0)

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


class Corpus(Prepared):
    """Text. The provenance is a trainer.midtrain.corpus.store.Provenance; `manage.py corpus` makes corpora without a row."""

    name = models.CharField(
        max_length=80, unique=True, help_text="A folder below `corpora`, and so unique in the installation"
    )
    documents = models.PositiveIntegerField(default=0)
    characters = models.PositiveBigIntegerField(default=0)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=models.Q(state__in=DatasetState.values), name="corpus_state_known"),
            models.CheckConstraint(
                condition=~models.Q(state="done") | models.Q(provenance__isnull=False, documents__gt=0),
                name="corpus_done_says_what_it_holds",
            ),
        ]
        triggers = [KeepsProject()]

    def __str__(self) -> str:
        return self.name

    @property
    def installed(self) -> bool:
        """Prepared by `manage.py corpus`, for every project."""
        return self._state.adding


class DatasetRollout(models.Model):
    """A rollout that a dataset was made from: its trajectory stays as long as the dataset."""

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="sources", db_index=False)
    rollout = models.ForeignKey("rollouts.Rollout", on_delete=models.PROTECT, related_name="datasets")

    class Meta:
        ordering = ["dataset_id", "rollout_id"]
        constraints = [models.UniqueConstraint(fields=["dataset", "rollout"], name="dataset_has_rollout_once")]

    def __str__(self) -> str:
        return f"{self.dataset_id}[{self.rollout_id}]"
