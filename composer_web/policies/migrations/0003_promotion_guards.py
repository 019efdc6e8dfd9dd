"""What was promoted is history; the model behind an endpoint's name never changes."""

from django.db import migrations

from composer_web.core.history import append_only_trigger, immutable_trigger


class Migration(migrations.Migration):
    dependencies = [("policies", "0002_endpoints_and_promotion"), ("ops", "0001_functions")]
    operations = [
        append_only_trigger("policies_promotion"),
        immutable_trigger("policies_endpoint", ("policy_id", "model")),
    ]
