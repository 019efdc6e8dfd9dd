"""Runs, sweeps, templates and saved views belong to projects."""

from django.db import migrations, models

from composer_web.accounts.audit_triggers import noted
from composer_web.accounts.scoping import keeps_project, owned


class Migration(migrations.Migration):
    dependencies = [("runs", "0005_metric_owners"), ("accounts", "0004_projects")]
    operations = [
        migrations.RemoveConstraint("savedview", "one_run_view_of_a_name"),
        *owned("run", "runtemplate", "savedview", "sweep"),
        keeps_project("runs_run"),
        keeps_project("runs_runtemplate"),
        keeps_project("runs_savedview"),
        keeps_project("runs_sweep"),
        migrations.AddConstraint(
            "savedview",
            models.UniqueConstraint(fields=("project", "owner", "name"), name="one_run_view_of_a_name"),
        ),
        noted("runs_runtemplate", ["name", "description", "config"], removed=True),
        noted("runs_sweep", ["name", "mode", "fields"]),
    ]
