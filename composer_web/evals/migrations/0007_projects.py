"""Evaluations and releases belong to projects."""

from django.db import migrations

from composer_web.accounts.scoping import owned, project_of


class Migration(migrations.Migration):
    dependencies = [("evals", "0006_unreviewed"), ("runs", "0006_projects"), ("tasks", "0010_projects")]
    operations = [
        *owned("evaluation", "release"),
        project_of("evals_evaluation", run_id="runs_run"),
        project_of("evals_release", suite_id="tasks_suite"),
    ]
