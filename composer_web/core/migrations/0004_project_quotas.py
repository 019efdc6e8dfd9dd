"""Quotas of projects beside those of people."""

import django.db.models.deletion
from django.db import migrations, models

from composer_web.accounts.audit_triggers import noted

WAS = ["user_id", "concurrent_rollouts", "storage_gib", "gpu_share"]


class Migration(migrations.Migration):
    dependencies = [("ops", "0003_quotas"), ("accounts", "0004_projects")]
    operations = [
        migrations.RunSQL(
            sql="DROP TRIGGER IF EXISTS ops_quota_noted ON ops_quota;",
            reverse_sql=noted("ops_quota", WAS, removed=True).sql,
        ),
        migrations.RemoveConstraint("quota", "quota_one_for_everybody"),
        migrations.AddField(
            "quota",
            "project",
            models.OneToOneField(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="quota",
                to="accounts.project",
            ),
        ),
        migrations.AddConstraint(
            "quota",
            models.UniqueConstraint(fields=("user", "project"), name="quota_one_for_everybody", nulls_distinct=False),
        ),
        migrations.AddConstraint(
            "quota",
            models.CheckConstraint(
                condition=models.Q(("user", None), ("project", None), _connector="OR"),
                name="quota_of_a_person_or_a_project",
            ),
        ),
        noted("ops_quota", ["project_id", *WAS], removed=True),
    ]
