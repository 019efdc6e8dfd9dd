"""Services by the words of tests that did not reach them."""

import pytest

from sandbox.install.services import local


@pytest.mark.parametrize(
    ("message", "services"),
    [
        ("psycopg.OperationalError: connection refused, port 5432", ["postgres"]),
        ('connection to server on socket "/run/.s.PGSQL.5432" failed: No such file\nIs the server running locally', ["postgres"]),
        ("redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused.", ["redis"]),
        ("assert postgres == 'redis'", []),
    ],
)  # fmt: skip
def test_a_service_that_was_not_reached(message, services):
    assert [service.name for service in local.asked_for([message])] == services


def test_names_that_a_database_does_not_know():
    said = [
        'FATAL:  database "shop_test" does not exist',
        'FATAL: role "shop" does not exist',
        'database "a;b" does not exist',
    ]
    assert local.lacking([*said, *said]) == [("", "shop_test"), ("shop", "")]
