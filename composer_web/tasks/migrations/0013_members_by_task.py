"""Members of a large suite in the order of what their tasks say are walked along an index of the tasks."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tasks", "0012_suite_counts")]
    operations = [
        migrations.AddIndex("task", models.Index(fields=["family"], name="task_by_family")),
        migrations.AddIndex("task", models.Index(fields=["category"], name="task_by_category")),
    ]
