"""One table of saved views for all lists, with those that runs and rollouts kept in tables of their own."""

from __future__ import annotations

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import composer_web.accounts.scoping

TABLES = ("runs", "rollouts", "tasks", "evaluations", "findings", "annotations")


def moved(table: str, old: str) -> migrations.RunSQL:
    """Views of one list from their old table, and back."""
    columns = "project_id, owner_id, name, query, shared, created_at"
    mine = f"WHERE \"table\" = '{table}'"
    return migrations.RunSQL(
        sql=f"INSERT INTO ui_savedview (\"table\", {columns}) SELECT '{table}', {columns} FROM {old} ORDER BY id",  # noqa: S608
        reverse_sql=f"INSERT INTO {old} ({columns}) SELECT {columns} FROM ui_savedview {mine} ORDER BY id",  # noqa: S608
    )


class Migration(migrations.Migration):
    initial = True
    dependencies = [
        ("accounts", "0001_squashed_0005_people"),
        ("runs", "0011_derived"),
        ("rollouts", "0018_token_names"),
    ]
    operations = [
        migrations.CreateModel(
            name="SavedView",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("table", models.CharField(choices=[(name, name.capitalize()) for name in TABLES], max_length=20)),
                ("name", models.CharField(max_length=60)),
                ("query", models.TextField(blank=True, help_text="Query string of the list")),
                ("shared", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="saved_views",
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
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(fields=("project", "owner", "table", "name"), name="one_view_of_a_name"),
                    models.CheckConstraint(
                        condition=models.Q(("table__in", list(TABLES))), name="view_of_a_known_list"
                    ),
                ],
            },
        ),
        moved("runs", "runs_savedview"),
        moved("rollouts", "rollouts_savedquery"),
    ]
