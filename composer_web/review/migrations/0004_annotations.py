"""Annotations of rollouts. A row never changes but for its removal."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import composer_web.accounts.scoping


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0001_squashed_0005_people"),
        ("review", "0001_squashed_0003_projects"),
        ("rollouts", "0017_config_names"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Annotation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("verdict", "Verdict"),
                            ("tag", "Tag"),
                            ("comment", "Comment"),
                            ("needs_review", "needs review"),
                            ("assignee", "Assignee"),
                        ],
                        max_length=12,
                    ),
                ),
                ("value", models.CharField(blank=True, help_text="The verdict or the tag", max_length=40)),
                ("text", models.TextField(blank=True, help_text="The comment", max_length=4000)),
                (
                    "turn",
                    models.PositiveIntegerField(
                        blank=True, help_text="Turn of a comment; null: the whole rollout", null=True
                    ),
                ),
                (
                    "token_start",
                    models.PositiveIntegerField(blank=True, help_text="First token within the turn", null=True),
                ),
                ("token_end", models.PositiveIntegerField(blank=True, help_text="One past its last token", null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("removed_at", models.DateTimeField(blank=True, null=True)),
                (
                    "assignee",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "author",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="annotations",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        db_default=1,
                        db_index=False,
                        default=composer_web.accounts.scoping.project_now,
                        editable=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.project",
                    ),
                ),
                (
                    "removed_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "rollout",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="annotations", to="rollouts.rollout"
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("removed_at__isnull", True)),
                        fields=["kind", "value", "rollout"],
                        name="annotation_by_value",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("kind", "verdict"), ("removed_at__isnull", True)),
                        fields=("rollout", "author"),
                        name="annotation_one_verdict",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("kind", "tag"), ("removed_at__isnull", True)),
                        fields=("rollout", "value"),
                        name="annotation_tag_once",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("kind__in", ["needs_review", "assignee"]), ("removed_at__isnull", True)),
                        fields=("rollout", "kind"),
                        name="annotation_one_of_kind",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("token_end__isnull", True), ("token_start__isnull", True)),
                            models.Q(("token_start__lt", models.F("token_end")), ("turn__isnull", False)),
                            _connector="OR",
                        ),
                        name="annotation_tokens_of_turn",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("assignee__isnull", False), ("kind", "assignee")),
                            models.Q(models.Q(("kind", "assignee"), _negated=True), ("assignee__isnull", True)),
                            _connector="OR",
                        ),
                        name="annotation_has_assignee",
                    ),
                ],
            },
        ),
    ]
