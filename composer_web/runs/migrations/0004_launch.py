"""Templates, sweeps, saved views, and what people say of a run: tags, notes, archive."""

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

AUTHOR = {
    "blank": True,
    "null": True,
    "on_delete": django.db.models.deletion.PROTECT,
    "related_name": "+",
    "to": settings.AUTH_USER_MODEL,
}


def key() -> models.BigAutoField:
    return models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0003_in_flight_limit"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="archived_at",
            field=models.DateTimeField(blank=True, help_text="Since when lists leave it out", null=True),
        ),
        migrations.AddField(
            model_name="run",
            name="notes",
            field=models.TextField(blank=True, help_text="What people want to remember of it"),
        ),
        migrations.AddField(
            model_name="run",
            name="tags",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=40), blank=True, default=list, size=None
            ),
        ),
        migrations.CreateModel(
            name="RunTemplate",
            fields=[
                ("id", key()),
                ("name", models.CharField(max_length=80, unique=True)),
                ("description", models.TextField(blank=True)),
                ("config", models.JSONField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("created_by", models.ForeignKey(**AUTHOR)),
            ],
            options={"ordering": ["name"]},
        ),
        migrations.CreateModel(
            name="SavedView",
            fields=[
                ("id", key()),
                ("name", models.CharField(max_length=60)),
                ("query", models.TextField(blank=True, help_text="Query string of the list")),
                ("shared", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="run_views",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"ordering": ["name"]},
        ),
        migrations.CreateModel(
            name="Sweep",
            fields=[
                ("id", key()),
                ("name", models.CharField(max_length=80)),
                (
                    "mode",
                    models.CharField(
                        choices=[
                            ("grid", "Grid: every combination"),
                            ("list", "List: the first values together, then the second, …"),
                        ],
                        default="grid",
                        max_length=4,
                    ),
                ),
                ("fields", models.JSONField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("created_by", models.ForeignKey(**AUTHOR)),
            ],
            options={"ordering": ["-id"]},
        ),
        migrations.AddField(
            model_name="run",
            name="sweep",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="runs",
                to="runs.sweep",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=django.contrib.postgres.indexes.GinIndex(fields=["tags"], name="run_tags"),
        ),
        migrations.AddConstraint(
            model_name="savedview",
            constraint=models.UniqueConstraint(fields=("owner", "name"), name="one_run_view_of_a_name"),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(("archived_at__isnull", True))
                | ~models.Q(("state__in", ("queued", "running", "pausing", "paused"))),
                name="no_live_run_is_archived",
            ),
        ),
    ]
