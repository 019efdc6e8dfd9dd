"""Tokens have the names of the OpenAI and Anthropic APIs: input and output."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0017_config_names")]

    operations = [
        migrations.RenameField("rollout", "policy_tokens", "output_tokens"),
        migrations.RenameField("rollout", "read_tokens", "input_tokens"),
        # Postgres keeps the index when its column is renamed; Django's state has to be told.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveIndex("rollout", "rollout_by_tokens"),
                migrations.AddIndex("rollout", models.Index(fields=["output_tokens"], name="rollout_by_tokens")),
            ]
        ),
    ]
