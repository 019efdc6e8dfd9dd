"""Rows that belong to a project: the column, the filtering manager, and the triggers.

A root (a run, a suite) gets its project on creation and keeps it. A trigger gives every other row its parent's project,
whatever the code sets. Managers are the only place that separates projects: they read `access.current()`.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

import pgtrigger
from django.db import models

from composer_web.accounts import access
from composer_web.accounts.models import DEFAULT_PROJECT, Project
from composer_web.core.triggers import Trigger

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


class KeepsProject(Trigger):
    """Refuse a change of project."""

    name = "project"
    when = pgtrigger.Before
    operation = pgtrigger.UpdateOf("project_id")
    condition = pgtrigger.Condition("NEW.project_id <> OLD.project_id")

    def get_func(self, model: models.Model) -> str:
        return f"""
            RAISE EXCEPTION 'the project of {model._meta.db_table} % never changes', OLD.id
                USING ERRCODE = 'integrity_constraint_violation';
        """


class ProjectOf(Trigger):
    """Give a row the project of the first of `parents`, names of foreign keys, that is not null."""

    name = "project"
    when = pgtrigger.Before
    operation = pgtrigger.Insert | pgtrigger.UpdateOf("project_id")

    def __init__(self, *parents: str) -> None:
        super().__init__()
        self.parents = parents

    def get_func(self, model: models.Model) -> str:
        keys = {key.name: key for key in model._meta.concrete_fields if isinstance(key, models.ForeignKey)}
        found = ", ".join(
            f"(SELECT project_id FROM {key.related_model._meta.db_table} WHERE id = NEW.{key.column})"  # noqa: S608
            for key in map(keys.__getitem__, self.parents)
        )
        return f"""
            NEW.project_id := coalesce({found}, NEW.project_id);
            RETURN NEW;
        """


class Owned(models.Model):
    """Belongs permanently to one project: models declare `KeepsProject` or `ProjectOf`."""

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
