"""Histories and frozen columns, kept by triggers."""

from django.db import migrations

from composer_web.core.history import history_trigger


class Migration(migrations.Migration):
    dependencies = [("repositories", "0001_initial"), ("ops", "0001_functions")]
    operations = [
        history_trigger("repositories_environment", "repositories_environmenttransition", "environment_id"),
    ]
