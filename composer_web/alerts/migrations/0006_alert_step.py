"""Where a run stood when an alert about it began: the alert is a mark on its charts."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("alerts", "0005_webhook_events")]
    operations = [
        migrations.AddField(
            "alert",
            "step",
            models.PositiveIntegerField(blank=True, help_text="At which it began, of what is about a run", null=True),
        ),
        migrations.AddIndex("alert", models.Index(fields=["about"], name="alert_about")),
    ]
