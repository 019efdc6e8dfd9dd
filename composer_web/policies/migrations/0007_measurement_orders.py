"""Measurements belong to the project that asked, and are asked for by orders."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import composer_web.accounts.scoping
from composer_web.accounts.scoping import keeps_project


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0005_people"),
        ("policies", "0006_measurements"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="MeasurementOrder",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("version", models.PositiveIntegerField()),
                ("wanted", models.JSONField(help_text="policies.schemas.Wanted")),
                (
                    "key",
                    models.CharField(help_text="Digest of what is wanted: asked twice, measured once", max_length=64),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("running", "Running"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                            ("stopped", "Stopped"),
                        ],
                        default="waiting",
                        max_length=8,
                    ),
                ),
                ("doing", models.CharField(blank=True, help_text="What the worker does now", max_length=80)),
                ("share", models.FloatField(default=0.0, help_text="Of that, what is done")),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("cause", models.TextField(blank=True, help_text="Why there is no measurement")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.RemoveConstraint(
            model_name="measurement",
            name="measurement_once",
        ),
        migrations.AddField(
            model_name="measurement",
            name="project",
            field=models.ForeignKey(
                db_default=1,
                db_index=False,
                default=composer_web.accounts.scoping.project_now,
                editable=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="accounts.project",
            ),
        ),
        migrations.RunSQL(
            sql="""
            UPDATE policies_measurement AS m SET project_id = p.project_id FROM policies_policy AS p WHERE p.id = m.policy_id;
            SET CONSTRAINTS ALL IMMEDIATE;
            """,
            reverse_sql=migrations.RunSQL.noop,
        ),
        migrations.AddConstraint(
            model_name="measurement",
            constraint=models.UniqueConstraint(
                fields=("project", "policy", "version", "text_digest", "before", "window"), name="measurement_once"
            ),
        ),
        migrations.AddField(
            model_name="measurementorder",
            name="created_by",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="measurementorder",
            name="measurement",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="policies.measurement",
            ),
        ),
        migrations.AddField(
            model_name="measurementorder",
            name="policy",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="measurement_orders", to="policies.policy"
            ),
        ),
        migrations.AddField(
            model_name="measurementorder",
            name="project",
            field=models.ForeignKey(
                db_default=1,
                db_index=False,
                default=composer_web.accounts.scoping.project_now,
                editable=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="accounts.project",
            ),
        ),
        migrations.AddIndex(
            model_name="measurementorder",
            index=models.Index(fields=["policy", "-id"], name="measurement_order_by_policy"),
        ),
        migrations.AddConstraint(
            model_name="measurementorder",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ["waiting", "running"])),
                fields=("project", "policy", "version", "key"),
                name="measurement_order_open_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="measurementorder",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("finished_at", None), ("state__in", ["waiting", "running"])),
                    models.Q(("finished_at__isnull", False), ("state__in", ["done", "failed", "stopped"])),
                    _connector="OR",
                ),
                name="measurement_order_ends_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="measurementorder",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state__in", ["failed", "stopped"]), _negated=True),
                    models.Q(("cause", ""), _negated=True),
                    _connector="OR",
                ),
                name="measurement_order_says_why",
            ),
        ),
        keeps_project("policies_measurement"),
        keeps_project("policies_measurementorder"),
    ]
