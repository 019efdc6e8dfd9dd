"""The audit log tells before and after of rules and webhooks."""

from django.db import migrations

from composer_web.accounts.audit_triggers import noted


class Migration(migrations.Migration):
    dependencies = [("alerts", "0001_initial"), ("accounts", "0003_audited_changes")]
    operations = [
        noted(
            "alerts_rule",
            [
                "name",
                "kind",
                "metric",
                "comparison",
                "threshold",
                "window",
                "severity",
                "run_name",
                "quiet_minutes",
                "role",
                "emails",
                "webhook_id",
                "active",
            ],
            removed=True,
        ),
        noted("alerts_webhook", ["name", "url", "active", "*secret"], removed=True),
    ]
