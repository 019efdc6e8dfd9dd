"""Evaluations: one policy version measured on a suite."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from composer_web.ops.history import Transition, legal_pairs, pairs
from composer_web.policies.models import Policy
from composer_web.runs.models import Run
from composer_web.tasks.models import Suite


class EvaluationState(models.TextChoices):
    PENDING = "pending"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


EVALUATION_LEGAL = pairs(
    {
        "": ["pending"],
        "pending": ["running", "failed", "cancelled"],
        "running": ["finished", "failed", "cancelled"],
        "failed": ["pending"],
    }
)


class Phase(models.TextChoices):
    BEFORE = "before"
    DURING = "during"
    AFTER = "after"
    ALONE = "alone", "on its own"


class Evaluation(models.Model):
    """`samples` rollouts of each of `tasks` tasks of a suite, by one pinned policy version."""

    run = models.ForeignKey(Run, on_delete=models.PROTECT, null=True, blank=True, related_name="evaluations")
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="evaluations")
    version = models.PositiveIntegerField(default=0)
    suite = models.ForeignKey(Suite, on_delete=models.PROTECT, related_name="evaluations")
    phase = models.CharField(max_length=6, choices=Phase, default=Phase.ALONE)
    tasks = models.PositiveIntegerField()
    samples = models.PositiveIntegerField()
    temperature = models.FloatField()
    seed = models.PositiveBigIntegerField(default=0)
    conditions = models.JSONField(default=dict, help_text="Sampling and harness, as in the run's configuration")
    state = models.CharField(max_length=16, choices=EvaluationState, default=EvaluationState.PENDING)
    results = models.JSONField(default=dict, help_text="pass1, pass1_low, pass1_high, best, best_of, verdicts, seconds")
    failure = models.TextField(blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "version", "phase"],
                name="one_evaluation_per_version",
                condition=models.Q(run__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return f"{self.suite_id} by {self.policy_id}@{self.version}"


class EvaluationTransition(Transition):
    evaluation = models.ForeignKey(Evaluation, on_delete=models.PROTECT, related_name="transitions")

    class Meta(Transition.Meta):
        constraints = [
            models.CheckConstraint(condition=legal_pairs(EVALUATION_LEGAL), name="evaluation_legal_transition")
        ]
