"""Projects and memberships; the default project, where all that is there already belongs."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from composer_web.accounts.audit_triggers import noted
from composer_web.accounts.models import DEFAULT_PROJECT, Role

DEFAULT = migrations.RunSQL(
    sql="""
    INSERT INTO accounts_project (id, slug, name, open, library, created_at)
        VALUES (1, 'default', 'Default', true, true, now());
    SELECT setval(pg_get_serial_sequence('accounts_project', 'id'), 1);
    """,
    reverse_sql=migrations.RunSQL.noop,
)


class Migration(migrations.Migration):
    dependencies = [("accounts", "0003_audited_changes")]
    operations = [
        migrations.AlterField(
            "auditentry",
            "via",
            models.CharField(default="system", help_text="page, api, token or system", max_length=8),
        ),
        migrations.AlterField(
            "auditentry",
            "credential",
            models.CharField(blank=True, default="", help_text="Which token was used", max_length=100),
        ),
        migrations.AlterField(
            "auditentry",
            "changes",
            models.JSONField(default=list, help_text="[{row, before, after}], written by a trigger"),
        ),
        migrations.CreateModel(
            name="Project",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("slug", models.SlugField(max_length=40, unique=True)),
                ("name", models.CharField(max_length=80)),
                (
                    "open",
                    models.BooleanField(
                        default=False,
                        help_text="Everybody with an account has in it at least the role of the account",
                    ),
                ),
                (
                    "library",
                    models.BooleanField(
                        default=False,
                        help_text="Its tasks, suites, environments and policies may be read and used in every project",
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "archived_at",
                    models.DateTimeField(blank=True, help_text="Since when only admins reach it", null=True),
                ),
                (
                    "created_by",
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
                "ordering": ["id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=~models.Q(pk=DEFAULT_PROJECT) | models.Q(archived_at=None),
                        name="default_project_stays",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("role", models.CharField(choices=Role.choices, default="viewer", max_length=10)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="memberships",
                        to="accounts.project",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["project_id", "user__username"],
                "constraints": [
                    models.UniqueConstraint(fields=["project", "user"], name="one_membership"),
                    models.CheckConstraint(condition=models.Q(role__in=Role.values), name="membership_role"),
                ],
            },
        ),
        migrations.AddField(
            "apitoken",
            "project",
            models.ForeignKey(
                blank=True,
                help_text="The one project where it is valid; empty for all of its owner's",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="tokens",
                to="accounts.project",
            ),
        ),
        DEFAULT,
        noted("accounts_project", ["slug", "name", "open", "library", "archived_at"]),
        noted("accounts_membership", ["project_id", "user_id", "role"], removed=True),
    ]
