"""Queues and drafts belong to projects."""

from django.db import migrations

from composer_web.accounts.scoping import keeps_project, owned, project_of


class Migration(migrations.Migration):
    dependencies = [("review", "0002_guards"), ("rollouts", "0009_projects")]
    operations = [
        *owned("draft", "queue"),
        keeps_project("review_queue"),
        project_of("review_draft", rollout_id="rollouts_rollout"),
    ]
