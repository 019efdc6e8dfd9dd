"""Who may admit a task, kept by the database: opinions, the state that follows from them, and suites that ask for it."""

from django.db import migrations

from composer_web.core.history import append_only_trigger

# Locks of the task's row make simultaneous reviews see each other.
RULES = migrations.RunSQL(
    sql="""
    CREATE FUNCTION opencomposer_review_state(version bigint) RETURNS text LANGUAGE sql STABLE AS $$
        SELECT CASE WHEN accepts + rejects = 0 THEN 'new'
                    WHEN accepts + rejects = 1 THEN 'one'
                    WHEN accepts >= 2 AND accepts > rejects THEN 'admitted'
                    WHEN rejects >= 2 AND rejects > accepts THEN 'rejected'
                    ELSE 'disputed' END
        FROM (SELECT count(*) FILTER (WHERE decision = 'accept') AS accepts,
                     count(*) FILTER (WHERE decision = 'reject') AS rejects
              FROM (SELECT DISTINCT ON (reviewer_id) decision FROM tasks_taskreview
                    WHERE task_version_id = version ORDER BY reviewer_id, id DESC) newest) counted
    $$;
    CREATE FUNCTION opencomposer_before_review() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM 1 FROM tasks_task t JOIN tasks_taskversion v ON v.task_id = t.id WHERE v.id = NEW.task_version_id
            FOR NO KEY UPDATE OF t;
        IF EXISTS (SELECT 1 FROM tasks_taskversion WHERE id = NEW.task_version_id AND author_id = NEW.reviewer_id) THEN
            RAISE EXCEPTION 'the author of version % may not review it', NEW.task_version_id
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END $$;
    CREATE FUNCTION opencomposer_settle_review() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE version bigint;
    BEGIN
        version := CASE WHEN TG_TABLE_NAME = 'tasks_taskreview' THEN to_jsonb(NEW) ->> 'task_version_id' ELSE NEW.id::text END;
        UPDATE tasks_task t SET review = opencomposer_review_state(version)
        FROM tasks_taskversion v WHERE v.id = version AND t.id = v.task_id
            AND NOT EXISTS (SELECT 1 FROM tasks_taskversion n WHERE n.task_id = v.task_id AND n.number > v.number)
            AND t.review <> opencomposer_review_state(version);
        RETURN NULL;
    END $$;
    CREATE FUNCTION opencomposer_admitted_member() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT 1 FROM tasks_suite WHERE id = NEW.suite_id AND reviewed)
           AND opencomposer_review_state(NEW.task_version_id) <> 'admitted' THEN
            RAISE EXCEPTION 'version % was not admitted by two reviewers', NEW.task_version_id
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END $$;
    CREATE FUNCTION opencomposer_reviewed_suite() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF OLD.reviewed AND NOT NEW.reviewed THEN
            RAISE EXCEPTION 'suite % stays reviewed', OLD.id USING ERRCODE = 'check_violation';
        END IF;
        IF EXISTS (SELECT 1 FROM tasks_suitemembership WHERE suite_id = NEW.id
                   AND opencomposer_review_state(task_version_id) <> 'admitted') THEN
            RAISE EXCEPTION 'suite % has versions that were not admitted', OLD.id USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER tasks_taskreview_before BEFORE INSERT ON tasks_taskreview
        FOR EACH ROW EXECUTE FUNCTION opencomposer_before_review();
    CREATE TRIGGER tasks_taskreview_settle AFTER INSERT ON tasks_taskreview
        FOR EACH ROW EXECUTE FUNCTION opencomposer_settle_review();
    CREATE TRIGGER tasks_taskversion_settle AFTER INSERT ON tasks_taskversion
        FOR EACH ROW WHEN (NEW.number > 1) EXECUTE FUNCTION opencomposer_settle_review();
    CREATE TRIGGER tasks_suitemembership_admitted BEFORE INSERT OR UPDATE OF suite_id, task_version_id
        ON tasks_suitemembership FOR EACH ROW EXECUTE FUNCTION opencomposer_admitted_member();
    CREATE TRIGGER tasks_suite_reviewed BEFORE UPDATE OF reviewed ON tasks_suite
        FOR EACH ROW WHEN (OLD.reviewed IS DISTINCT FROM NEW.reviewed)
        EXECUTE FUNCTION opencomposer_reviewed_suite();
    """,
    reverse_sql="""
    DROP TRIGGER IF EXISTS tasks_taskreview_before ON tasks_taskreview;
    DROP TRIGGER IF EXISTS tasks_taskreview_settle ON tasks_taskreview;
    DROP TRIGGER IF EXISTS tasks_taskversion_settle ON tasks_taskversion;
    DROP TRIGGER IF EXISTS tasks_suitemembership_admitted ON tasks_suitemembership;
    DROP TRIGGER IF EXISTS tasks_suite_reviewed ON tasks_suite;
    DROP FUNCTION IF EXISTS opencomposer_before_review();
    DROP FUNCTION IF EXISTS opencomposer_settle_review();
    DROP FUNCTION IF EXISTS opencomposer_admitted_member();
    DROP FUNCTION IF EXISTS opencomposer_reviewed_suite();
    DROP FUNCTION IF EXISTS opencomposer_review_state(bigint);
    """,
)


class Migration(migrations.Migration):
    dependencies = [("tasks", "0006_curation"), ("ops", "0001_functions")]
    operations = [
        RULES,
        append_only_trigger("tasks_taskreview"),
        append_only_trigger("tasks_taskchange"),
    ]
