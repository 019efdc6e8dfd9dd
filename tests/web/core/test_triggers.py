"""Triggers: the database has those that models declare, and no other."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from pgtrigger import registry

from composer_web.accounts.scoping import KeepsProject, Owned, ProjectOf
from composer_web.core.history import RecordsState, Transition
from composer_web.core.legacy_triggers import ReplaceTriggers
from composer_web.core.triggers import Trigger
from tests.support import triggers

pytestmark = pytest.mark.django_db


def test_the_database_has_what_models_declare_and_nothing_else() -> None:
    assert len(registry.registered()) > 100
    assert triggers.not_installed() == {}
    assert triggers.undeclared() == set()


def test_migrations_are_made() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def test_every_trigger_is_one_of_ours() -> None:
    """Those of pgtrigger itself ask each time whether they are ignored."""
    assert [trigger.name for _, trigger in registry.registered() if not isinstance(trigger, Trigger)] == []


def test_everything_that_belongs_to_a_project_stays_there() -> None:
    owned = [model for model in apps.get_models() if issubclass(model, Owned)]
    assert len(owned) > 20
    for model in owned:
        kinds = [one for one in model._meta.triggers if isinstance(one, KeepsProject | ProjectOf)]
        assert len(kinds) == 1, model


def test_every_history_is_recorded() -> None:
    histories = [model for model in apps.get_models() if issubclass(model, Transition)]
    assert len(histories) == 7
    for model in histories:
        entity = apps.get_model(model._meta.app_label, model.__name__.removesuffix("Transition"))
        assert any(isinstance(one, RecordsState) for one in entity._meta.triggers), entity
        assert {one.name for one in model._meta.triggers} == {"derived", "append_only"}


def test_handwritten_triggers_of_an_app_go_with_their_functions() -> None:
    with connection.cursor() as cursor:
        for function in ("opencomposer_both", "runs_own"):
            cursor.execute(f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
        for table, function in (
            ("runs_run", "opencomposer_both"),
            ("tasks_task", "opencomposer_both"),
            ("runs_run", "runs_own"),
        ):
            cursor.execute(
                f'CREATE TRIGGER "by Hand {function}" BEFORE UPDATE ON {table} EXECUTE FUNCTION {function}()'
            )
    replace = ReplaceTriggers()
    replace.database_forwards("runs", connection.schema_editor(), None, None)
    assert triggers.undeclared() == {"by Hand opencomposer_both", "opencomposer_both"}, "the task's is still there"
    replace.database_forwards("tasks", connection.schema_editor(), None, None)
    assert triggers.undeclared() == set()
    assert triggers.not_installed() == {}
