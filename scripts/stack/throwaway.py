"""Postgres and Valkey for one test session: fresh, fast, lossy, and gone with the process that started them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from . import ports, postgres, valkey
from .errors import StackError

PREFIX = "oc-test-"
STOP_SECONDS = 10.0
PR_SET_PDEATHSIG = 1


@contextlib.contextmanager
def services(*, large: bool = False) -> Iterator[dict[str, str]]:
    """Start both servers; yields the environment that makes the product use them. `large`: Postgres takes the share of the
    machine that the product's own does."""
    _sweep()
    home = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
    (home / "owner").write_text(f"{os.getpid()}\n")
    running: list[tuple[subprocess.Popen[bytes], signal.Signals]] = []
    try:
        home.chmod(0o711)  # Postgres may have to run as another account; what is inside is private by itself
        cluster = home / "postgres"
        endpoint = valkey.Endpoint.fresh(ports.any_free())
        valkey.write_configuration(home / "valkey.conf", home / "valkey", endpoint, durable=False)
        running.append((_start(valkey.server_command(home / "valkey.conf"), home / "valkey.log"), signal.SIGTERM))
        postgres.initialise(cluster, durable=False)
        command = postgres.server_command(cluster, cluster, durable=False, large=large)
        running.append((_start(command, home / "postgres.log"), signal.SIGINT))
        postgres.wait_ready(cluster, cluster, seconds=60, log=home / "postgres.log")
        postgres.ensure_database(cluster)
        valkey.wait_ready(endpoint, home / "valkey", seconds=30, log=home / "valkey.log")
        yield {
            "OPENCOMPOSER_DATA": str(home),
            "OPENCOMPOSER_DATABASE_URL": postgres.database_url(cluster),
            "OPENCOMPOSER_REDIS_URL": endpoint.url,
            "OPENCOMPOSER_SECRET_KEY": "tests-only-" + "0" * 50,
        }
    finally:
        for process, stop in running:
            process.send_signal(stop)
        for process, _ in running:
            try:
                process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=STOP_SECONDS)
        shutil.rmtree(home, ignore_errors=True)


def _start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        # A test session that is killed outright runs no clean-up; the kernel then ends the servers.
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT)

    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for pytest, which then stops them in order
            preexec_fn=die_with_parent,
        )


def _sweep() -> None:
    """Remove the folders of sessions that were killed."""
    for folder in Path("/tmp").glob(f"{PREFIX}*"):  # noqa: S108
        with contextlib.suppress(OSError, ValueError):
            if folder.stat().st_uid == os.geteuid() and time.time() - folder.stat().st_mtime > 60:
                pid = int((folder / "owner").read_text())
                if not Path(f"/proc/{pid}").exists():
                    shutil.rmtree(folder, ignore_errors=True)


__all__ = ["StackError", "services"]
