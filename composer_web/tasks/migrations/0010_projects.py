"""Tasks, suites and imported trajectories belong to projects."""

from django.db import migrations

from composer_web.accounts.scoping import keeps_project, owned


class Migration(migrations.Migration):
    dependencies = [("tasks", "0009_imported_trajectories"), ("accounts", "0004_projects")]
    operations = [
        *owned("task", "suite", "importedtrajectory"),
        keeps_project("tasks_task"),
        keeps_project("tasks_suite"),
        keeps_project("tasks_importedtrajectory"),
    ]
