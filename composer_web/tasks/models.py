"""Tasks, their immutable versions, and the suites that group them."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.utils import timezone

from composer_web.accounts.audit_triggers import Audited
from composer_web.accounts.scoping import KeepsProject, Material, Owned, TaskPartManager
from composer_web.core.triggers import AppendOnly, Immutable
from composer_web.repositories.models import Environment
from composer_web.tasks import triggers
from sandbox.grading.version import GRADER
from sandbox.tasks.spec import TaskSpec


class Split(models.TextChoices):
    """Split assigned by a user. The task may not join a suite of the other split."""

    TRAIN = "train", "training"
    HELD_OUT = "held-out", "held out"
    BENCHMARK = "benchmark", "benchmark"


class ReviewState(models.TextChoices):
    """Review outcome of the newest version. A single review is not shown, so that the second is unbiased."""

    NEW = "new", "not reviewed"
    ONE = "one", "one review"
    ADMITTED = "admitted", "admitted"
    REJECTED = "rejected", "rejected"
    DISPUTED = "disputed", "disputed"


class Task(Material):
    """One problem under one name; the words and files live in its versions.

    `review` is kept by triggers from the reviews of its newest version; so is what lists show of that
    version and how hard it was when last measured: a list of all tasks reads no version.
    """

    slug = models.SlugField(max_length=128, unique=True, allow_unicode=False)
    source = models.CharField(max_length=20)
    category = models.CharField(max_length=20)
    family = models.CharField(max_length=200, blank=True)
    tags = ArrayField(models.CharField(max_length=40), default=list, db_default=[], blank=True)
    split = models.CharField(max_length=10, choices=Split, blank=True, default="", db_default="")
    review = models.CharField(max_length=10, choices=ReviewState, default=ReviewState.NEW, db_default="new")
    newest_version = models.ForeignKey(
        "TaskVersion", on_delete=models.PROTECT, null=True, blank=True, editable=False, related_name="+"
    )
    newest_number = models.PositiveIntegerField(null=True, blank=True, editable=False)
    controls_ok = models.BooleanField(null=True, blank=True, editable=False)
    test_strength = models.FloatField(null=True, blank=True, editable=False)
    pass_rate = models.FloatField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["slug"]
        indexes = [
            models.Index(fields=["controls_ok", "slug"], name="task_by_controls"),
            models.Index(fields=["test_strength", "slug"], name="task_by_strength"),
            models.Index(fields=["pass_rate", "slug"], name="task_by_pass_rate"),
            models.Index(fields=["source", "family"]),
            models.Index(fields=["family"], name="task_by_family"),
            models.Index(fields=["category"], name="task_by_category"),
            models.Index(fields=["review", "id"], name="task_by_review"),
            models.Index(fields=["split", "id"], name="task_by_split"),
            GinIndex(fields=["tags"], name="task_tags"),
        ]
        triggers = [
            KeepsProject(),
            triggers.NAME_OF_MEMBERS,
            triggers.NAME_IN_FINDINGS,
            Audited("slug", "category", "family", "tags", "split", "review", made=False),
        ]

    def __str__(self) -> str:
        return self.slug


class TaskVersion(models.Model):
    """The whole bundle of a task, frozen by a database trigger; a change makes the next version.

    `controls_ok` is None until the controls ran; only versions with True may train, and only once the present version of
    grading found that (`proof`).
    """

    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField(default=1)
    spec = models.JSONField(help_text="sandbox.tasks.spec.TaskSpec")
    bundle_hash = models.CharField(max_length=64, unique=True)
    environment = models.ForeignKey(
        Environment, on_delete=models.PROTECT, null=True, blank=True, related_name="task_versions"
    )
    controls = models.JSONField(null=True, blank=True, help_text="sandbox.grading.controls.Controls")
    controls_ok = models.BooleanField(null=True, blank=True)
    controls_at = models.DateTimeField(null=True, blank=True)
    test_strength = models.FloatField(
        null=True, blank=True, help_text="Share of small mutants of the oracle's patch that the hidden tests reject"
    )
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="Who wrote this version by hand; that person may not review it",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["task__slug", "number"]
        indexes = [
            # What lists show of a version, without the page of the bundle beside it.
            models.Index(
                fields=["task", "-number"],
                include=["id", "controls_ok", "test_strength"],
                name="newest_version_of_task",
            ),
            models.Index(fields=["id"], include=["controls_ok"], name="version_controls"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["task", "number"], name="task_version_number"),
            models.CheckConstraint(
                condition=models.Q(test_strength=None) | models.Q(test_strength__gte=0, test_strength__lte=1),
                name="test_strength_is_a_share",
            ),
        ]
        triggers = [
            Immutable("task_id", "number", "spec", "bundle_hash"),
            triggers.NEWEST_VERSION,
            triggers.SettlesReview("id", condition=triggers.Q(new__number__gt=1)),
            triggers.COUNTS_OF_CONTROLS,
            Audited("controls_ok", "test_strength", made=False),
        ]

    def __str__(self) -> str:
        return f"{self.task.slug} v{self.number}"

    @property
    def bundle(self) -> TaskSpec:
        return TaskSpec.model_validate(self.spec)

    @property
    def proof(self) -> bool | None:
        """What the controls of the present grading found; None before they ran. What an older one refused stays refused."""
        older = self.controls_ok and (self.controls or {}).get("grader", 0) < GRADER
        return None if older else self.controls_ok

    @staticmethod
    def unproved() -> models.Q:
        """Versions whose `proof` is None."""
        older = models.Q(controls=None) | ~models.Q(controls__has_key="grader") | models.Q(controls__grader__lt=GRADER)
        return models.Q(controls_ok=None) | models.Q(older, controls_ok=True)


class Suite(Material):
    """A named, ordered set of task versions: `train`, `held-out`, a benchmark release.

    Its counts are kept by triggers from its members and their controls: write other fields by name.
    """

    name = models.SlugField(max_length=80, unique=True)
    purpose = models.CharField(
        max_length=12,
        choices=[("train", "Training"), ("held-out", "Held out"), ("benchmark", "Benchmark")],
        default="benchmark",
    )
    description = models.TextField(blank=True)
    recipe = models.JSONField(default=dict, help_text="How its tasks were made: generator, seed, counts")
    reviewed = models.BooleanField(
        default=False, db_default=False, help_text="Only versions that two reviewers admitted may join; for good"
    )
    retired_at = models.DateTimeField(
        null=True, blank=True, help_text="When a successor took its place; new runs may not use it any more"
    )
    replaced_by = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="replaces")
    versions = models.ManyToManyField(TaskVersion, through="SuiteMembership", related_name="suites")
    task_count = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    valid_count = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    rejected_count = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(task_count__gte=models.F("valid_count") + models.F("rejected_count")),
                name="suite_counts_its_members",
            )
        ]
        triggers = [KeepsProject(), triggers.REVIEWED_SUITE, Audited("name", "purpose", "description", "reviewed")]

    def __str__(self) -> str:
        return self.name


class SuiteMembership(models.Model):
    """Triggers fill `task` from the version and `slug` from its name, for sorting on pages."""

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="memberships")
    task_version = models.ForeignKey(TaskVersion, on_delete=models.PROTECT, related_name="memberships")
    task = models.ForeignKey(Task, on_delete=models.PROTECT, null=True, blank=True, editable=False, related_name="+")
    slug = models.CharField(max_length=128, default="", db_default="", editable=False)
    position = models.PositiveIntegerField()

    class Meta:
        ordering = ["suite_id", "position"]
        indexes = [
            models.Index(fields=["suite", "task"], name="member_by_task"),
            models.Index(fields=["suite", "slug"], name="member_by_name"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["suite", "position"], name="suite_position"),
            models.UniqueConstraint(fields=["suite", "task_version"], name="suite_has_version_once"),
        ]
        triggers = [triggers.ADMITTED_MEMBER, triggers.TASK_OF_MEMBER, *triggers.COUNTS_OF_MEMBERS]

    def __str__(self) -> str:
        return f"{self.suite_id}[{self.position}]"


class TaskReview(models.Model):
    """One user's opinion of a task version. Append-only: a new opinion is a new row, and a user's newest counts."""

    task_version = models.ForeignKey(TaskVersion, on_delete=models.PROTECT, related_name="reviews")
    reviewer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="task_reviews")
    decision = models.CharField(
        max_length=9, choices=[("accept", "Accept"), ("reject", "Reject"), ("withdrawn", "Withdrawn")]
    )
    note = models.TextField(blank=True, max_length=2000)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["task_version", "reviewer", "-id"], include=["decision"], name="newest_opinion")
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(decision__in=["accept", "reject", "withdrawn"]), name="review_decision"
            )
        ]
        triggers = [AppendOnly(), triggers.BEFORE_REVIEW, triggers.SettlesReview("task_version_id")]

    def __str__(self) -> str:
        return f"{self.decision} of version {self.task_version_id}"


class TaskChange(models.Model):
    """One change of a task by a user, with the values before and after. Append-only; an undo is a separate change."""

    batch = models.UUIDField(default=uuid.uuid4, db_index=True, help_text="Changes made in one go")
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="changes")
    field = models.CharField(max_length=12, help_text="tags, split, suite or instruction")
    before = models.JSONField()
    after = models.JSONField()
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    actor_name = models.CharField(max_length=150)
    undoes = models.OneToOneField("self", on_delete=models.PROTECT, null=True, blank=True, related_name="undone_by")
    at = models.DateTimeField(auto_now_add=True)

    objects = TaskPartManager()

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["task", "-id"], name="changes_of_task")]
        triggers = [AppendOnly()]

    def __str__(self) -> str:
        return f"{self.field} of task {self.task_id}"


class TaskStatistic(models.Model):
    """Result of one policy version on a task in its last pre-pass. The curriculum uses it."""

    task_version = models.ForeignKey(TaskVersion, on_delete=models.CASCADE, related_name="statistics")
    policy = models.CharField(max_length=120)
    version = models.PositiveIntegerField(default=0)
    evaluation_id = models.PositiveBigIntegerField(help_text="Where it was measured")
    samples = models.PositiveIntegerField(help_text="Rollouts with a verdict of passed or failed")
    passed = models.PositiveIntegerField()
    turns = models.FloatField(default=0.0, help_text="Mean of a rollout")
    thinking_tokens = models.FloatField(default=0.0, help_text="Mean of a rollout")
    output_tokens = models.FloatField(default=0.0, help_text="Mean of a rollout")
    measured_at = models.DateTimeField()

    class Meta:
        ordering = ["-measured_at", "task_version_id"]
        constraints = [
            models.UniqueConstraint(fields=["task_version", "policy", "version"], name="one_statistic_per_policy"),
            models.CheckConstraint(condition=models.Q(passed__lte=models.F("samples")), name="statistic_is_a_share"),
            models.CheckConstraint(condition=models.Q(samples__gte=1), name="statistic_has_samples"),
        ]
        indexes = [models.Index(fields=["policy", "-measured_at"], name="statistic_by_policy")]
        triggers = [triggers.PASS_RATE]

    def __str__(self) -> str:
        return f"{self.policy}@{self.version} on {self.task_version_id}"

    @property
    def pass_rate(self) -> float:
        return self.passed / self.samples


class ImportedTrajectory(Owned):
    """A trajectory imported from another project, as listed. Its steps are an artifact under `name`. It has no
    verdict of ours."""

    name = models.SlugField(max_length=32, unique=True, help_text="Begin of the SHA-256 of its content")
    title = models.CharField(max_length=200, help_text="Its id in the project that it comes from")
    format = models.CharField(max_length=16)
    task = models.CharField(max_length=200, blank=True)
    agent = models.CharField(max_length=200, blank=True)
    model = models.CharField(max_length=200, blank=True)
    steps = models.PositiveIntegerField()
    output_tokens = models.PositiveIntegerField(default=0)
    reward = models.FloatField(null=True, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        triggers = [KeepsProject()]

    def __str__(self) -> str:
        return self.title


class GeneratorRun(Owned):
    """Attempts, results and costs of one run of a task generator on one package."""

    generator = models.CharField(max_length=20)
    package = models.CharField(max_length=200)
    split = models.CharField(max_length=10)
    seed = models.PositiveBigIntegerField(default=0)
    tried = models.PositiveIntegerField()
    kept = models.PositiveIntegerField()
    rejected = models.JSONField(default=dict, help_text="Reason → drafts")
    operators = models.JSONField(default=dict, help_text="Operator → [tried, kept]")
    seconds = models.FloatField(help_text="Wall time")
    control_seconds = models.FloatField(default=0.0)
    model_tokens = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(kept__lte=models.F("tried")), name="generator_keeps_what_it_tried"
            )
        ]
        triggers = [KeepsProject()]

    def __str__(self) -> str:
        return f"{self.generator} over {self.package}"

    @property
    def share(self) -> float:
        return self.kept / self.tried if self.tried else 0.0

    @property
    def per_minute(self) -> float:
        return 60.0 * self.kept / self.seconds if self.seconds else 0.0


class GenerationState(models.TextChoices):
    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    FINISHED = "finished", "finished"
    EMPTY = "empty", "no task"
    FAILED = "failed", "failed"
    STOPPED = "stopped", "stopped"


class GenerationJob(Owned):
    """A requested suite of generated tasks, and how far it is."""

    name = models.CharField(max_length=80, help_text="Name of the suite")
    generators = ArrayField(models.CharField(max_length=20))
    packages = ArrayField(models.CharField(max_length=200), default=list)
    state = models.CharField(max_length=10, choices=GenerationState, default=GenerationState.QUEUED)
    requested = models.PositiveIntegerField(help_text="Most tasks that the job makes", default=0)
    kept = models.PositiveIntegerField(default=0, help_text="Tasks so far; of an ended job, tasks of its suite")
    tried = models.PositiveIntegerField(default=0, help_text="Drafts so far")
    current = models.CharField(max_length=220, blank=True, help_text="Generator and package under way")
    why = models.TextField(blank=True, help_text="What kept it from giving tasks")
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    requested_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=["queued", "running"]) | models.Q(ended_at__isnull=False),
                name="generation_that_ended_says_when",
            )
        ]
        triggers = [KeepsProject()]

    def __str__(self) -> str:
        return f"{self.name} ({self.state})"

    @property
    def has_ended(self) -> bool:
        return self.state not in (GenerationState.QUEUED, GenerationState.RUNNING)

    @property
    def tone(self) -> str:
        """The state whose colour it has."""
        return "warning" if self.state == GenerationState.EMPTY else str(self.state)

    @property
    def per_minute(self) -> float | None:
        """Tasks a minute since it started; None before the first."""
        if self.started_at is None or not self.kept:
            return None
        seconds = ((self.ended_at or timezone.now()) - self.started_at).total_seconds()
        return 60.0 * self.kept / seconds if seconds > 0 else None

    @property
    def eta_seconds(self) -> float | None:
        """Time until all requested tasks are there at the present rate: an upper bound, since generators may run out."""
        rate = self.per_minute
        return None if self.has_ended or not rate else 60.0 * max(0, self.requested - self.kept) / rate
