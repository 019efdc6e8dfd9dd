"""Training dispatched by Celery: which step a trainer waits for, losses since the last checkpoint, and trained steps."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0007_metric_columns")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="lost_in_a_row",
            field=models.PositiveIntegerField(
                db_default=0, default=0, help_text="Trainers lost since the last checkpoint"
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="wanted_at",
            field=models.DateTimeField(blank=True, help_text="When the trainer asked for that batch", null=True),
        ),
        migrations.AddField(
            model_name="run",
            name="wanted_step",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Step whose batch the trainer waits for; empty while it computes",
                null=True,
            ),
        ),
        migrations.CreateModel(
            name="TrainedStep",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("step", models.PositiveIntegerField()),
                ("token", models.PositiveBigIntegerField()),
                ("digest", models.CharField(max_length=80)),
                ("at", models.DateTimeField(auto_now_add=True)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="trained_steps", to="runs.run"
                    ),
                ),
            ],
            options={"ordering": ["run_id", "step", "token"]},
        ),
        migrations.AddConstraint(
            model_name="trainedstep",
            constraint=models.UniqueConstraint(fields=("run", "step", "token"), name="one_row_per_step_and_trainer"),
        ),
    ]
