"""Turns and signals of a session never change, and go only when their session is erased."""

from django.db import migrations
from django.db.migrations.operations import RunSQL

TABLES = ["gateway_sessionturn", "gateway_signalrow"]


class Migration(migrations.Migration):
    dependencies = [("gateway", "0001_initial")]
    operations = [
        RunSQL(
            sql="""
            CREATE OR REPLACE FUNCTION opencomposer_kept_until_erased() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF TG_OP = 'DELETE' AND coalesce(current_setting('opencomposer.erasing', true), '') = 'on' THEN
                    RETURN OLD;
                END IF;
                RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'check_violation';
            END $$;
            """,
            reverse_sql="DROP FUNCTION IF EXISTS opencomposer_kept_until_erased();",
        ),
        *[
            RunSQL(
                sql=f"""
                CREATE TRIGGER {table}_kept BEFORE UPDATE OR DELETE ON {table}
                    FOR EACH ROW EXECUTE FUNCTION opencomposer_kept_until_erased();
                """,
                reverse_sql=f"DROP TRIGGER IF EXISTS {table}_kept ON {table};",
            )
            for table in TABLES
        ],
    ]
