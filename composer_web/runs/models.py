"""Runs: one configured training job each, with history, events, metrics and the batches it consumed."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from composer_web.accounts.owned import Owned
from composer_web.ops.history import Transition, legal_pairs, pairs
from composer_web.policies.models import Policy
from trainer.config import RunConfig


class RunKind(models.TextChoices):
    MIDTRAIN = "midtrain", "Mid-training"
    SFT = "sft", "SFT"
    RL = "rl", "RL"


class RunState(models.TextChoices):
    DRAFT = "draft"
    QUEUED = "queued"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


RUN_LEGAL = pairs(
    {
        "": ["draft"],
        "draft": ["queued", "cancelled"],
        "queued": ["running", "paused", "failed", "cancelled"],
        "running": ["pausing", "finished", "failed", "cancelled"],
        "pausing": ["paused", "running", "finished", "failed", "cancelled"],
        "paused": ["queued", "cancelled"],
        "failed": ["queued"],
    }
)
RUN_LIVE = ("queued", "running", "pausing", "paused")
RUN_FINAL = ("finished", "failed", "cancelled")


def _latest(metric: str) -> models.GeneratedField:
    """The last value of a metric as a column, kept by the database: lists sort and filter by it."""
    return models.GeneratedField(
        expression=Cast(KeyTextTransform(metric, "latest"), models.FloatField()),
        output_field=models.FloatField(null=True),
        db_persist=True,
    )


class Run(Owned):
    """One configured training job. `config` is a `trainer.config.RunConfig`; its truth is this row."""

    name = models.CharField(max_length=80)
    kind = models.CharField(max_length=8, choices=RunKind)
    config = models.JSONField()
    state = models.CharField(max_length=16, choices=RunState, default=RunState.DRAFT)
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="children")
    sweep = models.ForeignKey("Sweep", on_delete=models.PROTECT, null=True, blank=True, related_name="runs")
    tags = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    notes = models.TextField(blank=True, help_text="What people want to remember of it")
    archived_at = models.DateTimeField(null=True, blank=True, help_text="Since when lists leave it out")
    policy_in = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="runs_from")
    policy_in_version = models.PositiveIntegerField(default=0)
    policy_out = models.OneToOneField(
        Policy, on_delete=models.PROTECT, null=True, blank=True, related_name="produced_by"
    )
    seed = models.PositiveBigIntegerField(default=0)
    code_version = models.CharField(max_length=60, blank=True)
    step = models.PositiveIntegerField(default=0, help_text="Optimiser steps done")
    steps_total = models.PositiveIntegerField()
    policy_version = models.IntegerField(
        default=-1, help_text="Newest version in the weight store; -1 before the first"
    )
    in_flight_limit = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Groups that may be in flight, as the engine's load allows; empty: as configured",
    )
    phase = models.CharField(max_length=80, blank=True, help_text="What the trainer does now, in words")
    latest = models.JSONField(default=dict, help_text="Last value of each metric")
    curve = models.JSONField(
        default=list, db_default=[], help_text="Last [step, value] pairs of its reward, or of its loss"
    )
    reward = _latest("reward/mean")
    best_reward = _latest("reward/best_of_k")
    pass1 = _latest("eval/pass1")
    best_of_k = _latest("eval/best_of_k")
    loss = _latest("loss/train")
    heldout_loss = _latest("loss/heldout")
    entropy = _latest("policy/entropy")
    staleness = _latest("staleness/mean")
    trainer_idle = _latest("idle/trainer")
    failure = models.TextField(blank=True)
    recoveries = models.PositiveIntegerField(default=0, help_text="Times that a lost trainer was replaced")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    queued_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["state"]),
            models.Index(fields=["kind"]),
            GinIndex(fields=["tags"], name="run_tags"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(in_flight_limit__isnull=True) | models.Q(in_flight_limit__gte=1),
                name="run_may_have_groups_in_flight",
            ),
            models.CheckConstraint(
                condition=models.Q(archived_at__isnull=True) | ~models.Q(state__in=RUN_LIVE),
                name="no_live_run_is_archived",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def configuration(self) -> RunConfig:
        return RunConfig.model_validate(self.config)

    @property
    def curve_values(self) -> list[float]:
        return [value for _, value in self.curve]


class RunTemplate(Owned):
    """A configuration that the team starts runs from, beside the presets of `presets.py`."""

    name = models.CharField(max_length=80, unique=True)
    description = models.TextField(blank=True)
    config = models.JSONField()
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def configuration(self) -> RunConfig:
        return RunConfig.model_validate(self.config)


class SweepMode(models.TextChoices):
    GRID = "grid", "Grid: every combination"
    LIST = "list", "List: the first values together, then the second, …"


class Sweep(Owned):
    """Runs that differ in named fields only. `fields` lists [dotted path, values] in the order asked for."""

    name = models.CharField(max_length=80)
    mode = models.CharField(max_length=4, choices=SweepMode, default=SweepMode.GRID)
    fields = models.JSONField()
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.name

    @property
    def varied(self) -> dict[str, list[Any]]:
        """Dotted path → its values."""
        return dict(self.fields)


class SavedView(Owned):
    """A named address of the runs table: its filters, columns and order. Shared ones are everybody's to open."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="run_views")
    name = models.CharField(max_length=60)
    query = models.TextField(blank=True, help_text="Query string of the list")
    shared = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["project", "owner", "name"], name="one_run_view_of_a_name")]

    def __str__(self) -> str:
        return self.name


class RunTransition(Transition):
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="transitions")

    class Meta(Transition.Meta):
        constraints = [models.CheckConstraint(condition=legal_pairs(RUN_LEGAL), name="run_legal_transition")]


class RunEvent(models.Model):
    """Something worth reading that happened in a run: a checkpoint, a weight sync, an evaluation, an alert."""

    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="events")
    at = models.DateTimeField(auto_now_add=True)
    kind = models.CharField(max_length=20, help_text="checkpoint, sync, eval, alert, recovery, infra, note, reward")
    level = models.CharField(
        max_length=7, choices=[("info", "Info"), ("warning", "Warning"), ("error", "Error")], default="info"
    )
    step = models.PositiveIntegerField(null=True, blank=True)
    message = models.TextField()
    data = models.JSONField(default=dict)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["run", "-id"], name="run_event_newest")]

    def __str__(self) -> str:
        return self.message


class MetricKey(models.Model):
    """The name of a metric, once, so that the metric table stays narrow."""

    name = models.CharField(max_length=100, unique=True)

    def __str__(self) -> str:
        return self.name


class Metric(models.Model):
    """One value. Loaded by COPY; read as buckets. A step trained again after a resume replaces its values.

    That its run and its name exist is checked once a statement (migration 0005), not by a trigger a row.
    """

    pk = models.CompositePrimaryKey("run", "key", "step")
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="metrics", db_index=False, db_constraint=False)
    key = models.ForeignKey(MetricKey, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False)
    step = models.PositiveIntegerField()
    value = models.FloatField()
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.run_id}/{self.key_id}@{self.step}={self.value}"


class TrainBatch(models.Model):
    """The groups of one step in the order in which they are trained, recorded before the step: a resume repeats it."""

    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="batches")
    step = models.PositiveIntegerField()
    group_ids = ArrayField(models.BigIntegerField())
    recorded_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["run_id", "step"]
        constraints = [models.UniqueConstraint(fields=["run", "step"], name="one_batch_per_step")]

    def __str__(self) -> str:
        return f"{self.run_id} step {self.step}"
