"""How many tasks of a release two reviewers did not admit; earlier releases asked nobody."""

from django.db import migrations, models

from composer_web.core.history import immutable_trigger

COUNT = """
UPDATE evals_release r SET unreviewed = (
    SELECT count(*) FROM evals_releasetask t
    WHERE t.release_id = r.id AND opencomposer_review_state(t.task_version_id) <> 'admitted')
"""


class Migration(migrations.Migration):
    dependencies = [("evals", "0005_sides"), ("tasks", "0007_review_guards")]
    operations = [
        migrations.AddField(
            "release",
            "unreviewed",
            models.PositiveIntegerField(
                db_default=0, default=0, help_text="Tasks that two reviewers had not admitted when it was published"
            ),
        ),
        migrations.RunSQL(COUNT, migrations.RunSQL.noop),
        migrations.RunSQL("DROP TRIGGER evals_release_immutable ON evals_release", migrations.RunSQL.noop),
        immutable_trigger(
            "evals_release",
            ("benchmark", "number", "suite_id", "parent_id", "digest", "statistics", "unreviewed", "created_at"),
        ),
    ]
