"""Layouts of the charts page."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import composer_web.accounts.scoping


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0001_squashed_0005_people"),
        ("runs", "0009_config_names"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="ChartLayout",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=20)),
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
                    "run",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="chart_layouts",
                        to="runs.run",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("project", "kind", "run"), name="one_chart_layout_of_a_scope", nulls_distinct=False
                    )
                ],
            },
        ),
    ]
