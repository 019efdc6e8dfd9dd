"""Generation jobs have a table of their own; those of the last two weeks come from the audit log, and keep their number."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models

import composer_web.accounts.scoping

STATES = [
    ("queued", "queued"), ("running", "running"), ("finished", "finished"), ("empty", "no task"), ("failed", "failed"),
    ("stopped", "stopped"),
]  # fmt: skip
ENDS = {"suite.generated": "finished", "suite.generate-failed": "failed"}


def copy_from_audit(apps: Any, schema_editor: Any) -> None:
    entries = apps.get_model("accounts", "AuditEntry").objects.filter(
        action__in=("suite.generate", *ENDS), at__gte=django.utils.timezone.now() - timedelta(days=14)
    )
    projects = set(apps.get_model("accounts", "Project").objects.values_list("pk", flat=True))
    model = apps.get_model("tasks", "GenerationJob")
    jobs: dict[int, Any] = {}
    newest: dict[str, Any] = {}
    for row in entries.order_by("id"):
        if row.action == "suite.generate":
            if row.detail.get("project") in projects:
                newest[row.target] = jobs[row.pk] = model(
                    pk=row.pk, name=row.target.partition(":")[2][:80], generators=row.detail.get("generators", []),
                    project_id=row.detail["project"], requested_by_id=row.actor_id, state="running",
                )  # fmt: skip
                jobs[row.pk].since = row.at
            continue
        job = jobs.get(row.detail.get("order") or 0) or newest.get(row.target)
        if job is not None:
            job.kept = int(row.detail.get("tasks", 0))
            job.state = ENDS[row.action] if row.action != "suite.generated" or job.kept else "empty"
            job.why, job.ended_at = str(row.detail.get("why", ""))[:2000], row.at
    for job in jobs.values():
        job.save(force_insert=True)
        model.objects.filter(pk=job.pk).update(requested_at=job.since, started_at=job.since)
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(
            "SELECT setval(pg_get_serial_sequence('tasks_generationjob', 'id'),"
            " (SELECT COALESCE(MAX(id), 0) + 1 FROM accounts_auditentry), false)"
        )


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0005_people"),
        ("tasks", "0016_older_controls"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [
        migrations.CreateModel(
            name="GenerationJob",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(help_text="Name of the suite", max_length=80)),
                ("generators", ArrayField(base_field=models.CharField(max_length=20), size=None)),
                ("packages", ArrayField(base_field=models.CharField(max_length=200), default=list, size=None)),
                ("state", models.CharField(choices=STATES, default="queued", max_length=10)),
                ("requested", models.PositiveIntegerField(default=0, help_text="Most tasks that the job makes")),
                (
                    "kept",
                    models.PositiveIntegerField(
                        default=0, help_text="Tasks so far; of an ended job, tasks of its suite"
                    ),
                ),
                ("tried", models.PositiveIntegerField(default=0, help_text="Drafts so far")),
                ("current", models.CharField(blank=True, help_text="Generator and package under way", max_length=220)),
                ("why", models.TextField(blank=True, help_text="What kept it from giving tasks")),
                ("requested_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
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
                    "requested_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ["queued", "running"]), ("ended_at__isnull", False), _connector="OR"
                        ),
                        name="generation_that_ended_says_when",
                    )
                ],
            },
        ),
        migrations.RunPython(copy_from_audit, migrations.RunPython.noop),
    ]
