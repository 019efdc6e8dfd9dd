"""Queues of training carry the names of hosts and workers."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("ops", "0006_outbox_merges_when_sent"),
    ]

    operations = [
        migrations.AlterField(
            model_name="outbox",
            name="queue",
            field=models.CharField(max_length=200),
        ),
    ]
