"""Indexes that lists of many tasks need."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("repositories", "0002_guards"), ("tasks", "0004_statistics")]
    operations = [
        migrations.AddIndex(
            model_name="taskversion",
            index=models.Index(
                fields=["task", "-number"],
                include=["id", "controls_ok", "test_strength"],
                name="newest_version_of_task",
            ),
        ),
        migrations.AddIndex(
            model_name="taskversion",
            index=models.Index(fields=["id"], include=["controls_ok"], name="version_controls"),
        ),
    ]
