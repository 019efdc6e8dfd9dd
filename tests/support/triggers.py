"""The triggers of a database beside those that models declare."""

from __future__ import annotations

from django.db import connection
from pgtrigger import core, registry

TRIGGERS = "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
FUNCTIONS = """
    SELECT proname FROM pg_proc
    WHERE prorettype = 'trigger'::regtype AND pronamespace = current_schema()::regnamespace
"""


def not_installed() -> dict[str, str]:
    """Declared triggers that the database has not, or has otherwise, or disabled, each with its status."""
    found = {trigger.get_uri(model): trigger.get_installation_status(model) for model, trigger in registry.registered()}
    return {uri: str(status) for uri, status in found.items() if status != (core.INSTALLED, True)}


def undeclared() -> set[str]:
    """Triggers and trigger functions that no model declares."""
    declared = {trigger.get_pgid(model) for model, trigger in registry.registered()}
    with connection.cursor() as cursor:
        cursor.execute(f"{TRIGGERS} UNION {FUNCTIONS}")
        return {name for (name,) in cursor.fetchall()} - declared
