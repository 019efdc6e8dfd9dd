"""Equal pending messages may stand beside each other: they are merged when they are sent."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("ops", "0005_quota_gpus")]

    operations = [migrations.RemoveConstraint("outbox", "outbox_one_pending_per_key")]
