"""Groups of rollouts, rollouts with one verdict each, and findings of the monitors."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models

from composer_web.accounts.audit_triggers import Audited
from composer_web.accounts.scoping import Owned, ProjectOf
from composer_web.core.history import RecordsState, Transition, legal_pairs, pairs
from composer_web.core.triggers import Immutable
from composer_web.evals.models import Evaluation
from composer_web.policies.models import Policy
from composer_web.rollouts import export_models  # noqa: F401 (Django finds the models of an app here)
from composer_web.rollouts.triggers import DECIDED, TASK_OF_FINDING
from composer_web.runs.deletion_models import FileDeletion
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


class Group(Owned):
    """All rollouts of one prompt, for one run, one evaluation or one fork.

    Single epoch: in a run each prompt index and each task version occurs once (constraints below).
    """

    # Without indexes of their own: those below begin with them.
    run = models.ForeignKey(Run, on_delete=models.PROTECT, null=True, blank=True, related_name="groups", db_index=False)
    evaluation = models.ForeignKey(
        Evaluation, on_delete=models.PROTECT, null=True, blank=True, related_name="groups", db_index=False
    )
    fork = models.OneToOneField("Fork", on_delete=models.PROTECT, null=True, blank=True, related_name="group")
    task_version = models.ForeignKey(TaskVersion, on_delete=models.PROTECT, related_name="groups")
    prompt_index = models.PositiveIntegerField(help_text="Place in the seeded order of the suite")
    size = models.PositiveIntegerField(help_text="Rollouts of the group (G, or samples of an evaluation)")
    state = models.CharField(max_length=16, choices=GroupState, default=GroupState.PENDING)
    dispatched_version = models.IntegerField(default=-1)
    oldest_version = models.IntegerField(null=True, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    infra_errors = models.PositiveIntegerField(default=0, help_text="Failed attempts, never trained on")
    cause = models.TextField(blank=True, help_text="Why it was retried or dropped, in one line")
    outcome = models.CharField(
        max_length=32,
        blank=True,
        default="",
        db_default="",
        help_text="The same: sandbox.grading.verdict.outcomes.Cause",
    )
    mean_reward = models.FloatField(null=True, blank=True)
    best_reward = models.FloatField(null=True, blank=True)
    consumed_step = models.PositiveIntegerField(null=True, blank=True)
    train_key = models.CharField(max_length=200, blank=True, help_text="TrainGroup in the artifact store")
    weights = models.JSONField(
        null=True,
        blank=True,
        help_text="Sample → reward and advantage of that TrainGroup (composer_web.rollouts.dispatch.advantages)",
    )
    audited_with = models.CharField(max_length=12, blank=True, help_text="Versions of the rules that read it")
    created_at = models.DateTimeField(auto_now_add=True)
    dispatched_at = models.DateTimeField(null=True, blank=True)
    accepted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["run", "state", "prompt_index"], name="group_by_state"),
            models.Index(fields=["evaluation", "state"], name="group_by_evaluation"),
            models.Index(
                fields=["consumed_step"], condition=models.Q(consumed_step__isnull=False), name="group_by_trained_step"
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(run__isnull=False, evaluation__isnull=True, fork__isnull=True)
                | models.Q(run__isnull=True, evaluation__isnull=False, fork__isnull=True)
                | models.Q(run__isnull=True, evaluation__isnull=True, fork__isnull=False),
                name="group_has_one_owner",
            ),
            models.UniqueConstraint(fields=["run", "prompt_index"], name="group_prompt_once_per_run"),
            models.UniqueConstraint(fields=["run", "task_version"], name="group_task_once_per_run"),
            models.UniqueConstraint(fields=["evaluation", "prompt_index"], name="group_prompt_once_per_evaluation"),
            models.CheckConstraint(
                condition=~models.Q(state="consumed") | models.Q(consumed_step__isnull=False),
                name="group_consumed_has_step",
            ),
        ]
        triggers = [
            ProjectOf("run", "evaluation", "fork"),
            RecordsState(),
            Immutable("run_id", "evaluation_id", "task_version_id", "prompt_index", "size", "fork_id"),
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


ROLLOUT_OPEN = ("dispatched", "running")
"""States without a verdict. Filter by these: for `verdict=""`, Postgres would read the index of verdicts."""
ROLLOUT_LEGAL = pairs(
    {"": ["dispatched"], "dispatched": ["running", "lost"], "running": ["graded", "dispatched", "lost"]}
)


class Rollout(Owned):
    """One attempt. It exists from dispatch on and ends in exactly one verdict, which never changes."""

    # No index of its own: `rollout_once_per_sample` begins with it.
    group = models.ForeignKey(Group, on_delete=models.PROTECT, related_name="rollouts", db_index=False)
    sample = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=RolloutState, default=RolloutState.DISPATCHED)
    verdict = models.CharField(
        max_length=11, blank=True, choices=[("passed", "Passed"), ("failed", "Failed"), ("infra_error", "Infra error")]
    )
    stop_reason = models.CharField(max_length=20, blank=True)
    reward = models.FloatField(null=True, blank=True)
    reward_parts = models.JSONField(default=list, help_text="[{name, value, weight, detail}]")
    cause = models.TextField(blank=True, help_text="Why it is not passed, in one line")
    outcome = models.CharField(
        max_length=32,
        blank=True,
        default="",
        db_default="",
        help_text="The same: sandbox.grading.verdict.outcomes.Cause",
    )
    turns = models.PositiveIntegerField(default=0)
    tool_calls = models.PositiveIntegerField(default=0)
    tool_errors = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    total_tokens = models.PositiveIntegerField(default=0)
    input_tokens = models.PositiveIntegerField(
        null=True, blank=True, help_text="Read by an endpoint, over all requests; empty for weights of our own"
    )
    cached_tokens = models.PositiveIntegerField(
        null=True, blank=True, help_text="Of these, those that it took from its cache"
    )
    oldest_version = models.IntegerField(null=True, blank=True)
    newest_version = models.IntegerField(null=True, blank=True)
    seconds = models.JSONField(default=dict, help_text="Wall seconds by phase")
    artifact_key = models.CharField(
        max_length=200, blank=True, help_text="Trajectory (zstd JSON) in the artifact store"
    )
    deletion = models.ForeignKey(
        FileDeletion,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="trajectories",
        db_index=False,
        help_text="What deleted its trajectory; empty: it is kept",
    )
    snapshots = models.JSONField(default=list, help_text="Digests of the snapshots that its turns name")
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["project", "-id"], name="rollout_by_project"),
            models.Index(fields=["verdict", "-id"], name="rollout_by_verdict"),
            models.Index(fields=["stop_reason", "-id"], name="rollout_by_stop"),
            # One for each other column that the list can be sorted by.
            models.Index(fields=["reward"], name="rollout_by_reward"),
            models.Index(fields=["turns"], name="rollout_by_turns"),
            models.Index(fields=["tool_errors"], name="rollout_by_errors"),
            models.Index(fields=["output_tokens"], name="rollout_by_tokens"),
            models.Index(fields=["oldest_version"], name="rollout_by_version"),
            models.Index(fields=["finished_at"], name="rollout_by_end"),
            models.Index(
                fields=["-finished_at", "-id"], condition=models.Q(verdict="failed"), name="rollout_by_failure"
            ),
            models.Index(fields=["finished_at"], condition=models.Q(verdict="infra_error"), name="rollout_by_loss"),
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
            models.CheckConstraint(
                condition=models.Q(deletion=None) | ~models.Q(artifact_key=""), name="rollout_deleted_was_recorded"
            ),
        ]
        triggers = [
            ProjectOf("group"),
            RecordsState(),
            Immutable(
                *("group_id", "sample", "verdict", "reward", "reward_parts", "stop_reason", "artifact_key"),
                only="OLD.state IN ('graded', 'lost')",
            ),
            Immutable("deletion_id", only="OLD.deletion_id IS NOT NULL", name="deleted"),
        ]

    def __str__(self) -> str:
        return f"rollout {self.pk}"


class RolloutText(models.Model):
    """Indexed words of a rollout for full-text search (`fulltext.py`), written when it is recorded."""

    rollout = models.OneToOneField(Rollout, on_delete=models.CASCADE, primary_key=True, related_name="text")
    words = SearchVectorField()
    missing = models.PositiveBigIntegerField(default=0, help_text="Characters that are not indexed")

    class Meta:
        indexes = [GinIndex(fields=["words"], name="rollout_words")]

    def __str__(self) -> str:
        return f"words of rollout {self.rollout_id}"


class Fork(Owned):
    """Continuations of a recorded rollout from one of its turns, in a group of their own that is never trained on."""

    parent = models.ForeignKey(Rollout, on_delete=models.PROTECT, related_name="forks")
    turn = models.PositiveIntegerField(help_text="Turns of the parent that are kept")
    run = models.ForeignKey(
        Run, on_delete=models.PROTECT, null=True, blank=True, related_name="forks", help_text="Run of the first parent"
    )
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="forks", help_text="Gives the tokenizer")
    reference = models.CharField(
        max_length=120, blank=True, help_text="name@version that continues; empty: the newest version of the run"
    )
    conditions = models.JSONField(default=dict, help_text="Sampling, harness and reward, as the parent had them")
    seed = models.PositiveBigIntegerField(default=0)
    replayed = models.PositiveIntegerField(
        null=True, blank=True, help_text="Turns whose calls were run again for want of a snapshot"
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        constraints = [models.CheckConstraint(condition=models.Q(turn__gte=1), name="fork_keeps_a_turn")]
        triggers = [
            ProjectOf("parent"),
            Immutable("parent_id", "turn", "run_id", "policy_id", "reference", "conditions", "seed"),
        ]

    def __str__(self) -> str:
        return f"fork {self.pk} of rollout {self.parent_id}"


class RolloutTransition(Transition):
    rollout = models.ForeignKey(Rollout, on_delete=models.PROTECT, related_name="transitions")

    class Meta(Transition.Meta):
        constraints = [models.CheckConstraint(condition=legal_pairs(ROLLOUT_LEGAL), name="rollout_legal_transition")]


class FindingState(models.TextChoices):
    OPEN = "open"
    CONFIRMED = "confirmed"
    DISMISSED = "dismissed"


FINDING_LEGAL = pairs(
    {
        "": ["open"],
        "open": ["confirmed", "dismissed"],
        "confirmed": ["open", "dismissed"],
        "dismissed": ["open", "confirmed"],
    }
)


class Finding(Owned):
    """A monitor's hit on a rollout, a group, a task or a run: what it says, where, and what people made of it.

    One row for each rule and subject (and `key`, for rules that may hit a run several times). Whatever is known of
    run, task and group is filled in, so that lists can be narrowed; `subject` says what the finding is about. `slug` is
    the task's name, filled in by triggers: by it the list is narrowed, sorted and counted.
    """

    subject = models.CharField(
        max_length=8, choices=[("rollout", "Rollout"), ("group", "Group"), ("task", "Task"), ("run", "Run")]
    )
    run = models.ForeignKey(Run, on_delete=models.PROTECT, null=True, blank=True, related_name="findings")
    task_version = models.ForeignKey(
        TaskVersion, on_delete=models.PROTECT, null=True, blank=True, related_name="findings"
    )
    slug = models.CharField(max_length=128, default="", db_default="", editable=False)
    group = models.ForeignKey(Group, on_delete=models.PROTECT, null=True, blank=True, related_name="findings")
    rollout = models.ForeignKey(Rollout, on_delete=models.PROTECT, null=True, blank=True, related_name="findings")
    source = models.CharField(
        max_length=8,
        choices=[("rules", "Rules"), ("monitor", "Monitor of a run"), ("judge", "Language model")],
        default="rules",
    )
    rule = models.CharField(max_length=40)
    rule_version = models.PositiveIntegerField()
    key = models.CharField(max_length=40, blank=True, help_text="Tells hits of one rule on one subject apart")
    severity = models.CharField(max_length=6, choices=[("high", "High"), ("medium", "Medium"), ("low", "Low")])
    summary = models.TextField()
    evidence = models.JSONField(default=list, help_text="[sandbox.grading.audit.Evidence]")
    hits = models.PositiveIntegerField(default=1)
    fingerprint = models.CharField(max_length=16, blank=True)
    state = models.CharField(max_length=16, choices=FindingState, default=FindingState.OPEN)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    decided_at = models.DateTimeField(null=True, blank=True)
    note = models.TextField(blank=True, help_text="Why it was decided so")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["state", "severity", "-id"], name="finding_by_state"),
            models.Index(fields=["run"], condition=models.Q(severity="high", state="open"), name="finding_to_triage"),
            models.Index(fields=["project", "-id"], name="finding_by_project"),
            models.Index(fields=["run", "-id"], name="finding_by_run"),
            models.Index(fields=["rule", "-id"], name="finding_by_rule"),
            models.Index(fields=["slug", "-id"], name="finding_by_task"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(
                    subject="rollout", rollout__isnull=False, group__isnull=False, task_version__isnull=False
                )
                | models.Q(subject="group", rollout__isnull=True, group__isnull=False, task_version__isnull=False)
                | models.Q(subject="task", rollout__isnull=True, group__isnull=True, task_version__isnull=False)
                | models.Q(
                    subject="run",
                    run__isnull=False,
                    rollout__isnull=True,
                    group__isnull=True,
                    task_version__isnull=True,
                ),
                name="finding_has_its_subject",
            ),
            models.CheckConstraint(
                condition=models.Q(state="open") | models.Q(decided_at__isnull=False), name="finding_decided_when"
            ),
            models.UniqueConstraint(
                fields=["rollout", "rule", "key"],
                condition=models.Q(subject="rollout"),
                name="finding_once_per_rollout",
            ),
            models.UniqueConstraint(
                fields=["group", "rule", "key"], condition=models.Q(subject="group"), name="finding_once_per_group"
            ),
            models.UniqueConstraint(
                fields=["task_version", "rule", "key"], condition=models.Q(subject="task"), name="finding_once_per_task"
            ),
            models.UniqueConstraint(
                fields=["run", "rule", "key"], condition=models.Q(subject="run"), name="finding_once_per_run"
            ),
        ]
        triggers = [
            ProjectOf("rollout", "group", "run"),
            TASK_OF_FINDING,
            RecordsState(),
            Immutable(
                *("subject", "run_id", "task_version_id", "group_id", "rollout_id"),
                *("rule", "key", "source", "created_at"),
            ),
            DECIDED,
            Audited("state", "note", made=False),
        ]

    def __str__(self) -> str:
        return (
            f"{self.rule} on {self.subject} {self.rollout_id or self.group_id or self.task_version_id or self.run_id}"
        )


class FindingTransition(Transition):
    finding = models.ForeignKey(Finding, on_delete=models.PROTECT, related_name="transitions")

    class Meta(Transition.Meta):
        constraints = [models.CheckConstraint(condition=legal_pairs(FINDING_LEGAL), name="finding_legal_transition")]


class QuarantineState(models.TextChoices):
    ACTIVE = "active"
    LIFTED = "lifted"


QUARANTINE_LEGAL = pairs({"": ["active"], "active": ["lifted"], "lifted": ["active"]})


class Quarantine(models.Model):
    """A rollout excluded from training, or a task excluded from dispatch. One row each; the history has dates and
    reasons."""

    rollout = models.OneToOneField(Rollout, on_delete=models.PROTECT, null=True, blank=True, related_name="quarantine")
    task_version = models.OneToOneField(
        TaskVersion, on_delete=models.PROTECT, null=True, blank=True, related_name="quarantine"
    )
    state = models.CharField(max_length=16, choices=QuarantineState, default=QuarantineState.ACTIVE)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(rollout__isnull=True) ^ models.Q(task_version__isnull=True),
                name="quarantine_has_one_subject",
            )
        ]
        triggers = [
            RecordsState(),
            Immutable("rollout_id", "task_version_id", "created_at"),
            Audited("state"),
        ]

    def __str__(self) -> str:
        return f"quarantine of {'rollout' if self.rollout_id else 'task version'} {self.rollout_id or self.task_version_id}"


class QuarantineTransition(Transition):
    quarantine = models.ForeignKey(Quarantine, on_delete=models.PROTECT, related_name="transitions")

    class Meta(Transition.Meta):
        constraints = [
            models.CheckConstraint(condition=legal_pairs(QUARANTINE_LEGAL), name="quarantine_legal_transition")
        ]
