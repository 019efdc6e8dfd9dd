"""Events of which a webhook is told without a rule."""

from django.db import migrations, models

from composer_web.accounts.audit_triggers import noted

WAS = ["name", "url", "active", "*secret"]


class Migration(migrations.Migration):
    dependencies = [("alerts", "0004_finding_names")]
    operations = [
        migrations.RunSQL(
            sql="DROP TRIGGER IF EXISTS alerts_webhook_noted ON alerts_webhook;",
            reverse_sql=noted("alerts_webhook", WAS, removed=True).sql,
        ),
        migrations.AddField(
            "webhook",
            "events",
            models.JSONField(blank=True, default=list, help_text="What it is told of without a rule"),
        ),
        noted("alerts_webhook", [*WAS, "events"], removed=True),
    ]
