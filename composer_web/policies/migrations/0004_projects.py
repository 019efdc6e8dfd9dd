"""Policies belong to projects."""

from django.db import migrations

from composer_web.accounts.scoping import keeps_project, owned


class Migration(migrations.Migration):
    dependencies = [("policies", "0003_promotion_guards"), ("accounts", "0004_projects")]
    operations = [
        *owned("policy"),
        keeps_project("policies_policy"),
    ]
