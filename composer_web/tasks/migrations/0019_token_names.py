"""Tokens have the names of the OpenAI and Anthropic APIs: input and output."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("tasks", "0018_retired_suites")]

    operations = [
        migrations.RenameField("taskstatistic", "policy_tokens", "output_tokens"),
        migrations.RenameField("importedtrajectory", "policy_tokens", "output_tokens"),
    ]
