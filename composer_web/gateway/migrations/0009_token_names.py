"""Tokens have the names of the OpenAI and Anthropic APIs: input and output."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("gateway", "0008_config_names")]

    operations = [
        migrations.RenameField("session", "policy_tokens", "output_tokens"),
        migrations.RenameField("sessionturn", "read_tokens", "input_tokens"),
        migrations.RenameField("sessionturn", "written_tokens", "output_tokens"),
    ]
