"""Rows that belong to a project: the column, the filtering manager, and the triggers.

A root (a run, a suite) gets its project on creation and keeps it. A trigger gives every other row its parent's project,
whatever the code sets. Managers are the only place that separates projects: they read `access.current()`.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

from django.db import models
from django.db.migrations.operations import RunSQL

from composer_web.accounts import access
from composer_web.accounts.models import DEFAULT_PROJECT, Project

M = TypeVar("M", bound=models.Model, covariant=True)


def within(rows: models.QuerySet[M], *, path: str = "project_id", shared: bool = False) -> models.QuerySet[M]:
    """Rows of the request's project, whose id is at `path`. `shared` adds rows of libraries."""
    now = access.current()
    if now is None or now.scope is None:
        return rows
    return rows.filter(**{f"{path}__in": [now.scope, *now.libraries]} if shared else {path: now.scope})


class OwnManager(models.Manager[M]):
    """Manager for rows of the request's project only."""

    # Class attributes: Django makes related managers of the class, without arguments.
    path: ClassVar[str] = "project_id"
    shared: ClassVar[bool] = False

    def get_queryset(self) -> models.QuerySet[M]:
        return within(super().get_queryset(), path=self.path, shared=self.shared)


class SharedManager(OwnManager[M]):
    """Manager that adds rows of libraries, which every project may read and use."""

    shared = True


class TaskPartManager(SharedManager[M]):
    """Manager for rows that belong to a task."""

    path = "task__project_id"


def project_now() -> int:
    """Project of a new row."""
    now = access.current()
    return DEFAULT_PROJECT if now is None else now.project


class Owned(models.Model):
    """Belongs permanently to one project."""

    project = models.ForeignKey(
        Project,
        on_delete=models.PROTECT,
        default=project_now,
        db_default=DEFAULT_PROJECT,
        db_index=False,
        editable=False,
        related_name="+",
    )

    objects = OwnManager()

    class Meta:
        abstract = True


class Material(Owned):
    """Belongs permanently to one project. In a library project, everybody may read and use it."""

    objects = SharedManager()  # type: ignore[misc]  # wider than that of its base

    class Meta:
        abstract = True


def keeps_project(table: str) -> RunSQL:
    """Migration operation: the project of a row of `table` never changes."""
    return RunSQL(
        sql=f"""
        CREATE FUNCTION {table}_project() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.project_id <> OLD.project_id THEN
                RAISE EXCEPTION 'the project of {table} % never changes', OLD.id USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER {table}_project BEFORE UPDATE OF project_id ON {table}
            FOR EACH ROW EXECUTE FUNCTION {table}_project();
        """,
        reverse_sql=f"DROP TRIGGER {table}_project ON {table}; DROP FUNCTION {table}_project();",
    )


def project_of(table: str, **parents: str) -> RunSQL:
    """Migration operation: rows of `table` get the project of their first non-null parent (column=its table)."""
    found = ", ".join(
        f"(SELECT project_id FROM {parent} WHERE id = NEW.{column})"  # noqa: S608 (names from migrations only)
        for column, parent in parents.items()
    )
    return RunSQL(
        sql=f"""
        CREATE FUNCTION {table}_project() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            NEW.project_id := coalesce({found}, NEW.project_id);
            RETURN NEW;
        END $$;
        CREATE TRIGGER {table}_project BEFORE INSERT OR UPDATE OF project_id ON {table}
            FOR EACH ROW EXECUTE FUNCTION {table}_project();
        """,
        reverse_sql=f"DROP TRIGGER {table}_project ON {table}; DROP FUNCTION {table}_project();",
    )
