"""An export says of which table it is; those that are there are of rollouts."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0012_group_weights")]

    operations = [
        migrations.AddField(
            "export",
            "what",
            models.CharField(default="rollouts", db_default="rollouts", help_text="Which table", max_length=12),
        )
    ]
