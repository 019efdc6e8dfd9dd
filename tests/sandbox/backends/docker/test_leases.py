"""Whose containers may be removed: of processes that are gone, and of nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sandbox.backends.base import SandboxUnavailable
from sandbox.backends.docker.leases import LEASE_LABEL, Lease, folder_id, sweep

ROOT = Path(__file__).resolve().parents[4]
HOLDER = """
    import sys
    from pathlib import Path
    from sandbox.backends.docker.leases import Lease
    lease = Lease(Path(sys.argv[1]))
    print(lease.name, flush=True)
    sys.stdin.read()
"""


def swept(folder: Path, used: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
    found: list[str] = []
    sweep(folder, set(used), found.append)
    return found


def test_kept_while_the_process_lives_and_swept_when_it_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(HOLDER), str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        name = holder.stdout.readline().strip()
        assert swept(tmp_path, {name}) == []
        holder.kill()
        holder.wait()
        assert swept(tmp_path, {name}) == [name]
        assert swept(tmp_path) == []


def test_what_a_closed_lease_left_is_swept(tmp_path: Path) -> None:
    lease = Lease(tmp_path)
    assert swept(tmp_path, {lease.labels[LEASE_LABEL]}) == []
    lease.close()
    lease.close()
    assert swept(tmp_path, {lease.name}) == [lease.name]
    assert [path.name for path in tmp_path.iterdir()] == ["id"]


def test_a_forked_child_does_not_hold_it(tmp_path: Path) -> None:
    lease = Lease(tmp_path)
    ready, told = os.pipe()
    blocked, release = os.pipe()
    pid = os.fork()
    if pid == 0:
        lease.close()  # not the child's to give up
        os.write(told, b"x")
        os.read(blocked, 1)
        os._exit(0)
    os.read(ready, 1)
    assert swept(tmp_path, {lease.name}) == []
    lease._forget()  # as the kernel does at the end of this process
    assert swept(tmp_path, {lease.name}) == [lease.name]
    os.write(release, b"x")
    os.waitpid(pid, 0)


def test_folders_have_names_of_their_own(tmp_path: Path) -> None:
    assert folder_id(tmp_path / "a") == folder_id(tmp_path / "a") != folder_id(tmp_path / "b")


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(SandboxUnavailable, match="OPENCOMPOSER_DOCKER_LEASES"):
        Lease(tmp_path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxUnavailable, match="name another folder"):
        Lease(tmp_path / "file" / "below")
