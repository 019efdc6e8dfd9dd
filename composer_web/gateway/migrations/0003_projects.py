"""Recorded sessions belong to projects."""

from django.db import migrations

from composer_web.accounts.scoping import keeps_project, owned


class Migration(migrations.Migration):
    dependencies = [("gateway", "0002_guards"), ("accounts", "0004_projects")]
    operations = [
        *owned("session"),
        keeps_project("gateway_session"),
    ]
