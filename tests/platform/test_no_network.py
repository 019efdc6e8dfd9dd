"""The second start needs no network: `make up` in a network namespace that has nothing but its loopback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from scripts.stack.layout import REPOSITORY

from .conftest import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LOOPBACK_UP = (
    "import fcntl, socket, struct; s = socket.socket(); name = b'lo'; "
    "fcntl.ioctl(s, 0x8914, struct.pack('16sh', name, 0x1 | 0x40))"
)
"""SIOCSIFFLAGS with IFF_UP and IFF_RUNNING: a new network namespace has its loopback down."""

SCRIPT = f"""
set -eu
{sys.executable} -c "{LOOPBACK_UP}"
! {sys.executable} -c "import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)" 2>/dev/null
make up DETACH=1
trap 'make down' EXIT
for second in $(seq 200); do
  if {sys.executable} manage.py health; then exit 0; fi
  sleep 1
done
exit 1
"""


def alone(*command: str) -> list[str]:
    """The command in a network namespace of its own; an ordinary user needs a user namespace for that."""
    return ["unshare", "--net", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--", *command]


@pytest.fixture(autouse=True)
def possible() -> None:
    if subprocess.run(alone("true"), capture_output=True, check=False).returncode:
        pytest.skip("this kernel grants no network namespace")


def test_a_second_start_needs_no_network(stack: Stack) -> None:
    done = subprocess.run(
        alone("bash", "-c", SCRIPT),
        cwd=REPOSITORY,
        env=stack.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "OpenComposer is at http://127.0.0.1:" in done.stderr
    assert "installing" not in done.stderr
    assert "FAIL" not in done.stdout.split("ok   database")[-1]
    assert stack.processes() == []
