"""Groups of rollouts and the rollouts themselves, with one verdict each."""

from __future__ import annotations

from django.db import models

from composer_web.evals.models import Evaluation
from composer_web.ops.history import Transition, legal_pairs, pairs
from composer_web.runs.models import Run
from composer_web.tasks.models import TaskVersion


class GroupState(models.TextChoices):
    PENDING = "pending"
    DISPATCHED = "dispatched"
    RUNNING = "running"
    ACCEPTED = "accepted"
    CONSUMED = "consumed"
    DROPPED = "dropped"


GROUP_LEGAL = pairs(
    {
        "": ["pending", "dispatched"],
        "pending": ["dispatched", "dropped"],
        "dispatched": ["running", "dropped"],
        "running": ["accepted", "dispatched", "dropped"],
        "accepted": ["consumed", "dropped"],
    }
)
GROUP_OPEN = ("pending", "dispatched", "running")


class Group(models.Model):
    """All rollouts of one prompt, for one run or one evaluation.

    Single epoch: in a run each prompt index and each task version occurs once (constraints below).
    """

    run = models.ForeignKey(Run, on_delete=models.PROTECT, null=True, blank=True, related_name="groups")
    evaluation = models.ForeignKey(Evaluation, on_delete=models.PROTECT, null=True, blank=True, related_name="groups")
    task_version = models.ForeignKey(TaskVersion, on_delete=models.PROTECT, related_name="groups")
    prompt_index = models.PositiveIntegerField(help_text="Place in the seeded order of the suite")
    size = models.PositiveIntegerField(help_text="Rollouts of the group (G, or samples of an evaluation)")
    state = models.CharField(max_length=16, choices=GroupState, default=GroupState.PENDING)
    dispatched_version = models.IntegerField(default=-1)
    oldest_version = models.IntegerField(null=True, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    infra_errors = models.PositiveIntegerField(default=0, help_text="Failed attempts, never trained on")
    cause = models.TextField(blank=True, help_text="Why it was retried or dropped")
    mean_reward = models.FloatField(null=True, blank=True)
    best_reward = models.FloatField(null=True, blank=True)
    consumed_step = models.PositiveIntegerField(null=True, blank=True)
    train_key = models.CharField(max_length=200, blank=True, help_text="TrainGroup in the artifact store")
    created_at = models.DateTimeField(auto_now_add=True)
    dispatched_at = models.DateTimeField(null=True, blank=True)
    accepted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["run", "state", "prompt_index"], name="group_by_state"),
            models.Index(fields=["evaluation", "state"], name="group_by_evaluation"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(run__isnull=True) ^ models.Q(evaluation__isnull=True), name="group_has_one_owner"
            ),
            models.UniqueConstraint(fields=["run", "prompt_index"], name="group_prompt_once_per_run"),
            models.UniqueConstraint(fields=["run", "task_version"], name="group_task_once_per_run"),
            models.UniqueConstraint(fields=["evaluation", "prompt_index"], name="group_prompt_once_per_evaluation"),
            models.CheckConstraint(
                condition=~models.Q(state="consumed") | models.Q(consumed_step__isnull=False),
                name="group_consumed_has_step",
            ),
        ]

    def __str__(self) -> str:
        return f"group {self.pk}"


class GroupTransition(Transition):
    group = models.ForeignKey(Group, on_delete=models.PROTECT, related_name="transitions")

    class Meta(Transition.Meta):
        constraints = [models.CheckConstraint(condition=legal_pairs(GROUP_LEGAL), name="group_legal_transition")]


class RolloutState(models.TextChoices):
    DISPATCHED = "dispatched"
    RUNNING = "running"
    GRADED = "graded"
    LOST = "lost", "infra error"


ROLLOUT_LEGAL = pairs(
    {"": ["dispatched"], "dispatched": ["running", "lost"], "running": ["graded", "dispatched", "lost"]}
)


class Rollout(models.Model):
    """One attempt. Exists from dispatch on and ends in exactly one verdict, which then never changes."""

    group = models.ForeignKey(Group, on_delete=models.PROTECT, related_name="rollouts")
    sample = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=RolloutState, default=RolloutState.DISPATCHED)
    verdict = models.CharField(
        max_length=11, blank=True, choices=[("passed", "Passed"), ("failed", "Failed"), ("infra_error", "Infra error")]
    )
    stop_reason = models.CharField(max_length=20, blank=True)
    reward = models.FloatField(null=True, blank=True)
    reward_parts = models.JSONField(default=list, help_text="[{name, value, weight, detail}]")
    cause = models.TextField(blank=True, help_text="Why it is not passed, in one line")
    turns = models.PositiveIntegerField(default=0)
    tool_calls = models.PositiveIntegerField(default=0)
    tool_errors = models.PositiveIntegerField(default=0)
    policy_tokens = models.PositiveIntegerField(default=0)
    total_tokens = models.PositiveIntegerField(default=0)
    oldest_version = models.IntegerField(null=True, blank=True)
    newest_version = models.IntegerField(null=True, blank=True)
    seconds = models.JSONField(default=dict, help_text="Wall seconds by phase")
    artifact_key = models.CharField(
        max_length=200, blank=True, help_text="Trajectory (zstd JSON) in the artifact store"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["verdict", "-id"], name="rollout_by_verdict"),
            models.Index(fields=["stop_reason", "-id"], name="rollout_by_stop"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["group", "sample"], name="rollout_once_per_sample"),
            models.CheckConstraint(
                condition=(models.Q(state__in=["graded", "lost"]) & ~models.Q(verdict=""))
                | (models.Q(state__in=["dispatched", "running"]) & models.Q(verdict="")),
                name="rollout_final_has_verdict",
            ),
            models.CheckConstraint(
                condition=~models.Q(verdict="infra_error") | models.Q(reward__isnull=True),
                name="rollout_infra_has_no_reward",
            ),
        ]

    def __str__(self) -> str:
        return f"rollout {self.pk}"


class RolloutTransition(Transition):
    rollout = models.ForeignKey(Rollout, on_delete=models.PROTECT, related_name="transitions")

    class Meta(Transition.Meta):
        constraints = [models.CheckConstraint(condition=legal_pairs(ROLLOUT_LEGAL), name="rollout_legal_transition")]
