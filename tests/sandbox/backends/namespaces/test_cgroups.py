"""Which control groups are taken on the layouts that machines have (laid out as plain directories)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.backends.namespaces.kernel.cgroups import PARENT, Cgroups

FILES = (
    *("memory.max", "memory.swap.max", "pids.max", "cpu.max", "memory.events", "cgroup.procs"),
    *("memory.limit_in_bytes", "memory.oom_control", "cpu.cfs_quota_us", "cpu.shares", "cpu.weight"),
)
ALL = "cpuset cpu io memory hugetlb pids"


def v2(root: Path, path: str, *, offered: str = ALL, handed: str = ALL) -> tuple[str, str]:
    """A cgroup v2 tree with our own group at `path`; (cgroup text, mountinfo text)."""
    for folder in (root, *(root / part for part in _prefixes(path))):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.controllers").write_text(offered)
        (folder / "cgroup.subtree_control").write_text(handed)
    return f"0::/{path}\n", f"30 23 0:26 / {root} rw shared:4 - cgroup2 cgroup2 rw\n"


def _prefixes(path: str) -> list[str]:
    parts = path.split("/") if path else []
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """New groups come with their files, and leave with them, as the kernel does it."""
    real, real_rmdir = os.makedirs, os.rmdir

    def makedirs(path: str, exist_ok: bool = False) -> None:
        real(path, exist_ok=exist_ok)
        for name, text in (("cgroup.controllers", ALL), ("cgroup.subtree_control", "")):
            (Path(path) / name).write_text(text)
        for name in FILES:
            (Path(path) / name).touch()

    def rmdir(path: str) -> None:
        for entry in Path(path).iterdir():
            if entry.is_file():
                entry.unlink()
        real_rmdir(path)

    monkeypatch.setattr(os, "makedirs", makedirs)
    monkeypatch.setattr(os, "rmdir", rmdir)


@pytest.mark.usefixtures("kernel")
def test_v2_beside_our_own_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = v2(tmp_path, "user.slice/app.scope")
    own = tmp_path / "user.slice/app.scope"
    (own / "cgroup.controllers").write_text("")  # nothing is handed down to where we are
    (own / "cgroup.subtree_control").write_text("")
    found = Cgroups(*texts)
    assert (found.kind, found.cpu) == ("v2", True)
    group = found.create("1")
    group.limit(memory=1 << 30, processes=100, cpus=0.5)
    folder = tmp_path / "user.slice" / f"{PARENT}{os.getpid()}" / "1"
    assert (folder / "memory.max").read_text() == str(1 << 30) and (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "cpu.max").read_text() == "50000 100000" and int((folder / "pids.max").read_text()) >= 100
    group.join()
    assert (folder / "cgroup.procs").read_text() == "0"
    group.forget()


def test_v2_without_controllers_and_no_v1(tmp_path: Path) -> None:
    found = Cgroups(*v2(tmp_path, "", offered=""))
    assert found.kind == "none" and not found.cpu
    assert "no memory and pids controllers" in found.reasons[0] and "Delegate=yes" in found.reasons[-1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_v2_not_delegated(tmp_path: Path) -> None:
    texts = v2(tmp_path, "session.scope")
    for folder in (tmp_path, tmp_path / "session.scope"):
        folder.chmod(0o555)
    found = Cgroups(*texts)
    assert found.kind == "none" and any("not delegated" in reason for reason in found.reasons)
    tmp_path.chmod(0o755)


@pytest.mark.usefixtures("kernel")
def test_v1_below_a_mount_that_starts_at_our_container(tmp_path: Path) -> None:
    lines = []
    for controller in ("memory", "pids", "cpu"):
        (tmp_path / controller / "mine").mkdir(parents=True)
        lines.append(f"30 23 0:26 /docker/x {tmp_path}/{controller} rw - cgroup cgroup rw,{controller}")
    cgroup = "9:memory:/docker/x/mine\n8:pids:/docker/x/mine\n7:cpu:/docker/x/mine\n0::/\n"
    found = Cgroups(cgroup, "\n".join(lines))
    assert (found.kind, found.cpu) == ("v1", True)
    assert (tmp_path / "memory/mine" / f"{PARENT}{os.getpid()}").is_dir()
    found.close()
    assert not list(tmp_path.glob(f"*/mine/{PARENT}*"))


@pytest.mark.parametrize(("niceness", "weight", "shares"), [(0, "", ""), (10, "11", "110"), (19, "1", "15")])
@pytest.mark.usefixtures("kernel")
def test_sandboxes_of_a_nice_process_take_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, niceness: int, weight: str, shares: str
) -> None:
    """Groups are weighed against each other whatever the niceness of the processes in them."""
    monkeypatch.setattr(os, "getpriority", lambda which, who: niceness)
    found = Cgroups(*v2(tmp_path / "v2", ""))
    assert found.kind == "v2" and (tmp_path / "v2" / f"{PARENT}{os.getpid()}" / "cpu.weight").read_text() == weight
    lines = []
    for controller in ("memory", "pids", "cpu"):
        (tmp_path / controller).mkdir()
        lines.append(f"30 23 0:26 / {tmp_path}/{controller} rw - cgroup cgroup rw,{controller}")
    found = Cgroups("9:memory:/\n8:pids:/\n7:cpu:/\n", "\n".join(lines))
    assert found.kind == "v1" and (tmp_path / "cpu" / f"{PARENT}{os.getpid()}" / "cpu.shares").read_text() == shares


@pytest.mark.usefixtures("kernel")
def test_groups_of_a_dead_zygote_are_swept(tmp_path: Path) -> None:
    lines = []
    for controller in ("memory", "pids"):
        (tmp_path / controller / f"{PARENT}999999999" / "7").mkdir(parents=True)
        (tmp_path / controller / "somebody-else").mkdir()
        lines.append(f"30 23 0:26 / {tmp_path}/{controller} rw - cgroup cgroup rw,{controller}")
    found = Cgroups("9:memory:/\n8:pids:/\n", "\n".join(lines))
    assert found.kind == "v1" and not found.cpu
    assert not list(tmp_path.glob(f"*/{PARENT}999999999")) and len(list(tmp_path.glob("*/somebody-else"))) == 2
    found.close()
