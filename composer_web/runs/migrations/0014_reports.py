"""Reports, and the default panels of the installation."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import composer_web.accounts.scoping


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0001_squashed_0005_people"),
        ("runs", "0013_run_logs"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="DefaultChartLayout",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "kind",
                    models.CharField(
                        choices=[("midtrain", "Mid-training"), ("sft", "SFT"), ("rl", "RL")], max_length=20, unique=True
                    ),
                ),
                ("panels", models.JSONField(help_text="[composer_web.runs.charts.layouts.PanelSpec]")),
                ("changed_at", models.DateTimeField(auto_now=True)),
                (
                    "changed_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["kind"],
            },
        ),
        migrations.CreateModel(
            name="Report",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("title", models.CharField(max_length=120)),
                ("description", models.CharField(blank=True, max_length=500)),
                ("blocks", models.JSONField(default=list, help_text="[composer_web.runs.reports.blocks.Block]")),
                (
                    "version",
                    models.PositiveIntegerField(
                        default=1, help_text="Number of saves. An edit of an older version is refused"
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "author",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
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
            ],
            options={
                "ordering": ["-pk"],
                "indexes": [models.Index(fields=["project", "-updated_at"], name="report_newest")],
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("title", ""), _negated=True), name="report_has_a_title"),
                    models.CheckConstraint(condition=models.Q(("version__gte", 1)), name="report_version_from_1"),
                ],
            },
        ),
    ]
