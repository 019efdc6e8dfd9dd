"""Tasks, their immutable versions, and the suites that group them."""

from __future__ import annotations

from django.db import models

from composer_web.repositories.models import Environment
from sandbox.tasks.spec import TaskSpec


class Task(models.Model):
    """One problem under one name; the words and files live in its versions."""

    slug = models.SlugField(max_length=128, unique=True, allow_unicode=False)
    source = models.CharField(max_length=20)
    category = models.CharField(max_length=20)
    family = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["slug"]
        indexes = [models.Index(fields=["source", "family"])]

    def __str__(self) -> str:
        return self.slug


class TaskVersion(models.Model):
    """The whole bundle of a task, frozen by a database trigger; a change makes the next version.

    `controls_ok` is None until the controls ran; only versions with True may train.
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
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["task__slug", "number"]
        constraints = [
            models.UniqueConstraint(fields=["task", "number"], name="task_version_number"),
            models.CheckConstraint(
                condition=models.Q(test_strength=None) | models.Q(test_strength__gte=0, test_strength__lte=1),
                name="test_strength_is_a_share",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.task.slug} v{self.number}"

    @property
    def bundle(self) -> TaskSpec:
        return TaskSpec.model_validate(self.spec)


class Suite(models.Model):
    """A named, ordered set of task versions: `train`, `held-out`, a benchmark release."""

    name = models.SlugField(max_length=80, unique=True)
    purpose = models.CharField(
        max_length=12,
        choices=[("train", "Training"), ("held-out", "Held out"), ("benchmark", "Benchmark")],
        default="benchmark",
    )
    description = models.TextField(blank=True)
    recipe = models.JSONField(default=dict, help_text="How its tasks were made: generator, seed, counts")
    versions = models.ManyToManyField(TaskVersion, through="SuiteMembership", related_name="suites")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class SuiteMembership(models.Model):
    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="memberships")
    task_version = models.ForeignKey(TaskVersion, on_delete=models.PROTECT, related_name="memberships")
    position = models.PositiveIntegerField()

    class Meta:
        ordering = ["suite_id", "position"]
        constraints = [
            models.UniqueConstraint(fields=["suite", "position"], name="suite_position"),
            models.UniqueConstraint(fields=["suite", "task_version"], name="suite_has_version_once"),
        ]

    def __str__(self) -> str:
        return f"{self.suite_id}[{self.position}]"
