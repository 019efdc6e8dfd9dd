"""The newest turns of a version, for the canary's comparison, which open pages ask for again and again."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("gateway", "0004_erasures"), ("policies", "0004_projects")]
    operations = [
        migrations.AddIndex(
            model_name="sessionturn", index=models.Index(fields=["policy", "version", "-id"], name="turns_of_version")
        ),
    ]
