"""Labels are never changed or deleted, and a queue's questions stay as they were asked."""

from django.db import migrations

from composer_web.core.history import append_only_trigger, immutable_trigger


class Migration(migrations.Migration):
    dependencies = [("review", "0001_initial"), ("ops", "0001_functions")]
    operations = [
        append_only_trigger("review_label"),
        immutable_trigger("review_queue", ["name", "questions", "reviewers"]),
    ]
