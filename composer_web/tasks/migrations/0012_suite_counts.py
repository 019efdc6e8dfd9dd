"""How many members a suite has, and what their controls said, beside the suite: its list counts no memberships."""

from django.db import migrations, models

COUNTED = """
    SELECT m.suite_id, count(*) AS tasks, count(*) FILTER (WHERE v.controls_ok) AS valid,
           count(*) FILTER (WHERE NOT v.controls_ok) AS rejected
    FROM {members} m JOIN tasks_taskversion v ON v.id = m.task_version_id GROUP BY m.suite_id
"""

RULES = migrations.RunSQL(
    sql=[
        # A version that joins is held until the transaction ends: its controls, if somebody records them meanwhile, are
        # counted by whoever comes second, who then sees what the first has done.
        f"""
    CREATE FUNCTION opencomposer_count_members() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP <> 'DELETE' THEN
            PERFORM 1 FROM tasks_taskversion WHERE id IN (SELECT task_version_id FROM came) ORDER BY id FOR SHARE;
            UPDATE tasks_suite s SET task_count = s.task_count + c.tasks, valid_count = s.valid_count + c.valid,
                                     rejected_count = s.rejected_count + c.rejected
            FROM ({COUNTED.format(members="came")}) c WHERE c.suite_id = s.id;
        END IF;
        IF TG_OP <> 'INSERT' THEN
            PERFORM 1 FROM tasks_taskversion WHERE id IN (SELECT task_version_id FROM gone) ORDER BY id FOR SHARE;
            UPDATE tasks_suite s SET task_count = s.task_count - c.tasks, valid_count = s.valid_count - c.valid,
                                     rejected_count = s.rejected_count - c.rejected
            FROM ({COUNTED.format(members="gone")}) c WHERE c.suite_id = s.id;
        END IF;
        RETURN NULL;
    END $$;
    CREATE FUNCTION opencomposer_count_controls() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM 1 FROM tasks_suite WHERE id IN (SELECT suite_id FROM tasks_suitemembership WHERE task_version_id = NEW.id)
            ORDER BY id FOR NO KEY UPDATE;
        UPDATE tasks_suite SET
            valid_count = valid_count + (NEW.controls_ok IS TRUE)::int - (OLD.controls_ok IS TRUE)::int,
            rejected_count = rejected_count + (NEW.controls_ok IS FALSE)::int - (OLD.controls_ok IS FALSE)::int
        WHERE id IN (SELECT suite_id FROM tasks_suitemembership WHERE task_version_id = NEW.id);
        RETURN NULL;
    END $$;
    CREATE TRIGGER tasks_suitemembership_came AFTER INSERT ON tasks_suitemembership
        REFERENCING NEW TABLE AS came FOR EACH STATEMENT EXECUTE FUNCTION opencomposer_count_members();
    CREATE TRIGGER tasks_suitemembership_gone AFTER DELETE ON tasks_suitemembership
        REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION opencomposer_count_members();
    CREATE TRIGGER tasks_suitemembership_changed AFTER UPDATE ON tasks_suitemembership
        REFERENCING OLD TABLE AS gone NEW TABLE AS came FOR EACH STATEMENT EXECUTE FUNCTION opencomposer_count_members();
    CREATE TRIGGER tasks_taskversion_controls AFTER UPDATE OF controls_ok ON tasks_taskversion
        FOR EACH ROW WHEN (OLD.controls_ok IS DISTINCT FROM NEW.controls_ok)
        EXECUTE FUNCTION opencomposer_count_controls();
    UPDATE tasks_suite s SET task_count = c.tasks, valid_count = c.valid, rejected_count = c.rejected
    FROM ({COUNTED.format(members="tasks_suitemembership")}) c WHERE c.suite_id = s.id;
    SET CONSTRAINTS ALL IMMEDIATE;
    """,  # noqa: S608 (names of tables that stand here)
    ],
    reverse_sql="""
    DROP TRIGGER IF EXISTS tasks_suitemembership_came ON tasks_suitemembership;
    DROP TRIGGER IF EXISTS tasks_suitemembership_gone ON tasks_suitemembership;
    DROP TRIGGER IF EXISTS tasks_suitemembership_changed ON tasks_suitemembership;
    DROP TRIGGER IF EXISTS tasks_taskversion_controls ON tasks_taskversion;
    DROP FUNCTION IF EXISTS opencomposer_count_members();
    DROP FUNCTION IF EXISTS opencomposer_count_controls();
    """,
)
COUNTS = ("task_count", "valid_count", "rejected_count")


class Migration(migrations.Migration):
    dependencies = [("tasks", "0011_pass_rate")]
    operations = [
        *(
            migrations.AddField("suite", name, models.PositiveIntegerField(db_default=0, default=0, editable=False))
            for name in COUNTS
        ),
        RULES,
        migrations.AddConstraint(
            "suite",
            models.CheckConstraint(
                condition=models.Q(task_count__gte=models.F("valid_count") + models.F("rejected_count")),
                name="suite_counts_its_members",
            ),
        ),
    ]
