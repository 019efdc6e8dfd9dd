"""What lists show and filter by of a task's newest version, beside the task; and the task beside a suite's member."""

import django.db.models.deletion
from django.db import migrations, models

RULES = migrations.RunSQL(
    sql="""
    CREATE FUNCTION opencomposer_newest_version() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE tasks_task SET newest_version_id = NEW.id, newest_number = NEW.number, controls_ok = NEW.controls_ok,
                              test_strength = NEW.test_strength
        WHERE id = NEW.task_id AND (newest_number IS NULL OR newest_number <= NEW.number);
        RETURN NULL;
    END $$;
    CREATE FUNCTION opencomposer_task_of_member() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        SELECT task_id INTO NEW.task_id FROM tasks_taskversion WHERE id = NEW.task_version_id;
        RETURN NEW;
    END $$;
    UPDATE tasks_task t SET newest_version_id = v.id, newest_number = v.number, controls_ok = v.controls_ok,
                            test_strength = v.test_strength
    FROM (SELECT DISTINCT ON (task_id) task_id, id, number, controls_ok, test_strength FROM tasks_taskversion
          ORDER BY task_id, number DESC) v WHERE v.task_id = t.id;
    UPDATE tasks_suitemembership m SET task_id = v.task_id FROM tasks_taskversion v WHERE v.id = m.task_version_id;
    SET CONSTRAINTS ALL IMMEDIATE;
    CREATE TRIGGER tasks_taskversion_newest AFTER INSERT OR UPDATE OF controls_ok, test_strength ON tasks_taskversion
        FOR EACH ROW EXECUTE FUNCTION opencomposer_newest_version();
    CREATE TRIGGER tasks_suitemembership_task BEFORE INSERT OR UPDATE OF task_version_id ON tasks_suitemembership
        FOR EACH ROW EXECUTE FUNCTION opencomposer_task_of_member();
    """,
    reverse_sql="""
    DROP TRIGGER IF EXISTS tasks_taskversion_newest ON tasks_taskversion;
    DROP TRIGGER IF EXISTS tasks_suitemembership_task ON tasks_suitemembership;
    DROP FUNCTION IF EXISTS opencomposer_newest_version();
    DROP FUNCTION IF EXISTS opencomposer_task_of_member();
    """,
)


class Migration(migrations.Migration):
    dependencies = [("tasks", "0007_review_guards")]
    operations = [
        migrations.AddField(
            "task",
            "newest_version",
            models.ForeignKey(
                blank=True,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tasks.taskversion",
            ),
        ),
        migrations.AddField(
            "task", "newest_number", models.PositiveIntegerField(blank=True, editable=False, null=True)
        ),
        migrations.AddField("task", "controls_ok", models.BooleanField(blank=True, editable=False, null=True)),
        migrations.AddField("task", "test_strength", models.FloatField(blank=True, editable=False, null=True)),
        migrations.AddField(
            "suitemembership",
            "task",
            models.ForeignKey(
                blank=True,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tasks.task",
            ),
        ),
        RULES,
        migrations.AddIndex("task", models.Index(fields=["controls_ok", "slug"], name="task_by_controls")),
        migrations.AddIndex("task", models.Index(fields=["test_strength", "slug"], name="task_by_strength")),
        migrations.AddIndex("suitemembership", models.Index(fields=["suite", "task"], name="member_by_task")),
    ]
