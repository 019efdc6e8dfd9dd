"""Database triggers that any model may declare in `Meta.triggers` (django-pgtrigger)."""

from __future__ import annotations

from textwrap import dedent

import pgtrigger
from django.db import models
from pgtrigger import compiler


class TriggerSql(compiler.UpsertTriggerSql):
    """Install a trigger that does not ask `pgtrigger.ignore`, which took longer than most of our functions.

    Migrations refer to this template: a change of it reaches no installation.
    """

    def get_template(self) -> str:
        return """
            CREATE OR REPLACE FUNCTION {pgid}() RETURNS trigger LANGUAGE plpgsql AS $$
            {declare}
            BEGIN
            {func}
            END $$;
            DROP TRIGGER IF EXISTS {pgid} ON {table};
            CREATE {constraint} TRIGGER {pgid} {when} {operation} ON {table} {timing} {referencing}
                FOR EACH {level} {condition} EXECUTE FUNCTION {execute};
            COMMENT ON TRIGGER {pgid} ON {table} IS '{hash}';
        """


class Trigger(pgtrigger.Trigger):
    """A trigger whose function is stored as it reads, without the indentation of its source."""

    def render_func(self, model: models.Model) -> str:
        return dedent(super().render_func(model)).strip()

    def compile(self, model: models.Model) -> compiler.Trigger:
        sql = TriggerSql(**super().compile(model).sql.kwargs)
        return compiler.Trigger(name=self.name, sql=sql)


class AppendOnly(Trigger):
    """Refuse updates and deletions."""

    name = "append_only"
    when = pgtrigger.Before
    operation = pgtrigger.Update | pgtrigger.Delete
    func = "RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'check_violation';"


class Immutable(Trigger):
    """Refuse changes of `columns`: always, or of rows for which `only` (SQL over OLD and NEW) holds."""

    when = pgtrigger.Before
    operation = pgtrigger.Update

    def __init__(self, *columns: str, only: str = "", name: str = "immutable") -> None:
        super().__init__(name=name)
        self.columns, self.only = columns, only

    def get_condition(self, model: models.Model) -> pgtrigger.Condition:
        changed = " OR ".join(_changed(column) for column in self.columns)
        return pgtrigger.Condition(f"(({self.only}) AND ({changed}))" if self.only else f"({changed})")

    def get_func(self, model: models.Model) -> str:
        first = " ".join(f"WHEN {_changed(column)} THEN '{column}'" for column in self.columns)
        return f"""
            RAISE EXCEPTION '%.% may not change any more', TG_TABLE_NAME, CASE {first} END
                USING ERRCODE = 'check_violation';
        """


def _changed(column: str) -> str:
    return f"OLD.{column} IS DISTINCT FROM NEW.{column}"
