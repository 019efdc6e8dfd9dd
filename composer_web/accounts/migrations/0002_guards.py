"""Histories and frozen columns, kept by triggers."""

from django.db import migrations

from composer_web.core.history import append_only_trigger


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial"), ("ops", "0001_functions")]
    operations = [
        append_only_trigger("accounts_auditentry"),
    ]
