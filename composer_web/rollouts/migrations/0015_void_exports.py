"""An export ends without a file also when something in it had to be deleted; it says why."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0014_exports_of_any_table")]

    operations = [
        migrations.AlterField(
            "export",
            "cause",
            models.TextField(blank=True, help_text="Why there is no file, and what to do"),
        ),
        migrations.AlterField(
            "export",
            "state",
            models.CharField(
                choices=[
                    ("waiting", "Waiting"),
                    ("running", "Running"),
                    ("done", "Done"),
                    ("failed", "Failed"),
                    ("void", "Void"),
                ],
                default="waiting",
                max_length=8,
            ),
        ),
        migrations.AddConstraint(
            "export",
            models.CheckConstraint(
                condition=~models.Q(state__in=["failed", "void"]) | ~models.Q(cause=""),
                name="export_without_file_says_why",
            ),
        ),
    ]
