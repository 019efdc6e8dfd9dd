"""Runs keep their automatic settings with a reason each; events of insights."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0010_chart_layouts")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="derived",
            field=models.JSONField(
                db_default=[], default=list, help_text="Automatic settings: path, value and reason of each"
            ),
        ),
        migrations.AlterField(
            model_name="runevent",
            name="kind",
            field=models.CharField(
                help_text="checkpoint, sync, eval, alert, recovery, infra, note, reward, insight", max_length=20
            ),
        ),
    ]
