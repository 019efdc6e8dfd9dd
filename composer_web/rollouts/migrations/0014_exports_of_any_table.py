"""An export says of which table it is; those that are there are of rollouts."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0013_group_by_trained_step")]

    operations = [
        migrations.AddField(
            "export",
            "what",
            models.CharField(default="rollouts", db_default="rollouts", help_text="Which table", max_length=12),
        )
    ]
