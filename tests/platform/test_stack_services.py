"""The embedded Postgres and Valkey: started, found, killed, recovered, and gone afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest
import redis

from scripts.stack import environment, postgres, processes, throwaway
from scripts.stack.layout import MAX_SOCKET_FOLDER, REPOSITORY, Layout
from scripts.stack.supervision import Supervisor

from .conftest import Stack, wait_until

pytestmark = pytest.mark.integration


def broker(stack: Stack) -> redis.Redis:
    return redis.Redis.from_url(stack.variables["OPENCOMPOSER_REDIS_URL"], socket_timeout=3)


def rows(stack: Stack) -> int:
    with psycopg.connect(stack.variables["OPENCOMPOSER_DATABASE_URL"]) as connection:
        row = connection.execute("SELECT count(*) FROM kept").fetchone()
        assert row is not None
        return int(row[0])


def write_one(stack: Stack) -> None:
    with psycopg.connect(stack.variables["OPENCOMPOSER_DATABASE_URL"]) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (id int)")
        connection.execute("INSERT INTO kept VALUES (1)")


def test_both_services_come_back_with_their_data_after_kill_9(standing: Stack) -> None:
    write_one(standing)
    written = rows(standing)
    with broker(standing) as client:
        client.lpush("queue", "message")
    supervisor = Supervisor(standing.layout)
    before = {name: supervisor.state(name).pid for name in ("postgres", "valkey")}
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)

    def back() -> bool:
        now = {name: supervisor.state(name) for name in before}
        return all(state.state == "RUNNING" and state.pid != before[state.name] for state in now.values())

    wait_until(back, seconds=40, what="a restart of both services")
    layout = standing.layout
    postgres.wait_ready(layout.postgres, layout.postgres_socket, seconds=20, log=layout.logs / "postgres.log")
    assert rows(standing) == written
    with broker(standing) as client:
        assert client.lrange("queue", 0, -1) == [b"message"]


def test_down_leaves_no_process_and_the_next_start_finds_the_data(services: Stack) -> None:
    """And no stale address. A lock file with the pid of another process does not stop Postgres: after a reboot the number in
    postmaster.pid may belong to anybody, and Postgres alone would refuse to start. Down ends only what carries our mark."""
    write_one(services)
    pids = services.processes()
    assert len(pids) >= 3  # the supervisor, Postgres, Valkey
    foreign = subprocess.Popen(["sleep", "60"], env={**os.environ, environment.MARK: "of-another-stack"})
    try:
        done = services.command("down")
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()
    assert done.returncode == 0 and "stopped" in done.stderr
    assert [pid for pid in pids if processes.alive(pid)] == []
    assert services.variables == {}
    assert "nothing was running" in services.command("down").stderr
    assert services.command("status").stdout == "not running\n"
    (services.layout.postgres / "postmaster.pid").write_text(f"{os.getpid()}\n{services.layout.postgres}\n")
    done = services.command("up", "--only-services", "--detach")
    assert done.returncode == 0, done.stderr
    write_one(services)
    assert rows(services) == 2


def test_a_second_up_joins_the_running_stack(standing: Stack) -> None:
    pids = set(standing.processes())
    done = standing.command("up", "--only-services")
    assert done.returncode == 0 and "keeps running" in done.stderr
    assert pids <= set(standing.processes())


def test_a_start_after_the_supervisor_was_killed_replaces_what_it_left(standing: Stack) -> None:
    write_one(standing)
    written = rows(standing)
    left = standing.processes()
    os.kill(Supervisor(standing.layout).pid, signal.SIGKILL)
    assert standing.command("up", "--only-services", "--detach").returncode == 0
    assert [pid for pid in left if processes.alive(pid)] == []
    assert rows(standing) == written


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_a_signal_to_the_foreground_command_stops_everything(stack: Stack, how: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "scripts.stack", "up", "--only-services"],
        cwd=REPOSITORY,
        env=stack.environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        try:
            assert command.stderr is not None
            assert any("Ctrl-C stops it" in line for line in command.stderr)  # reads up to that line
            pids = stack.processes()
            assert len(pids) >= 3
            command.send_signal(how)
            assert command.wait(timeout=40) == 0
        finally:
            command.kill()
    assert [pid for pid in pids if processes.alive(pid)] == []


def test_an_interrupted_initdb_is_made_again(stack: Stack) -> None:
    stack.layout.postgres.mkdir()
    (stack.layout.postgres / "PG_VERSION").write_text("18\n")
    assert stack.command("up", "--only-services", "--detach").returncode == 0


def test_a_cluster_of_another_release_is_refused_with_the_remedy(stack: Stack) -> None:
    stack.layout.postgres.mkdir()
    (stack.layout.postgres / "PG_VERSION").write_text("17\n")
    (stack.layout.postgres / "opencomposer.initialised").touch()
    done = stack.command("up", "--only-services", "--detach")
    assert done.returncode == 1
    assert "was made by Postgres 17" in done.stderr and "Traceback" not in done.stderr


def test_a_long_data_path_gets_a_short_private_socket_folder(stack: Stack) -> None:
    deep = Stack(stack.data / ("d" * 50) / ("e" * 50))
    try:
        done = deep.command("up", "--only-services", "--detach")
        assert done.returncode == 0, done.stderr
        sockets = deep.layout.sockets
        assert len(os.fsencode(sockets)) <= MAX_SOCKET_FOLDER
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert deep.layout.sockets == sockets  # remembered
        write_one(deep)
    finally:
        deep.command("down")
        shutil.rmtree(deep.layout.sockets)


def test_a_socket_folder_that_others_may_enter_is_not_reused(tmp_path: Path) -> None:
    data = tmp_path / ("d" * 90)
    first = Layout.open(data).sockets
    first.chmod(0o755)
    second = Layout.open(data).sockets
    assert second != first
    first.rmdir()
    second.rmdir()


def test_valkey_refuses_those_without_the_password_and_secrets_are_private(standing: Stack) -> None:
    port = int(standing.variables["OPENCOMPOSER_REDIS_URL"].rpartition(":")[2].split("/")[0])
    with redis.Redis(port=port, socket_timeout=3) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    for name in ("env", "valkey.conf", "mark"):
        assert stat.S_IMODE((standing.layout.run / name).stat().st_mode) & 0o077 == 0 or name == "mark"
    assert stat.S_IMODE(standing.layout.run.stat().st_mode) == 0o700
    listening = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert standing.variables["OPENCOMPOSER_REDIS_URL"].split(":")[2].split("@")[0] not in listening


def test_a_taken_port_that_the_user_named_is_refused(stack: Stack) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = stack.command("up", "--only-services", OPENCOMPOSER_PORT=str(port))
    assert done.returncode == 1
    assert f"port {port} of 127.0.0.1 is taken" in done.stderr and "PORT=" in done.stderr
    assert stack.processes() == []


@pytest.mark.parametrize("port", ["eighty", "0", "70000"])
def test_a_port_that_is_none_is_refused(stack: Stack, port: str) -> None:
    done = stack.command("up", "--only-services", OPENCOMPOSER_PORT=port)
    assert done.returncode == 1 and "1 to 65535" in done.stderr


def test_an_unwritable_data_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = Stack(tmp_path / "file" / "data").command("up", "--only-services")
    assert done.returncode == 1 and "cannot create" in done.stderr and "OPENCOMPOSER_DATA" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user needs no other account")
def test_root_without_user_namespaces_runs_postgres_as_another_account(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(tempfile.mkdtemp(prefix="oc-nobody-"))
    folder.chmod(0o755)
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "unshare" else real(name))
    try:
        postgres.initialise(folder / "cluster", durable=False)
        assert (folder / "cluster" / "PG_VERSION").stat().st_uid == postgres.NOBODY
        log = folder / "log"
        with log.open("w") as output:
            command = postgres.server_command(folder / "cluster", folder / "cluster", durable=False)
            server = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            postgres.wait_ready(folder / "cluster", folder / "cluster", seconds=20, log=log)
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=20) == 0
    finally:
        shutil.rmtree(folder)


def test_throw_away_services_end_with_the_process_that_started_them() -> None:
    """Even when that process is killed and cleans nothing up."""
    code = (
        "import sys\nfrom scripts.stack import throwaway\n"
        "with throwaway.services() as env:\n    print(env['OPENCOMPOSER_DATA'], flush=True)\n    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        home = Path(owner.stdout.readline().strip())
        postmaster = int((home / "postgres" / "postmaster.pid").read_text().splitlines()[0])
        assert processes.alive(postmaster)
        owner.kill()
        owner.wait()
    wait_until(lambda: not processes.alive(postmaster), what="the end of the orphaned Postgres")
    shutil.rmtree(home)


def test_throw_away_services_leave_nothing() -> None:
    with throwaway.services() as variables:
        home = Path(variables["OPENCOMPOSER_DATA"])
        assert home.is_dir()
    assert not home.exists()
