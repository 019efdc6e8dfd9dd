"""What all tests share: no connection to the test database may outlive the tests."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator

import psycopg
import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.db.backends.postgresql.operations import DatabaseOperations
from hypothesis import HealthCheck, settings

from composer_web.env import env

# A busy machine is no failure: examples may take as long as they need.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# A million rounds are 0.3 s of processor for each person that a test makes. The number stands in the hash: the
# product's own processes, which a test may start on its database, check such passwords too.
PBKDF2PasswordHasher.iterations = 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Thousands of modules and tests are made that stay to the end: looking through them for garbage, again and again,
    is a sixth of the time of collecting them, and a third of a second each time later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


KEPT = frozenset({"auth_permission", "django_content_type"})
"""Rows that are the same in every database of these models."""


def _delete(self: DatabaseOperations, style: object, tables: Iterable[str], **_: object) -> list[str]:
    """Delete from the tables that hold something: TRUNCATE of all of them takes a second after each test that commits. No
    trigger fires, no reference is checked."""
    looks = [f"(SELECT '{table}' FROM {self.quote_name(table)} LIMIT 1)" for table in tables if table not in KEPT]
    with self.connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(looks))
        held = [name for (name,) in cursor.fetchall()]
    return [
        "SET LOCAL session_replication_role = replica",
        *(f"DELETE FROM {self.quote_name(table)}" for table in held),
        "SET LOCAL session_replication_role = origin",
    ]


DatabaseOperations.sql_flush = _delete

LEFT_SECONDS = 30.0
"""A server process ends some time after its connection was closed: on a busy machine later than DROP DATABASE waits."""


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings: None, django_db_blocker: pytest.FixtureRequest) -> None:
    """Each worker's database is a copy of one that was migrated once."""
    from django.db import connections

    from tests.support.database import migrated_template

    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        connections["default"].settings_dict["TEST"]["TEMPLATE"] = migrated_template()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: pytest.FixtureRequest) -> Iterator[None]:
    """pytest-django's, which afterwards drops the database: somebody still connected would make that fail.

    The usual culprit is a thread of a test that used the ORM and ended without `connections.close_all()`.
    """
    from django.contrib.contenttypes.management import create_contenttypes
    from django.db import connections
    from django.db.models.signals import post_migrate

    # Both are there and stay: a test that commits need not have them looked for at its end.
    post_migrate.disconnect(create_contenttypes)
    post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")
    yield
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        connections["default"].close()
        connections["default"].close_pool()
        name = connections["default"].settings_dict["NAME"]
    address, _, options = env().database_url.partition("?")
    end = time.monotonic() + LEFT_SECONDS
    with psycopg.connect(f"{address.rsplit('/', 1)[0]}/postgres?{options}", autocommit=True) as other:
        while left := _connected(other, name):
            if time.monotonic() > end:
                pytest.fail(f"a test left a connection open; its last statement was: {left[0]}")
            time.sleep(0.05)


def _connected(other: psycopg.Connection, name: str) -> list[str]:
    """The last statement of each connection to database `name`."""
    rows = other.execute(
        "SELECT query FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'", [name]
    )
    return [row[0][:300] for row in rows]
