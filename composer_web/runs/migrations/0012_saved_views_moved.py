"""Saved views of all lists are rows of one table (`ui.SavedView`), which has taken those of this one."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("runs", "0011_derived"), ("ui", "0001_saved_views")]
    operations = [
        migrations.DeleteModel(name="SavedView"),
    ]
