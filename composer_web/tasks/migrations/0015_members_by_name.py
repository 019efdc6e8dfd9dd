"""A member's task by name, beside the member: a suite's page sorted by it is read from an index, from either end."""

from django.db import migrations, models

MEMBER = """
    CREATE OR REPLACE FUNCTION opencomposer_task_of_member() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        {found}
        RETURN NEW;
    END $$;
"""
RULES = migrations.RunSQL(
    sql=[
        MEMBER.format(
            found="""SELECT t.id, t.slug INTO NEW.task_id, NEW.slug FROM tasks_taskversion v JOIN tasks_task t ON t.id = v.task_id
        WHERE v.id = NEW.task_version_id;"""
        ),
        """
    CREATE FUNCTION opencomposer_name_of_member() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE tasks_suitemembership SET slug = NEW.slug WHERE task_id = NEW.id;
        RETURN NULL;
    END $$;
    CREATE TRIGGER tasks_task_renamed AFTER UPDATE OF slug ON tasks_task
        FOR EACH ROW WHEN (OLD.slug <> NEW.slug) EXECUTE FUNCTION opencomposer_name_of_member();
    UPDATE tasks_suitemembership m SET slug = t.slug FROM tasks_task t WHERE t.id = m.task_id;
    SET CONSTRAINTS ALL IMMEDIATE;
    """,
    ],
    reverse_sql=[
        """
    DROP TRIGGER IF EXISTS tasks_task_renamed ON tasks_task;
    DROP FUNCTION IF EXISTS opencomposer_name_of_member();
    """,
        MEMBER.format(found="SELECT task_id INTO NEW.task_id FROM tasks_taskversion WHERE id = NEW.task_version_id;"),
    ],
)


class Migration(migrations.Migration):
    dependencies = [("tasks", "0014_generator_runs_of_projects")]
    operations = [
        migrations.AddField(
            "suitemembership", "slug", models.CharField(db_default="", default="", editable=False, max_length=128)
        ),
        RULES,
        migrations.AddIndex("suitemembership", models.Index(fields=["suite", "slug"], name="member_by_name")),
    ]
