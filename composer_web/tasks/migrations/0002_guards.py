"""Histories and frozen columns, kept by triggers."""

from django.db import migrations

from composer_web.core.history import immutable_trigger


class Migration(migrations.Migration):
    dependencies = [("tasks", "0001_initial"), ("ops", "0001_functions")]
    operations = [
        immutable_trigger("tasks_taskversion", ["task_id", "number", "spec", "bundle_hash"]),
    ]
