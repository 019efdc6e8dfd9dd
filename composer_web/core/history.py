"""Append-only histories of stateful entities, enforced by the database.

Each stateful model has a `state`, the trigger `RecordsState`, and a model of transitions that derives from
`Transition`. The trigger writes one transition row for every insert and every change of `state`. The transition
table's CHECK over (from, to) rejects illegal pairs, so the whole statement fails. Triggers of its own reject manual
inserts, updates and deletes. Services therefore cannot forget or bypass the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import pgtrigger
from django.db import connection, models, transaction

from composer_web.core.triggers import AppendOnly, Trigger

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


class RecordsState(Trigger):
    """Write every state of a row into the table of its model's transitions."""

    name = "history"
    when = pgtrigger.After
    operation = pgtrigger.Insert | pgtrigger.UpdateOf("state")
    declare = [("before", "text := ''")]

    def get_func(self, model: models.Model) -> str:
        return f"""
            IF TG_OP = 'UPDATE' THEN
                IF NEW.state = OLD.state THEN RETURN NULL; END IF;
                before := OLD.state;
            END IF;
            INSERT INTO {model._meta.db_table}transition ({model._meta.model_name}_id, from_state, to_state, actor, reason, at)
            VALUES (NEW.id, before, NEW.state, coalesce(current_setting('opencomposer.actor', true), ''),
                    coalesce(current_setting('opencomposer.reason', true), ''), clock_timestamp());
            RETURN NULL;
        """  # noqa: S608 (names of a model)


class WrittenByTrigger(Trigger):
    """Refuse inserts that no other trigger makes."""

    name = "derived"
    when = pgtrigger.Before
    operation = pgtrigger.Insert
    condition = pgtrigger.Condition("pg_trigger_depth() = 0")
    func = "RAISE EXCEPTION '% is written by its trigger only', TG_TABLE_NAME USING ERRCODE = 'check_violation';"


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
        triggers = [WrittenByTrigger(), AppendOnly()]

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
