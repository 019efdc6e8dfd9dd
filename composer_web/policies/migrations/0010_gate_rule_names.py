"""Rules of gates say `min_score` and `max_drop`."""

from django.db import migrations, models

NAMES = {"least": "min_score", "most_drop": "max_drop"}


def rename(names):
    def run(apps, schema_editor):
        gates = apps.get_model("policies", "Gate").objects.using(schema_editor.connection.alias)
        for gate in gates.exclude(rules=[]):
            gate.rules = [{names.get(key, key): value for key, value in rule.items()} for rule in gate.rules]
            gate.save(update_fields=["rules"])

    return run


class Migration(migrations.Migration):
    dependencies = [("policies", "0009_imports")]

    operations = [
        migrations.RunPython(rename(NAMES), rename({new: old for old, new in NAMES.items()})),
        migrations.AlterField(
            model_name="gate",
            name="rules",
            field=models.JSONField(
                blank=True, default=list, help_text="[composer_web.policies.promotion.gate.GateRule]"
            ),
        ),
    ]
