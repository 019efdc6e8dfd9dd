"""What a generator tried belongs to the project that asked for it."""

from django.db import migrations

from composer_web.accounts.scoping import keeps_project, owned


class Migration(migrations.Migration):
    dependencies = [("tasks", "0013_members_by_task"), ("accounts", "0004_projects")]
    operations = [*owned("generatorrun"), keeps_project("tasks_generatorrun")]
