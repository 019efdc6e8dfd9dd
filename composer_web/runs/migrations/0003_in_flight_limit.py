"""The number of groups in flight follows the engine's load."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0002_guards")]
    operations = [
        migrations.AddField(
            model_name="run",
            name="in_flight_limit",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Groups that may be in flight, as the engine's load allows; empty: as configured",
                null=True,
            ),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.CheckConstraint(
                condition=models.Q(("in_flight_limit__isnull", True), ("in_flight_limit__gte", 1), _connector="OR"),
                name="run_may_have_groups_in_flight",
            ),
        ),
    ]
