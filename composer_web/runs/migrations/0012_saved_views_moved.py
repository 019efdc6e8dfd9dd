"""Saved views of all lists are rows of one table (`ui.SavedView`), which has taken those of this one."""

from __future__ import annotations

from django.db import migrations

from composer_web.accounts.scoping import keeps_project

KEEPS = keeps_project("runs_savedview")


class Migration(migrations.Migration):
    dependencies = [("runs", "0011_derived"), ("ui", "0001_saved_views")]
    operations = [
        migrations.RunSQL(sql=KEEPS.reverse_sql, reverse_sql=KEEPS.sql),
        migrations.DeleteModel(name="SavedView"),
    ]
