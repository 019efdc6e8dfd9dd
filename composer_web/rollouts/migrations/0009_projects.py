"""Groups, rollouts and what is about them belong to projects."""

from django.db import migrations, models

from composer_web.accounts.scoping import keeps_project, owned, project_of


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0008_search_and_exports"), ("evals", "0007_projects"), ("tasks", "0010_projects")]
    operations = [
        migrations.RemoveConstraint("savedquery", "one_rollout_query_of_a_name"),
        *owned("export", "finding", "fork", "group", "rollout", "savedquery"),
        keeps_project("rollouts_export"),
        keeps_project("rollouts_savedquery"),
        project_of("rollouts_fork", parent_id="rollouts_rollout"),
        project_of("rollouts_group", run_id="runs_run", evaluation_id="evals_evaluation", fork_id="rollouts_fork"),
        project_of("rollouts_rollout", group_id="rollouts_group"),
        project_of("rollouts_finding", rollout_id="rollouts_rollout", group_id="rollouts_group", run_id="runs_run"),
        migrations.AddIndex("finding", models.Index(fields=["project", "-id"], name="finding_by_project")),
        migrations.AddIndex("rollout", models.Index(fields=["project", "-id"], name="rollout_by_project")),
        migrations.AddConstraint(
            "savedquery",
            models.UniqueConstraint(fields=("project", "owner", "name"), name="one_rollout_query_of_a_name"),
        ),
    ]
