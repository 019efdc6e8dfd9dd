"""Before and after values of every audited change, captured by the database.

A trigger on each table below records changes of the named columns in a transaction-local setting. The next audit entry
of the transaction includes them. Services therefore cannot omit or misreport a change, and unaudited changes cost only
the record. A `*` marks a secret: only the fact of its change is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db.migrations.operations import RunSQL

MAX = 40
"""Maximum changed rows per entry. The others are counted."""
LONGEST = 4000
"""Maximum characters of one value."""

FUNCTIONS = RunSQL(
    sql=f"""
    CREATE OR REPLACE FUNCTION opencomposer_note_change() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        column_name text; secret boolean; was jsonb; now_is jsonb; old_row jsonb; new_row jsonb;
        before jsonb := '{{}}'; after jsonb := '{{}}'; noted jsonb; more integer;
    BEGIN
        IF TG_OP <> 'INSERT' THEN old_row := to_jsonb(OLD); END IF;
        IF TG_OP <> 'DELETE' THEN new_row := to_jsonb(NEW); END IF;
        FOREACH column_name IN ARRAY TG_ARGV LOOP
            secret := column_name LIKE '*%';
            column_name := ltrim(column_name, '*');
            was := old_row -> column_name; now_is := new_row -> column_name;
            IF was IS NOT DISTINCT FROM now_is THEN CONTINUE; END IF;
            IF secret THEN was := '"…"'; now_is := '"changed"'; END IF;
            IF length(was::text) > {LONGEST} THEN was := to_jsonb(left(was::text, {LONGEST}) || '…'); END IF;
            IF length(now_is::text) > {LONGEST} THEN now_is := to_jsonb(left(now_is::text, {LONGEST}) || '…'); END IF;
            IF old_row IS NOT NULL THEN before := before || jsonb_build_object(column_name, was); END IF;
            IF new_row IS NOT NULL THEN after := after || jsonb_build_object(column_name, now_is); END IF;
        END LOOP;
        IF before = '{{}}' AND after = '{{}}' THEN RETURN NULL; END IF;
        noted := coalesce(nullif(current_setting('opencomposer.changes', true), '')::jsonb, '[]');
        IF jsonb_array_length(noted) < {MAX} THEN
            noted := noted || jsonb_build_array(jsonb_build_object('row', TG_TABLE_NAME || ':'
                || coalesce(new_row ->> 'id', old_row ->> 'id'), 'before', before, 'after', after));
            PERFORM set_config('opencomposer.changes', noted::text, true);
        ELSE
            more := coalesce(nullif(current_setting('opencomposer.more_changes', true), '')::integer, 0) + 1;
            PERFORM set_config('opencomposer.more_changes', more::text, true);
        END IF;
        RETURN NULL;
    END $$;
    CREATE OR REPLACE FUNCTION opencomposer_take_changes() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE more text := nullif(current_setting('opencomposer.more_changes', true), '');
    BEGIN
        NEW.changes := coalesce(nullif(current_setting('opencomposer.changes', true), '')::jsonb, '[]');
        IF more IS NOT NULL THEN
            NEW.changes := NEW.changes || jsonb_build_array(jsonb_build_object('more', more::integer));
        END IF;
        PERFORM set_config('opencomposer.changes', '', true), set_config('opencomposer.more_changes', '', true);
        RETURN NEW;
    END $$;
    CREATE TRIGGER accounts_auditentry_changes BEFORE INSERT ON accounts_auditentry
        FOR EACH ROW EXECUTE FUNCTION opencomposer_take_changes();
    """,
    reverse_sql="""
    DROP TRIGGER IF EXISTS accounts_auditentry_changes ON accounts_auditentry;
    DROP FUNCTION IF EXISTS opencomposer_take_changes();
    DROP FUNCTION IF EXISTS opencomposer_note_change() CASCADE;
    """,
)


def noted(table: str, columns: Sequence[str], *, made: bool = True, removed: bool = False) -> RunSQL:
    """Migration operation: record changes of `columns` of `table`; with `made` also inserts, with `removed` also
    deletions."""
    told = ", ".join(f"'{column}'" for column in columns)
    of = ", ".join(f'"{column.lstrip("*")}"' for column in columns)
    events = [*(["INSERT"] if made else []), f"UPDATE OF {of}", *(["DELETE"] if removed else [])]
    return RunSQL(
        sql=f"""
        CREATE TRIGGER {table}_noted AFTER {" OR ".join(events)} ON {table}
            FOR EACH ROW EXECUTE FUNCTION opencomposer_note_change({told});
        """,
        reverse_sql=f"DROP TRIGGER IF EXISTS {table}_noted ON {table};",
    )
