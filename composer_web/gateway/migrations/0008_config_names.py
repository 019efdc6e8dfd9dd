"""Settings of channels take the new names of their keys."""

from django.db import migrations

from composer_web.runs.migrations._config_names import Rewrite, new_parts


class Migration(migrations.Migration):
    dependencies = [("gateway", "0007_sessions_by_project")]

    operations = [Rewrite("gateway_channel", "configured", new_parts)]
