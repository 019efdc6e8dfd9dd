"""How hard a task's newest version was when it was last measured, beside the task: what lists show, filter and sort by."""

from django.db import migrations, models

NEWEST_VERSION = """
    CREATE OR REPLACE FUNCTION opencomposer_newest_version() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE tasks_task SET newest_version_id = NEW.id, newest_number = NEW.number, controls_ok = NEW.controls_ok,
                              test_strength = NEW.test_strength{pass_rate}
        WHERE id = NEW.task_id AND (newest_number IS NULL OR newest_number <= NEW.number);
        RETURN NULL;
    END $$;
"""
# Another version is another task to a policy: what its predecessor showed says nothing of it.
FORGET = ",\n            pass_rate = CASE WHEN newest_version_id = NEW.id THEN pass_rate END"

RULES = migrations.RunSQL(
    sql=[
        NEWEST_VERSION.format(pass_rate=FORGET),
        """
    CREATE FUNCTION opencomposer_pass_rate() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE tasks_task SET pass_rate = NEW.passed::float8 / NEW.samples
        WHERE newest_version_id = NEW.task_version_id AND NOT EXISTS (
            SELECT FROM tasks_taskstatistic later
            WHERE later.task_version_id = NEW.task_version_id AND (later.measured_at, later.id) > (NEW.measured_at, NEW.id));
        RETURN NULL;
    END $$;
    CREATE TRIGGER tasks_taskstatistic_pass_rate AFTER INSERT OR UPDATE ON tasks_taskstatistic
        FOR EACH ROW EXECUTE FUNCTION opencomposer_pass_rate();
    UPDATE tasks_task t SET pass_rate = s.passed::float8 / s.samples
    FROM (SELECT DISTINCT ON (task_version_id) task_version_id, passed, samples FROM tasks_taskstatistic
          ORDER BY task_version_id, measured_at DESC, id DESC) s WHERE s.task_version_id = t.newest_version_id;
    SET CONSTRAINTS ALL IMMEDIATE;
    """,
    ],
    reverse_sql=[
        NEWEST_VERSION.format(pass_rate=""),
        """
    DROP TRIGGER IF EXISTS tasks_taskstatistic_pass_rate ON tasks_taskstatistic;
    DROP FUNCTION IF EXISTS opencomposer_pass_rate();
    """,
    ],
)


class Migration(migrations.Migration):
    dependencies = [("tasks", "0010_projects")]
    operations = [
        migrations.AddField("task", "pass_rate", models.FloatField(blank=True, editable=False, null=True)),
        RULES,
        migrations.AddIndex("task", models.Index(fields=["pass_rate", "slug"], name="task_by_pass_rate")),
    ]
