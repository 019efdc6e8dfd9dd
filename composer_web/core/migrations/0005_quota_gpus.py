"""How many GPUs the runs of a person or a project may train on at once."""

from django.db import migrations, models

from composer_web.accounts.audit_triggers import noted

WAS = ["project_id", "user_id", "concurrent_rollouts", "storage_gib", "gpu_share"]


class Migration(migrations.Migration):
    dependencies = [("ops", "0004_project_quotas")]
    operations = [
        migrations.RunSQL(
            sql="DROP TRIGGER IF EXISTS ops_quota_noted ON ops_quota;",
            reverse_sql=noted("ops_quota", WAS, removed=True).sql,
        ),
        migrations.AddField(
            "quota",
            "gpus",
            models.PositiveIntegerField(blank=True, null=True, help_text="That its runs train on at once"),
        ),
        noted("ops_quota", [*WAS, "gpus"], removed=True),
    ]
