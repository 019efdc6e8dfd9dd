"""Append-only histories of stateful entities, enforced by the database.

Each stateful table has a `state` column and a transition table that derives from `Transition`. A trigger
(`opencomposer_record_transition`, installed by `history_trigger`) writes one transition row for every insert
and every change of `state`. The transition table's CHECK over (from, to) rejects illegal pairs, so the whole
statement fails. Another trigger rejects manual inserts, updates and deletes. Services therefore cannot forget
or bypass the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from django.db import connection, models, transaction
from django.db.migrations.operations import RunSQL

Pairs = frozenset[tuple[str, str]]
M = TypeVar("M", bound=models.Model)


def pairs(table: Mapping[str, Iterable[str]]) -> Pairs:
    """{'': ['draft'], 'draft': ['queued'], ...} as a set of (from, to); '' is the state before creation."""
    return frozenset((before, str(after)) for before, afters in table.items() for after in afters)


class IllegalTransition(Exception):
    """The entity may not change to the requested state. The message names both states and the legal ones."""

    def __init__(self, entity: str, before: str, after: str, legal: Iterable[str]) -> None:
        options = ", ".join(sorted(legal)) or "nothing (the state is final)"
        super().__init__(f"{entity} is {before} and cannot become {after}; possible: {options}")
        self.before, self.after = before, after


class Transition(models.Model):
    """One recorded state change. Written by the trigger only; never changed, never deleted."""

    from_state = models.CharField(max_length=16, blank=True)
    to_state = models.CharField(max_length=16)
    actor = models.CharField(max_length=80, blank=True)
    reason = models.TextField(blank=True)
    at = models.DateTimeField()

    class Meta:
        abstract = True
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.from_state or 'new'} to {self.to_state}"


def legal_pairs(legal: Pairs) -> models.Q:
    """CHECK condition: (from_state, to_state) is one of `legal`."""
    condition = models.Q()
    for before, after in sorted(legal):
        condition |= models.Q(from_state=before, to_state=after)
    return condition


def say_why(*, actor: str, reason: str) -> None:
    """Set the actor and reason that the trigger records for the rest of this transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('opencomposer.actor', %s, true), set_config('opencomposer.reason', %s, true)",
            [actor[:80], reason[:2000]],
        )


def change_state(entity: M, to: str, *, legal: Pairs, actor: str = "system", reason: str = "", **fields: Any) -> M:
    """Move a row (locked here) to state `to`, setting `fields` in the same statement. Raises IllegalTransition.

    The passed instance is refreshed to what was written.
    """
    with transaction.atomic():
        row = type(entity)._default_manager.select_for_update(of=("self",), no_key=True).get(pk=entity.pk)
        before: str = row.state  # type: ignore[attr-defined]
        if (before, to) not in legal:
            name = f"{type(entity)._meta.verbose_name} {entity.pk}"
            raise IllegalTransition(name, before, to, {b for a, b in legal if a == before})
        say_why(actor=actor, reason=reason)
        for name, value in {"state": to, **fields}.items():
            setattr(row, name, value)
        row.save(update_fields=["state", *fields])
    for name in ("state", *fields):
        setattr(entity, name, getattr(row, name))
    return entity


FUNCTIONS = RunSQL(
    sql="""
    CREATE OR REPLACE FUNCTION opencomposer_record_transition() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE before text := '';
    BEGIN
        IF TG_OP = 'UPDATE' THEN
            IF NEW.state = OLD.state THEN RETURN NULL; END IF;
            before := OLD.state;
        END IF;
        EXECUTE format('INSERT INTO %I (%I, from_state, to_state, actor, reason, at)'
                       ' VALUES ($1, $2, $3, $4, $5, clock_timestamp())', TG_ARGV[0], TG_ARGV[1])
        USING NEW.id, before, NEW.state,
              coalesce(current_setting('opencomposer.actor', true), ''),
              coalesce(current_setting('opencomposer.reason', true), '');
        RETURN NULL;
    END $$;
    CREATE OR REPLACE FUNCTION opencomposer_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'INSERT' THEN
            IF pg_trigger_depth() > 1 THEN RETURN NEW; END IF;
            RAISE EXCEPTION '% is written by its trigger only', TG_TABLE_NAME USING ERRCODE = 'check_violation';
        END IF;
        RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'check_violation';
    END $$;
    CREATE OR REPLACE FUNCTION opencomposer_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE name text;
    BEGIN
        FOREACH name IN ARRAY TG_ARGV LOOP
            IF to_jsonb(NEW) -> name IS DISTINCT FROM to_jsonb(OLD) -> name THEN
                RAISE EXCEPTION '%.% may not change any more', TG_TABLE_NAME, name USING ERRCODE = 'check_violation';
            END IF;
        END LOOP;
        RETURN NEW;
    END $$;
    """,
    reverse_sql="""
    DROP FUNCTION IF EXISTS opencomposer_record_transition();
    DROP FUNCTION IF EXISTS opencomposer_append_only();
    DROP FUNCTION IF EXISTS opencomposer_immutable();
    """,
)


def history_trigger(table: str, history: str, column: str) -> RunSQL:
    """Migration operation: `history` records every state of `table`, and nothing else."""
    return RunSQL(
        sql=f"""
        CREATE TRIGGER {table}_history AFTER INSERT OR UPDATE OF state ON {table}
            FOR EACH ROW EXECUTE FUNCTION opencomposer_record_transition('{history}', '{column}');
        CREATE TRIGGER {history}_derived BEFORE INSERT OR UPDATE OR DELETE ON {history}
            FOR EACH ROW EXECUTE FUNCTION opencomposer_append_only();
        """,
        reverse_sql=f"""
        DROP TRIGGER IF EXISTS {table}_history ON {table};
        DROP TRIGGER IF EXISTS {history}_derived ON {history};
        """,
    )


def append_only_trigger(table: str) -> RunSQL:
    """Migration operation: rows of `table` are never changed or deleted."""
    return RunSQL(
        sql=f"""
        CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table}
            FOR EACH ROW EXECUTE FUNCTION opencomposer_append_only();
        """,
        reverse_sql=f"DROP TRIGGER IF EXISTS {table}_append_only ON {table};",
    )


def immutable_trigger(table: str, columns: Iterable[str], *, when: str = "true") -> RunSQL:
    """Migration operation: `columns` of `table` are immutable while `when` (SQL over OLD and NEW) holds."""
    arguments = ", ".join(f"'{column}'" for column in columns)
    return RunSQL(
        sql=f"""
        CREATE TRIGGER {table}_immutable BEFORE UPDATE ON {table}
            FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION opencomposer_immutable({arguments});
        """,
        reverse_sql=f"DROP TRIGGER IF EXISTS {table}_immutable ON {table};",
    )
