"""Services that tests talk to, run inside the environment itself: a database or a cache on its own loopback.

What there is, and what stands in for it, is in `table.py`. What starts them is part of the environment
(`~/.services/start`), and a pytest plugin of the virtual environment calls it before the first test, in every sandbox:
the installer's, the verifier's, and the one a policy works in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from sandbox.backends.base import HOME, ExecResult, Sandbox
from sandbox.install.recipes.base import Log, step
from sandbox.install.recipes.services.table import Mock, Server, Service, ports
from sandbox.install.recipes.system import AttemptSandbox, SystemPackages
from sandbox.repositories.checkout import Checkout

INSIDE = Path(__file__).parent / "inside"
FOLDER = f"{HOME}/.services"
INSTALL_SECONDS = 600.0
START_SECONDS = 180.0
MAX_NAMES = 8


class Environment(AttemptSandbox, Protocol):
    """The virtual environment that services are set up in."""

    checkout: Checkout
    variables: dict[str, str]

    async def pip(self, *wanted: str) -> ExecResult: ...


_NAMELESS = re.compile(r'(database|role) "(\w{1,60})" does not exist')


def lacking(messages: Iterable[str]) -> list[tuple[str, str]]:
    """(user, database) that a running database does not know, by the words of its refusals; one of them is empty."""
    found = dict.fromkeys(match.groups() for message in messages for match in _NAMELESS.finditer(message))
    return [("", name) if kind == "database" else (name, "") for kind, name in found][:MAX_NAMES]


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
    venv: Environment, system: SystemPackages, services: Iterable[Service], messages: Iterable[str], *, python: str
) -> dict[str, str] | None:
    """Set services up in the environment and start them; the variables that clients need. None where none can be had."""
    box, log, said = venv.box, venv.log, list(messages)
    variables: dict[str, str] = {}
    begun = []
    await box.write(f"{FOLDER}/start", (INSIDE / "start.sh").read_bytes(), executable=True)
    for service in services:
        listening = ports(service, said, venv.checkout)
        if service.server is not None and await _served(venv, system, service, service.server):
            await box.write(f"{FOLDER}/{service.name}.service", (INSIDE / f"{service.name}.service").read_bytes())
        elif service.mock is not None and await _mocked(venv, service.name, service.mock, listening, python):
            log(f"service {service.name} is replaced by a mock: {' '.join(service.mock.packages) or 'variables'}")
        else:
            log(f"service {service.name} cannot be had here: {service.remedy}")
            continue
        begun.append(service.name)
        variables |= {name: value.format(port=next(iter(listening), 0)) for name, value in service.variables}
    if not begun:
        return None
    started = await step(box, f"{FOLDER}/start", log, seconds=START_SECONDS, env=venv.env)
    if started.exit_code != 0:
        return None
    if "postgres" in begun:
        await name(box, database_names(venv.checkout), log)
    await _plugin(box, python, log)
    return variables


async def stop(box: Sandbox, log: Log) -> None:
    """So that what is kept of them was written to its end."""
    await step(box, f"[ ! -x {FOLDER}/start ] || {FOLDER}/start stop", log, seconds=START_SECONDS)


async def _served(venv: Environment, system: SystemPackages, service: Service, server: Server) -> bool:
    """Whether the service itself is set up: of this machine, of a PyPI package, or of a system package below the prefix."""
    if await _program(venv, server):
        return service.name != "postgres" or await _prepared(venv.box, venv.log)
    return bool(server.system) and await system.provide(venv, [server.system]) and await _program(venv, server)


async def _program(venv: Environment, server: Server) -> bool:
    """Link the service's programs into `~/.services/bin`."""
    script = (INSIDE / "programs.sh").read_text(encoding="utf-8")
    words = " ".join(map(shlex.quote, (server.program, server.places, server.package)))
    await venv.box.write("/tmp/programs.sh", script.encode())  # noqa: S108 (inside the sandbox)
    done = await step(
        venv.box, f"bash /tmp/programs.sh {words}", venv.log, seconds=INSTALL_SECONDS, env=venv.env | venv.variables
    )
    return done.exit_code == 0


async def _mocked(venv: Environment, name: str, mock: Mock, listening: Iterable[int], python: str) -> bool:
    """Whether the stand-in is set up; it starts with the services, or with the plugin."""
    if mock.inside:
        done = await venv.pip(*mock.packages)
        await venv.box.write(f"{FOLDER}/clients/{name}.py", (INSIDE / f"{name}.py").read_bytes())
        return done.exit_code == 0
    if mock.packages:
        wanted = " ".join(map(shlex.quote, mock.packages))
        done = await venv.run(
            f"uv pip install -q --python {python} --target {FOLDER}/mocks/{name} {wanted} </dev/null", INSTALL_SECONDS
        )
        if done.exit_code != 0:
            return False
    for script in mock.scripts:
        await venv.box.write(f"{FOLDER}/{script}", (INSIDE / script).read_bytes())
    for port in listening:
        command = mock.command.format(port=port, python=python)
        head = f"mock={name} port={port} command={shlex.quote(command)}\n"
        text = head + (INSIDE / "mock.service").read_text(encoding="utf-8")
        await venv.box.write(f"{FOLDER}/{name}-{port}.service", text.encode())
    return True


async def _prepared(box: Sandbox, log: Log) -> bool:
    """An empty data folder of PostgreSQL."""
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
