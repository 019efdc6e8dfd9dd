"""Conditions of evaluations take the new names of their keys."""

from django.db import migrations

from composer_web.runs.migrations._config_names import Rewrite, new_parts


class Migration(migrations.Migration):
    dependencies = [("evals", "0008_best_of_k")]

    operations = [Rewrite("evals_evaluation", "conditions", new_parts)]
