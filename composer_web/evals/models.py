"""Evaluations of one policy version on a suite or a benchmark release."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from composer_web.accounts.audit_triggers import Audited
from composer_web.accounts.scoping import Material, Owned, ProjectOf
from composer_web.core.history import RecordsState, Transition, legal_pairs, pairs
from composer_web.core.triggers import AppendOnly, Immutable
from composer_web.policies.models import Policy
from composer_web.runs.models import Run
from composer_web.tasks.models import Suite, TaskVersion


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
    BEFORE = "before", "Baseline"
    DURING = "during", "During training"
    AFTER = "after", "Final"
    ALONE = "alone", "on its own"


class Release(Material):
    """One edition of a benchmark: task versions that never change. A refresh makes the next number, with new tasks.

    Its tasks are frozen by a trigger, whatever later becomes of the suite that they came from.
    """

    benchmark = models.SlugField(max_length=60)
    number = models.PositiveIntegerField()
    suite = models.ForeignKey(
        Suite, on_delete=models.PROTECT, related_name="releases", help_text="Where its tasks were taken from"
    )
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="children")
    notes = models.TextField(blank=True)
    digest = models.CharField(max_length=64, help_text="SHA-256 over the hashes of its bundles, in order")
    unreviewed = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Tasks that two reviewers had not admitted when it was published"
    )
    statistics = models.JSONField(default=dict, help_text="composer_web.evals.results.statistics.Statistics")
    contamination = models.JSONField(
        null=True, blank=True, help_text="composer_web.evals.results.contamination.Contamination"
    )
    versions = models.ManyToManyField(TaskVersion, through="ReleaseTask", related_name="releases")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["benchmark", "-number"]
        constraints = [models.UniqueConstraint(fields=["benchmark", "number"], name="release_number")]
        triggers = [
            ProjectOf("suite"),
            Immutable(
                "benchmark", "number", "suite_id", "parent_id", "digest", "statistics", "unreviewed", "created_at"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.benchmark}-{self.number}"


class ReleaseTask(models.Model):
    """A task version in a release, with its fixed statistics."""

    release = models.ForeignKey(Release, on_delete=models.PROTECT, related_name="members")
    task_version = models.ForeignKey(TaskVersion, on_delete=models.PROTECT, related_name="release_members")
    position = models.PositiveIntegerField()
    carried = models.BooleanField(default=False, help_text="The release before has the same version")
    lines = models.PositiveIntegerField(help_text="Lines that the oracle's patch adds or removes")
    files = models.PositiveIntegerField(help_text="Files that it changes")
    prompt_characters = models.PositiveIntegerField()

    class Meta:
        ordering = ["release_id", "position"]
        constraints = [
            models.UniqueConstraint(fields=["release", "position"], name="release_position"),
            models.UniqueConstraint(fields=["release", "task_version"], name="release_has_version_once"),
        ]
        triggers = [AppendOnly()]

    def __str__(self) -> str:
        return f"{self.release_id}[{self.position}]"


class Evaluation(Owned):
    """`samples` rollouts of each of `tasks` tasks of a suite, by one pinned policy version.

    With a `release` its tasks are all those of the release, and the suite is only where they came from.
    """

    run = models.ForeignKey(Run, on_delete=models.PROTECT, null=True, blank=True, related_name="evaluations")
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="evaluations")
    version = models.PositiveIntegerField(default=0)
    suite = models.ForeignKey(Suite, on_delete=models.PROTECT, related_name="evaluations")
    release = models.ForeignKey(Release, on_delete=models.PROTECT, null=True, blank=True, related_name="evaluations")
    effort = models.CharField(max_length=12, blank=True, help_text="Level of effort, as the person who asked calls it")
    phase = models.CharField(max_length=6, choices=Phase, default=Phase.ALONE)
    tasks = models.PositiveIntegerField()
    samples = models.PositiveIntegerField()
    temperature = models.FloatField()
    seed = models.PositiveBigIntegerField(default=0)
    conditions = models.JSONField(default=dict, help_text="Sampling and harness, as in the run's configuration")
    interruption = models.JSONField(
        null=True,
        blank=True,
        help_text="trainer.rollouts.interruption.Interruption: a person interrupts; such a score is ranked nowhere",
    )
    grader = models.ForeignKey(
        Policy,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="graded",
        help_text="The endpoint that grades its side evaluations by rubric",
    )
    sides = models.JSONField(default=dict, help_text="Aspect → composer_web.evals.results.behaviour_scores.Side")
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
        triggers = [ProjectOf("run"), RecordsState(), Audited("state", "tasks", "samples")]

    def __str__(self) -> str:
        return f"{self.suite_id} by {self.policy_id}@{self.version}"

    @property
    def open(self) -> bool:
        return self.state in (EvaluationState.PENDING, EvaluationState.RUNNING)

    @property
    def title(self) -> str:
        """Evaluated version and effort level."""
        effort = f" ({self.effort})" if self.effort else ""
        return f"{self.policy.at(self.version)}{effort}"


class EvaluationTransition(Transition):
    evaluation = models.ForeignKey(Evaluation, on_delete=models.PROTECT, related_name="transitions")

    class Meta(Transition.Meta):
        constraints = [
            models.CheckConstraint(condition=legal_pairs(EVALUATION_LEGAL), name="evaluation_legal_transition")
        ]


class SideScore(models.Model):
    """Score in [0, 1] of one aspect of a rollout besides its tests, by a rule or by a model under a rubric."""

    evaluation = models.ForeignKey(Evaluation, on_delete=models.PROTECT, related_name="side_scores")
    rollout = models.ForeignKey("rollouts.Rollout", on_delete=models.PROTECT, related_name="side_scores")
    aspect = models.CharField(max_length=24)
    value = models.FloatField()
    grader = models.CharField(max_length=200, blank=True, help_text="The model that graded; empty: a rule")
    rubric = models.CharField(max_length=40, blank=True, help_text="Version and digest of the rubric, or of the rule")
    detail = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["rollout_id", "aspect"]
        indexes = [models.Index(fields=["evaluation", "aspect"], name="side_score_by_aspect")]
        constraints = [
            models.UniqueConstraint(fields=["rollout", "aspect", "grader", "rubric"], name="side_score_once"),
            models.CheckConstraint(condition=models.Q(value__gte=0, value__lte=1), name="side_score_is_a_share"),
        ]

    def __str__(self) -> str:
        return f"{self.aspect} of rollout {self.rollout_id}: {self.value:.2f}"
