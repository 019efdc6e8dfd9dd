"""Invitations, and what ends all sessions of a person."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from composer_web.accounts.audit_triggers import noted
from composer_web.accounts.models import Role


def who(**options: object) -> models.ForeignKey:
    return models.ForeignKey(
        settings.AUTH_USER_MODEL,
        blank=True,
        null=True,
        on_delete=django.db.models.deletion.PROTECT,
        related_name="+",
        **options,
    )


class Migration(migrations.Migration):
    dependencies = [("accounts", "0004_projects")]
    operations = [
        migrations.AddField(
            "user",
            "logins",
            models.PositiveIntegerField(
                default=0, db_default=0, help_text="Part of what sessions are signed with: one more ends all of them"
            ),
        ),
        migrations.CreateModel(
            name="Invitation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("username", models.CharField(max_length=150)),
                ("email", models.EmailField(blank=True, max_length=254)),
                ("role", models.CharField(choices=Role.choices, default="viewer", max_length=10)),
                ("project_role", models.CharField(blank=True, choices=Role.choices, max_length=10)),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(blank=True, null=True)),
                ("withdrawn_at", models.DateTimeField(blank=True, null=True)),
                ("created_by", who()),
                (
                    "project",
                    models.ForeignKey(
                        "accounts.Project",
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                    ),
                ),
                (
                    "used_by",
                    models.OneToOneField(
                        settings.AUTH_USER_MODEL,
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                    ),
                ),
            ],
            options={"ordering": ["-id"]},
        ),
        migrations.AddConstraint(
            "invitation",
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="invitation_role"),
        ),
        migrations.AddConstraint(
            "invitation",
            models.CheckConstraint(
                condition=models.Q(project=None, project_role="")
                | models.Q(project__isnull=False, project_role__in=Role.values),
                name="invitation_project_role",
            ),
        ),
        migrations.AddConstraint(
            "invitation",
            models.CheckConstraint(
                condition=models.Q(used_at=None, used_by=None)
                | models.Q(used_at__isnull=False, used_by__isnull=False, withdrawn_at=None),
                name="invitation_works_once",
            ),
        ),
        noted("accounts_invitation", ["username", "email", "role", "used_at", "withdrawn_at"]),
    ]
