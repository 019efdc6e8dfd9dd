"""Rules on detectors of the product, and alerts about a project as a whole (`project:1`)."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("alerts", "0008_engine_lag"),
    ]

    operations = [
        migrations.AddField(
            model_name="rule",
            name="builtin",
            field=models.BooleanField(
                db_default=False, default=False, help_text="Ships with the product: it can be switched off, not deleted"
            ),
        ),
        migrations.AddField(
            model_name="rule",
            name="detector",
            field=models.CharField(
                blank=True, db_default="", default="", help_text="Of the detector kind", max_length=40
            ),
        ),
        migrations.AlterField(
            model_name="rule",
            name="kind",
            field=models.CharField(
                choices=[
                    ("metric", "A metric of a run"),
                    ("finding", "A finding of the auditor"),
                    ("run_failed", "A run failed"),
                    ("infra_share", "Share of rollouts lost to infrastructure"),
                    ("worker_gone", "A process fell silent"),
                    ("guard", "A guard ended a canary"),
                    ("engine_lag", "An engine serves old weights"),
                    ("detector", "A built-in detector"),
                ],
                max_length=12,
            ),
        ),
        migrations.AddConstraint(
            model_name="rule",
            constraint=models.UniqueConstraint(
                condition=models.Q(("builtin", True)), fields=("detector",), name="one_builtin_rule_of_a_detector"
            ),
        ),
    ]
