"""Saved views of all lists are rows of one table (`ui.SavedView`), which has taken those of this one."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0018_token_names"), ("ui", "0001_saved_views")]
    operations = [
        migrations.DeleteModel(name="SavedQuery"),
    ]
