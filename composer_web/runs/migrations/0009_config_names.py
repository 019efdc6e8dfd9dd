"""Stored configurations of runs, templates and sweeps take the new names of their keys."""

from django.db import migrations

from composer_web.runs.migrations._config_names import Rewrite, new_config, new_fields


class Migration(migrations.Migration):
    dependencies = [("runs", "0008_train_dispatch")]

    operations = [
        Rewrite("runs_run", "config", new_config),
        Rewrite("runs_runtemplate", "config", new_config),
        Rewrite("runs_sweep", "fields", new_fields),
    ]
