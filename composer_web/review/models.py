"""Review queues of trajectories with labels, annotations of rollouts, and drafts of tasks created from trajectories."""

from __future__ import annotations

from typing import get_args

from django.conf import settings
from django.db import models

from composer_web.accounts.audit_triggers import Audited
from composer_web.accounts.scoping import KeepsProject, Owned, ProjectOf
from composer_web.core.triggers import AppendOnly, Immutable
from composer_web.review.questions import Questionnaire
from composer_web.rollouts.models import Rollout
from composer_web.tasks.models import TaskVersion
from sandbox.tasks.spec import Category


class Queue(Owned):
    """Rollouts with questions that several independent reviewers answer about each."""

    name = models.SlugField(max_length=80, unique=True)
    title = models.CharField(max_length=200)
    questions = models.JSONField(help_text="composer_web.review.questions.Questionnaire; never changes")
    reviewers = models.PositiveSmallIntegerField(default=1, help_text="Independent reviewers of each rollout")
    closed_at = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(reviewers__gte=1, reviewers__lte=9), name="queue_has_one_to_nine_reviewers"
            )
        ]
        triggers = [
            KeepsProject(),
            Immutable("name", "questions", "reviewers"),
            Audited("name", "title", "reviewers", "questions", "closed_at"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def questionnaire(self) -> Questionnaire:
        return Questionnaire.model_validate(self.questions)


class QueueItem(models.Model):
    queue = models.ForeignKey(Queue, on_delete=models.PROTECT, related_name="items")
    rollout = models.ForeignKey(Rollout, on_delete=models.PROTECT, related_name="queue_items")
    labelled_by = models.PositiveSmallIntegerField(default=0, help_text="People whose label counts")

    class Meta:
        ordering = ["queue_id", "id"]
        indexes = [models.Index(fields=["queue", "labelled_by", "id"], name="open_items_of_queue")]
        constraints = [models.UniqueConstraint(fields=["queue", "rollout"], name="queue_has_rollout_once")]

    def __str__(self) -> str:
        return f"{self.queue_id}[{self.rollout_id}]"


class Label(models.Model):
    """One user's submission about one rollout. Append-only; a user's newest counts."""

    item = models.ForeignKey(QueueItem, on_delete=models.PROTECT, related_name="labels")
    reviewer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="labels")
    answers = models.JSONField(help_text="Question → answer")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["item", "reviewer", "-id"], name="newest_label")]
        triggers = [AppendOnly()]

    def __str__(self) -> str:
        return f"label {self.pk} of item {self.item_id}"


class Answer(models.Model):
    """One value of the current label, for filtering lists. Rewritten with each submission."""

    item = models.ForeignKey(QueueItem, on_delete=models.CASCADE, related_name="answers")
    reviewer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    question = models.CharField(max_length=40)
    value = models.CharField(max_length=40)

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["question", "value", "item"], name="answers_by_value")]
        constraints = [
            models.UniqueConstraint(fields=["item", "reviewer", "question", "value"], name="one_answer_of_a_person")
        ]

    def __str__(self) -> str:
        return f"{self.question}={self.value}"


class AnnotationKind(models.TextChoices):
    VERDICT = "verdict"
    TAG = "tag"
    COMMENT = "comment"
    NEEDS_REVIEW = "needs_review", "needs review"
    ASSIGNEE = "assignee"


VERDICTS = ("good", "bad", "unsure")
"""Values of a verdict annotation. Independent of the grader's verdict."""


class Annotation(Owned):
    """A person's mark on a rollout, set on its page: verdict, tag, comment, request for review, or assignee.

    Nothing changes but its removal, so a rollout's annotations are also their history.
    """

    rollout = models.ForeignKey(Rollout, on_delete=models.PROTECT, related_name="annotations")
    kind = models.CharField(max_length=12, choices=AnnotationKind)
    value = models.CharField(max_length=40, blank=True, help_text="The verdict or the tag")
    text = models.TextField(max_length=4000, blank=True, help_text="The comment")
    turn = models.PositiveIntegerField(null=True, blank=True, help_text="Turn of a comment; null: the whole rollout")
    token_start = models.PositiveIntegerField(null=True, blank=True, help_text="First token within the turn")
    token_end = models.PositiveIntegerField(null=True, blank=True, help_text="One past its last token")
    assignee = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="annotations")
    created_at = models.DateTimeField(auto_now_add=True)
    removed_at = models.DateTimeField(null=True, blank=True)
    removed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(
                fields=["kind", "value", "rollout"],
                condition=models.Q(removed_at__isnull=True),
                name="annotation_by_value",
            )
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["rollout", "author"],
                condition=models.Q(kind="verdict", removed_at__isnull=True),
                name="annotation_one_verdict",
            ),
            models.UniqueConstraint(
                fields=["rollout", "value"],
                condition=models.Q(kind="tag", removed_at__isnull=True),
                name="annotation_tag_once",
            ),
            models.UniqueConstraint(
                fields=["rollout", "kind"],
                condition=models.Q(kind__in=["needs_review", "assignee"], removed_at__isnull=True),
                name="annotation_one_of_kind",
            ),
            models.CheckConstraint(
                condition=models.Q(token_start__isnull=True, token_end__isnull=True)
                | models.Q(turn__isnull=False, token_start__lt=models.F("token_end")),
                name="annotation_tokens_of_turn",
            ),
            models.CheckConstraint(
                condition=models.Q(kind="assignee", assignee__isnull=False)
                | (~models.Q(kind="assignee") & models.Q(assignee__isnull=True)),
                name="annotation_has_assignee",
            ),
        ]
        triggers = [
            ProjectOf("rollout"),
            Immutable(
                *("rollout_id", "kind", "value", "text", "turn", "token_start", "token_end", "assignee_id", "author_id")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of rollout {self.rollout_id}"


class Draft(Owned):
    """A draft task from a turn of a recorded session. Publishing creates a task version."""

    slug = models.SlugField(max_length=100, unique=True)
    category = models.CharField(max_length=20, choices=[(name, name) for name in get_args(Category)], default="debug")
    instruction = models.TextField(max_length=20_000)
    state = models.CharField(
        max_length=10,
        choices=[
            ("collecting", "Collecting files"),
            ("open", "Open"),
            ("failed", "Failed"),
            ("published", "Published"),
            ("discarded", "Discarded"),
        ],
        default="collecting",
    )
    cause = models.TextField(blank=True, help_text="Why collecting failed")
    rollout = models.ForeignKey(Rollout, on_delete=models.PROTECT, related_name="drafts")
    turn = models.PositiveIntegerField(help_text="Turns of the session whose changes are kept")
    provenance = models.JSONField(default=dict, help_text="Source bundle, snapshot, replayed turns, policy versions")
    files = models.JSONField(default=dict, help_text="Path → text of what the session changed; null: removed")
    not_carried = models.JSONField(default=list, help_text="What of the environment a bundle cannot hold")
    verifier = models.JSONField(null=True, blank=True, help_text="sandbox.tasks.spec verifier; null: the source task's")
    gold = models.JSONField(null=True, blank=True, help_text="Path → text; null: the source task's")
    version = models.OneToOneField(
        TaskVersion, on_delete=models.PROTECT, null=True, blank=True, related_name="draft", help_text="What it became"
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state="published", version__isnull=False)
                | (~models.Q(state="published") & models.Q(version__isnull=True)),
                name="draft_published_has_version",
            )
        ]
        triggers = [ProjectOf("rollout"), Audited("slug", "state", "instruction")]

    def __str__(self) -> str:
        return self.slug
