"""Which export files hold a session, so that its deletion takes them along."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("gateway", "0005_turns_of_version"), ("rollouts", "0015_void_exports")]

    operations = [
        migrations.CreateModel(
            "SessionExport",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "export",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="rollouts.export"
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="exports", to="gateway.session"
                    ),
                ),
            ],
            {"constraints": [models.UniqueConstraint(fields=("session", "export"), name="session_held_once")]},
        )
    ]
