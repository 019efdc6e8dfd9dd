"""Bringing the stack up and down: what is started, in which order, and what is waited for."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from . import environment, ports, postgres, processes, programs, valkey
from .errors import Busy, NotAnswering, StackError
from .layout import REPOSITORY, Layout
from .supervision import FAILED_STATES, Supervisor

SERVICE_SECONDS = 60.0
WEB_SECONDS = 120.0
COMMAND_SECONDS = 300.0


def say(text: str) -> None:
    """Progress goes to standard error: standard output is for results (the demo's last line is JSON)."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def changing(layout: Layout) -> Iterator[None]:
    """Hold the right to start or stop this stack, so that two commands never do it at once."""
    with (layout.run / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Busy(layout.data) from error
        yield


def bring_up(layout: Layout, *, only_services: bool = False) -> tuple[Supervisor, bool]:
    """Start what does not run yet. Returns the supervisor, and whether this call started it."""
    with changing(layout):
        supervisor = Supervisor.running(layout)
        started_here = supervisor is None
        try:
            if supervisor is None:
                end_leftovers(layout)
                supervisor = _start_services(layout)
            if not only_services:
                _start_product(layout, supervisor)
        except BaseException:
            if started_here:
                _stop(layout)
            raise
    return supervisor, started_here


def bring_down(layout: Layout) -> bool:
    """Stop everything that belongs to this data folder. Returns whether anything ran."""
    with changing(layout):
        return _stop(layout)


def _start_services(layout: Layout) -> Supervisor:
    addresses = environment.choose()
    environment.write(layout, addresses)
    valkey.write_configuration(layout.run / "valkey.conf", layout.valkey, addresses.valkey)
    postgres.initialise(layout.postgres)
    everything = [*programs.services(layout), *programs.product(layout, addresses)]
    supervisor = Supervisor.start(
        layout,
        programs.configuration(layout, everything),
        environment.process_environment(layout, addresses),
    )
    supervisor.start_group(programs.SERVICES)
    valkey.wait_ready(addresses.valkey, layout.valkey, seconds=SERVICE_SECONDS, log=layout.logs / "valkey.log")
    log = layout.logs / "postgres.log"
    postgres.wait_ready(layout.postgres, layout.postgres_socket, seconds=SERVICE_SECONDS, log=log)
    postgres.ensure_database(layout.postgres_socket)
    say("Postgres and Valkey answer")
    return supervisor


def _start_product(layout: Layout, supervisor: Supervisor) -> None:
    _manage(layout, "migrate", "--noinput")
    # The pages first: on few cores the other programs' start-up would keep a person waiting for them.
    supervisor.start_program(programs.PRODUCT, "web")
    _wait_for_web(layout, supervisor)
    supervisor.start_group(programs.PRODUCT)


def first_person(layout: Layout) -> None:
    """A database without people gets an administrator, whose password is shown this once."""
    if not postgres.has_rows(layout.postgres_socket, "accounts_user"):
        say(_manage(layout, "seed").strip())


def _manage(layout: Layout, *command: str) -> str:
    """Run one short management command and return what it printed; raises StackError with it when it fails."""
    name = f"`manage.py {command[0]}`"
    try:
        done = subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=REPOSITORY,
            env=environment.by_hand(layout),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StackError(f"{name} did not end within {COMMAND_SECONDS:g} s") from error
    if done.returncode:
        raise StackError(f"{name} failed:\n{done.stdout[-3000:]}")
    return done.stdout


def _wait_for_web(layout: Layout, supervisor: Supervisor) -> None:
    """Until our own web process (not whoever else may hold the port) answers a request."""
    variables = environment.read(layout)
    host, port = variables["OPENCOMPOSER_HOST"], int(variables["OPENCOMPOSER_PORT"])
    log = layout.logs / "web.log"
    deadline = time.monotonic() + WEB_SECONDS
    while True:
        web = supervisor.state("web")
        if web.pid and ports.listens(web.pid, port) and _answers("127.0.0.1" if host == "0.0.0.0" else host, port):  # noqa: S104
            return
        if web.state in FAILED_STATES or (web.state == "BACKOFF" and not ports.is_free(port, host)):
            raise StackError(f"the web server does not start ({web.state}):\n{log.read_text()[-2000:]}")
        if time.monotonic() > deadline:
            raise NotAnswering("the web server", WEB_SECONDS, log)
        time.sleep(0.1)


def _answers(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=20)
    try:
        connection.request("GET", "/login/")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _stop(layout: Layout) -> bool:
    supervisor = Supervisor.running(layout)
    if supervisor is not None:
        supervisor.shut_down()
    left = end_leftovers(layout)
    for name in ("env", "mark"):  # a command typed by hand must not look for servers that are gone
        (layout.run / name).unlink(missing_ok=True)
    return supervisor is not None or left


def end_leftovers(layout: Layout) -> bool:
    """End processes of a start whose supervisor was killed, the database last. Returns whether there were any."""
    pids = processes.of_stack(layout, environment.read_mark(layout))
    database = {pid for pid in pids if postgres.is_server_of(pid, layout.postgres)}
    processes.end([pid for pid in pids if pid not in database])
    processes.end(database, how=signal.SIGINT, patience=30)
    return bool(pids)
