"""What a client calls a session is its name within a project: a token of one continues none of another."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("gateway", "0006_held_by_exports")]

    operations = [
        migrations.RemoveConstraint("session", "session_once"),
        migrations.AddConstraint(
            "session",
            models.UniqueConstraint(fields=("owner", "client_id", "project"), name="session_once"),
        ),
    ]
