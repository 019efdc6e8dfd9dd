"""Many rows without the work of making them, for tests that ask what more rows cost."""

from __future__ import annotations

from django.apps import apps
from django.db import connection, models

SHIFT = 10_000_000
"""Added to the keys of copies, and to what they refer to."""
SHARED = {"accounts.User", "accounts.Project", "accounts.Membership"}
"""Copies belong to the same people and projects."""


def double(*, inside: bool = False) -> dict[str, tuple[int, int]]:
    """Copy every row of the product's tables; returns rows before and after.

    References lead to copies, so that there is a second world beside the first. `inside` keeps them, wherever a row may
    occur twice: the same runs then have twice the groups. Names that must be unique get a suffix. What may exist once
    only (the settings of a channel) is not copied. Triggers and foreign keys are off meanwhile: the copy is what its
    original was, states and histories included.
    """
    found: dict[str, tuple[int, int]] = {}
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        for model in apps.get_models():
            if model.__module__.startswith("composer_web.") and model._meta.label not in SHARED:
                table, other = model._meta.db_table, _other(model, inside=inside)
                names = {
                    f'"{field.column}"': _copied(field, field.name in other, inside)
                    for field in model._meta.concrete_fields
                    if not field.generated
                }
                cursor.execute(f'SELECT count(*) FROM "{table}"')
                (before,) = cursor.fetchone()
                cursor.execute(
                    f'INSERT INTO "{table}" ({", ".join(names)}) OVERRIDING SYSTEM VALUE '
                    f'SELECT {", ".join(names.values())} FROM "{table}" ON CONFLICT DO NOTHING'
                )
                found[model._meta.label] = before, before + cursor.rowcount
        cursor.execute("SET LOCAL session_replication_role = origin")
    return found


def _inner(field: models.Field) -> bool:
    """It refers to a row that is copied."""
    to = field.remote_field.model._meta if field.remote_field else None
    return to is not None and to.label not in SHARED and to.app_config.name.startswith("composer_web.")


def _other(model: type[models.Model], *, inside: bool) -> set[str]:
    """Fields that have to differ in a copy."""
    fields = model._meta.concrete_fields
    found = {field.name for field in fields if field.unique or (_inner(field) and not inside)}
    for constraint in model._meta.constraints:
        if isinstance(constraint, models.UniqueConstraint):
            of = [model._meta.get_field(name) for name in constraint.fields]
            if of and not any(one.name in found for one in of):
                found.add(min(of, key=_hardness).name)
    return found


def _hardness(field: models.Field) -> int:
    """Order of giving fields another value: numbers and names, then references, then what has few values."""
    if field.remote_field:
        return 1 if _inner(field) else 3
    return 2 if field.choices or isinstance(field, models.BooleanField) else 0


def _copied(field: models.Field, other: bool, inside: bool) -> str:
    """SQL of a column's value in the copy."""
    column = f'"{field.column}"'
    if not other or (field.remote_field and not _inner(field)):
        return column
    if isinstance(field, models.CharField):
        return f"left({column}, {(field.max_length or 200) - 2}) || '-{3 if inside else 2}'"
    if isinstance(field, models.UUIDField):
        return "gen_random_uuid()"
    return f"{column} + {2 * SHIFT if inside else SHIFT}"


def fill(model: type[models.Model], count: int, *, project: int) -> None:
    """Copies of one rollout or finding, past the triggers that would keep them in its project."""
    table = model._meta.db_table
    other = {"project_id": str(project), "sample": "1000 + n", "key": "'copy ' || n", "fingerprint": "n::text"}
    names = [field.column for field in model._meta.concrete_fields if not (field.primary_key or field.generated)]
    values = ", ".join(other.get(name, f'"{name}"') for name in names)
    quoted = ", ".join(f'"{name}"' for name in names)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            f"INSERT INTO {table} ({quoted}) SELECT {values} FROM (SELECT * FROM {table} ORDER BY id LIMIT 1) AS one, "
            f"generate_series((SELECT count(*) FROM {table}), (SELECT count(*) FROM {table}) + {count - 1}) AS n"
        )
        cursor.execute("SET LOCAL session_replication_role = origin")
        cursor.execute(f"ANALYZE {table}")
