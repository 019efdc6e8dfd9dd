"""Repositories and environments belong to projects."""

from django.db import migrations

from composer_web.accounts.scoping import keeps_project, owned, project_of


class Migration(migrations.Migration):
    dependencies = [("repositories", "0003_repositories_and_logs"), ("accounts", "0004_projects")]
    operations = [
        *owned("repository", "environment"),
        keeps_project("repositories_repository"),
        project_of("repositories_environment", repository_id="repositories_repository"),
    ]
