"""Before and after values of every audited change, captured by the database.

`Audited` on a model records changes of the named columns in a transaction-local setting. The next audit entry of the
transaction includes them. Services therefore cannot omit or misreport a change, and unaudited changes cost only the record.
"""

from __future__ import annotations

from collections.abc import Sequence

import pgtrigger
from django.db import models

from composer_web.core.triggers import Trigger

MAX = 40
"""Maximum changed rows per entry. The others are counted."""
LONGEST = 4000
"""Maximum characters of one value."""


class Audited(Trigger):
    """Record changes of `columns`; with `made` also inserts, with `removed` also deletions. Of `secret` columns, only the
    fact of their change is recorded."""

    name = "noted"
    when = pgtrigger.After
    declare = [
        *(("column_name", "text"), ("was", "jsonb"), ("now_is", "jsonb"), ("old_row", "jsonb"), ("new_row", "jsonb")),
        *(("before", "jsonb := '{}'"), ("after", "jsonb := '{}'"), ("noted", "jsonb"), ("more", "integer")),
    ]

    def __init__(self, *columns: str, secret: Sequence[str] = (), made: bool = True, removed: bool = False) -> None:
        self.columns, self.secret = [*columns, *secret], secret
        operation: pgtrigger.Operation = pgtrigger.UpdateOf(*self.columns)
        if made:
            operation = pgtrigger.Insert | operation
        if removed:
            operation = operation | pgtrigger.Delete
        super().__init__(operation=operation)

    def get_func(self, model: models.Model) -> str:
        names = ", ".join(f"'{column}'" for column in self.columns)
        secrets = ", ".join(f"'{column}'" for column in self.secret)
        return f"""
            IF TG_OP <> 'INSERT' THEN old_row := to_jsonb(OLD); END IF;
            IF TG_OP <> 'DELETE' THEN new_row := to_jsonb(NEW); END IF;
            FOREACH column_name IN ARRAY ARRAY[{names}] LOOP
                was := old_row -> column_name; now_is := new_row -> column_name;
                IF was IS NOT DISTINCT FROM now_is THEN CONTINUE; END IF;
                IF column_name = ANY(ARRAY[{secrets}]::text[]) THEN was := '"…"'; now_is := '"changed"'; END IF;
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
        """


class TakesChanges(Trigger):
    """Move the recorded changes of the transaction into a new audit entry."""

    name = "changes"
    when = pgtrigger.Before
    operation = pgtrigger.Insert
    declare = [("more", "text := nullif(current_setting('opencomposer.more_changes', true), '')")]
    func = """
        NEW.changes := coalesce(nullif(current_setting('opencomposer.changes', true), '')::jsonb, '[]');
        IF more IS NOT NULL THEN
            NEW.changes := NEW.changes || jsonb_build_array(jsonb_build_object('more', more::integer));
        END IF;
        PERFORM set_config('opencomposer.changes', '', true), set_config('opencomposer.more_changes', '', true);
        RETURN NEW;
    """
