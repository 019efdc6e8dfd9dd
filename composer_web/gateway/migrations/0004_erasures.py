"""Deletions are counted, so that every process forgets; the audit log tells before and after of the settings."""

from django.db import migrations, models

from composer_web.accounts.audit_triggers import noted


class Migration(migrations.Migration):
    dependencies = [("gateway", "0003_projects"), ("accounts", "0003_audited_changes")]
    operations = [
        migrations.AddField(
            model_name="channel",
            name="erasures",
            field=models.PositiveBigIntegerField(
                default=0,
                help_text="Deletions of sessions so far; what a process remembers from before the newest is void",
            ),
        ),
        noted("gateway_channel", ["name", "configured"], removed=True),
    ]
