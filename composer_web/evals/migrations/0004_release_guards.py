"""A release and its tasks never change; only what was found out about it later is added."""

from django.db import migrations

from composer_web.core.history import append_only_trigger, immutable_trigger


class Migration(migrations.Migration):
    dependencies = [("evals", "0003_releases"), ("ops", "0001_functions")]
    operations = [
        immutable_trigger(
            "evals_release", ("benchmark", "number", "suite_id", "parent_id", "digest", "statistics", "created_at")
        ),
        append_only_trigger("evals_releasetask"),
    ]
