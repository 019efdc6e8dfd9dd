"""A Docker engine for tests and benches: the one that answers, else a private one that ends with its user.

`python -m tests.docker_engine COMMAND…` runs a command with DOCKER_HOST set to it. The private engine has a data
folder, socket and containerd of its own, no bridge and no firewall rules; it needs root and Debian's docker.io.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sandbox.backends.base import SandboxUnavailable
from sandbox.backends.docker import remedies
from sandbox.backends.docker.settings import DockerSettings

START_SECONDS = 120.0
STOP_SECONDS = 60.0


class NoEngine(Exception):
    """There is no engine, and none can be started; one line says what is missing."""


@contextlib.contextmanager
def engine() -> Iterator[str]:
    """The URL of an engine's socket. Raises NoEngine."""
    url = DockerSettings().socket_url()
    try:
        remedies.reach(url)
    except SandboxUnavailable as error:
        missing = [name for name in ("dockerd", "containerd", "runc") if shutil.which(name) is None]
        if os.geteuid() != 0 or missing:
            wants = f"{', '.join(missing)} (apt-get install docker.io)" if missing else "root"
            raise NoEngine(f"{error}; a private engine needs {wants}") from None
        with _private() as private:
            yield private
    else:
        yield url


@contextlib.contextmanager
def _private() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="dockerd-"))
    url = f"unix://{folder}/s"
    settings = folder / "daemon.json"
    runtimes = {"runsc": {"path": shutil.which("runsc"), "runtimeArgs": ["--network=none"]}}
    settings.write_text(json.dumps({"runtimes": runtimes if shutil.which("runsc") else {}}))
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    command = [
        *("setpriv", "--pdeathsig", "TERM", "dockerd", "--config-file", str(settings), "--host", url),
        *("--data-root", str(folder / "data"), "--exec-root", str(folder / "exec"), "--pidfile", str(folder / "pid")),
        *("--bridge=none", "--iptables=false", "--ip6tables=false", "--log-level", "warn"),
        *("--default-ulimit", f"nofile={min(1024, most_files)}:{most_files}"),
    ]
    log = folder / "log"
    with log.open("wb") as output:
        daemon = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        _wait(daemon, url, log)
        yield url
    finally:
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(daemon: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if daemon.poll() is not None:
            break
        with contextlib.suppress(SandboxUnavailable):
            return remedies.reach(url)
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(0.1)
    last = log.read_text(errors="replace").strip().splitlines()[-3:]
    raise NoEngine(f"dockerd did not start: {' | '.join(last)}")


def main() -> int:
    try:
        with engine() as url:
            return subprocess.run(sys.argv[1:], env=os.environ | {"DOCKER_HOST": url}, check=False).returncode
    except NoEngine as error:
        print(f"docker: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
