"""Conditions of forks take the new names of their keys."""

from django.db import migrations

from composer_web.runs.migrations._config_names import Rewrite, new_parts


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0016_outcomes")]

    operations = [Rewrite("rollouts_fork", "conditions", new_parts)]
