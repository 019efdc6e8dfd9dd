"""A finding's task by name, beside the finding: the list by task, and its counts by rule, read one table instead of three."""

from django.db import migrations, models

RULES = migrations.RunSQL(
    sql=[
        """
    CREATE FUNCTION opencomposer_task_of_finding() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.slug := coalesce((SELECT t.slug FROM tasks_taskversion v JOIN tasks_task t ON t.id = v.task_id
                              WHERE v.id = NEW.task_version_id), '');
        RETURN NEW;
    END $$;
    CREATE TRIGGER rollouts_finding_task BEFORE INSERT ON rollouts_finding
        FOR EACH ROW EXECUTE FUNCTION opencomposer_task_of_finding();
    CREATE FUNCTION opencomposer_task_of_findings() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE rollouts_finding f SET slug = NEW.slug FROM tasks_taskversion v
        WHERE v.task_id = NEW.id AND f.task_version_id = v.id;
        RETURN NULL;
    END $$;
    CREATE TRIGGER tasks_task_renamed_in_findings AFTER UPDATE OF slug ON tasks_task
        FOR EACH ROW WHEN (OLD.slug <> NEW.slug) EXECUTE FUNCTION opencomposer_task_of_findings();
    UPDATE rollouts_finding f SET slug = t.slug FROM tasks_taskversion v JOIN tasks_task t ON t.id = v.task_id
    WHERE v.id = f.task_version_id;
    SET CONSTRAINTS ALL IMMEDIATE;
    """,
    ],
    reverse_sql=[
        """
    DROP TRIGGER IF EXISTS tasks_task_renamed_in_findings ON tasks_task;
    DROP FUNCTION IF EXISTS opencomposer_task_of_findings();
    DROP TRIGGER IF EXISTS rollouts_finding_task ON rollouts_finding;
    DROP FUNCTION IF EXISTS opencomposer_task_of_finding();
    """,
    ],
)


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0010_lighter_recording"), ("tasks", "0015_members_by_name")]
    operations = [
        migrations.AddField(
            "finding", "slug", models.CharField(db_default="", default="", editable=False, max_length=128)
        ),
        RULES,
        migrations.AddIndex("finding", models.Index(fields=["slug", "-id"], name="finding_by_task")),
    ]
