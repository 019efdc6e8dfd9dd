"""What grading before version 6 accepted is as if its controls had not run: they run again before it trains. Counts follow by
triggers. A later version needs no migration for that (`TaskVersion.proof`); only lists and counts show it before."""

from django.db import migrations

RESET = migrations.RunSQL(
    sql="""
    UPDATE tasks_taskversion SET controls_ok = NULL
    WHERE controls_ok AND COALESCE((controls ->> 'grader')::int, 0) < 6;
    SET CONSTRAINTS ALL IMMEDIATE;
    """,
    reverse_sql=migrations.RunSQL.noop,
)


class Migration(migrations.Migration):
    dependencies = [("tasks", "0015_members_by_name")]
    operations = [RESET]
