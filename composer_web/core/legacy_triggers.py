"""The change from triggers that migrations wrote by hand to those that models declare (`core/triggers.py`)."""

from __future__ import annotations

from typing import Any

from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from pgtrigger.compiler import Trigger

TRIGGERS = """
    SELECT format('DROP TRIGGER %%I ON %%s', t.tgname, t.tgrelid::regclass)
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace
        AND starts_with(c.relname, %(tables)s) AND NOT starts_with(t.tgname, 'pgtrigger_')
"""
FUNCTIONS = """
    SELECT format('DROP FUNCTION %%s', p.oid::regprocedure) FROM pg_proc p
    WHERE p.prorettype = 'trigger'::regtype AND p.pronamespace = current_schema()::regnamespace
        AND (starts_with(p.proname, %(tables)s) OR starts_with(p.proname, 'opencomposer_'))
        AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgfoid = p.oid)
"""


class ReplaceTriggers(Operation):
    """Add the triggers that models declare, by name of the model. Before, drop those on tables of the app that pgtrigger does
    not manage, and functions that nothing uses then: those that several apps shared go with the last. A new installation has
    neither.

    Operations of pgtrigger's render all related models again, which took a quarter of the time of all migrations.
    """

    reversible = True
    reduces_to_sql = False

    def __init__(self, *added: tuple[str, Trigger]) -> None:
        self.added = added

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        for model, trigger in self.added:
            options = state.models[app_label, model].options
            options["triggers"] = [*options.get("triggers", []), trigger]

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        with schema_editor.connection.cursor() as cursor:
            for found in (TRIGGERS, FUNCTIONS):
                cursor.execute(found, {"tables": f"{app_label}_"})
                for (statement,) in cursor.fetchall():
                    cursor.execute(statement)
        for _, trigger in self.added:
            schema_editor.execute(trigger.install_sql, params=None)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        for _, trigger in self.added:
            schema_editor.execute(trigger.uninstall_sql, params=None)

    def describe(self) -> str:
        return "Replace handwritten triggers by those of the models"
