"""Services by the words of tests that did not reach them: what is asked for, where, and what is said of the others."""

import pytest

from sandbox.install.recipes.errors import Reason
from sandbox.install.recipes.services import local, table
from sandbox.repositories.checkout import Checkout
from sandbox.repositories.history import TreeFile

REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused"


def service(name: str) -> table.Service:
    return next(one for one in table.SERVICES if one.name == name)


def checkout(**files: str) -> Checkout:
    return Checkout("sums", "1.0", {f"{path}.py": TreeFile(text.encode()) for path, text in files.items()})


@pytest.mark.parametrize(
    ("message", "services"),
    [
        ("psycopg.OperationalError: connection refused, port 5432", ["postgres"]),
        ('connection to server on socket "/run/.s.PGSQL.5432" failed: No such file\nIs the server running locally', ["postgres"]),
        ("redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused.", ["redis"]),
        ("assert postgres == 'redis'", []),
        ("pymongo.errors.ServerSelectionTimeoutError: localhost:27017: [Errno 111] Connection refused", ["mongodb"]),
        ('botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "http://localhost:9000/b"', ["s3"]),
        ("botocore.exceptions.NoCredentialsError: Unable to locate credentials", ["s3"]),
        (f"    server = smtplib.SMTP('localhost', 2525)\n{REFUSED}", ["smtp"]),
        ("kombu.exceptions.OperationalError: [Errno 111] Connection refused", ["celery-broker"]),
        ("kombu.exceptions.OperationalError: redis: Error 111 connecting to localhost:6379. Connection refused.", ["redis"]),
        ("pymemcache.client.base:  [Errno 111] Connection refused", ["memcached"]),
        ("pymysql.err.OperationalError: (2003, \"Can't connect to MySQL server on 'localhost'\")", ["mysql"]),
        ("elastic_transport.ConnectionError: Connection error caused by: Connection refused", []),
        ("elasticsearch.ConnectionError: Connection refused", ["elasticsearch"]),
    ],
)  # fmt: skip
def test_a_service_that_was_not_reached(message, services):
    assert [service.name for service in table.asked_for([message])] == services


def test_names_that_a_database_does_not_know():
    said = [
        'FATAL:  database "shop_test" does not exist',
        'FATAL: role "shop" does not exist',
        'database "a;b" does not exist',
    ]
    assert local.lacking([*said, *said]) == [("", "shop_test"), ("shop", "")]


def test_a_mock_listens_where_messages_and_files_say():
    asked = ['EndpointConnectionError: Could not connect to the endpoint URL: "http://localhost:9000/bucket"']
    assert table.ports(service("s3"), asked, checkout()) == (9000,)
    assert table.ports(service("s3"), ["Unable to locate credentials"], checkout()) == (4566,)
    mail = checkout(settings="EMAIL_PORT = 2525  # of smtp\n", b="smtplib.SMTP('localhost', 25)\n", c="port = 8080\n")
    assert table.ports(service("smtp"), [f"smtplib\n{REFUSED}"], mail) == (2525,)
    assert table.ports(service("smtp"), [REFUSED], checkout(a="import smtplib\ndef f(port=8025): pass\n")) == (8025,)
    assert table.ports(service("celery-broker"), [REFUSED], checkout()) == ()


def test_what_cannot_be_had_is_named_with_what_to_do():
    said = table.remedy(Reason.SERVICE, ["kafka.errors.NoBrokersAvailable: NoBrokersAvailable"])
    assert said.startswith("kafka (not started here, and no kept mock is known): ") and "Mark the tests" in said
    host = "HTTPSConnectionPool(host='api.shop.example', port=443): Name or service not known"
    assert "outside (api.shop.example)" in table.remedy(Reason.NETWORK, [host, host])
    assert table.remedy(Reason.FAILING_TESTS, ["assert 1 == 2"]) == ""
    assert table.remedy(Reason.GPU, [REFUSED]) == ""


@pytest.mark.parametrize("one", table.SERVICES, ids=lambda one: one.name)
def test_each_service_has_its_files(one):
    """What the table says is to be started can be."""
    names = [f"{one.name}.service"] if one.server else []
    if one.mock is not None:
        names += [*one.mock.scripts, *([f"{one.name}.py"] if one.mock.inside else [])]
    assert all((local.INSIDE / name).is_file() for name in names)
    assert one.server or one.mock or one.remedy
