"""Where this machine cannot isolate, the backend says what is missing and what to do, and starts nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sandbox.backends.base import Capabilities, EnvSpec, Limits, LimitUnenforceable, SandboxUnavailable
from sandbox.backends.limits import refuse_unenforceable
from sandbox.backends.namespaces.backend import NamespacesBackend, read_capabilities
from sandbox.backends.namespaces.remedies import explain
from sandbox.backends.users import USERS

ROOT = Path(__file__).resolve().parents[4]
PROBE = textwrap.dedent("""
    import asyncio, json, sys
    from sandbox.backends.base import EnvSpec, SandboxUnavailable
    from sandbox.backends.namespaces.backend import NamespacesBackend
    backend = NamespacesBackend()
    found = backend.probe()
    try:
        asyncio.run(backend.start(EnvSpec(layers=())))
        started = "started"
    except SandboxUnavailable as error:
        started = str(error)
    print(json.dumps([found.usable, list(found.reasons), started]))
""")
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="arranges the machine's state as root")


def probe_under(shell: str) -> list:
    """Run the probe after the commands in `shell`, in mount and user namespaces of its own."""
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f'{shell}\nexec "$@"', "sh"]
    done = subprocess.run([*command, sys.executable, "-c", PROBE], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@root_only
def test_masked_proc_of_a_plain_container() -> None:
    usable, reasons, started = probe_under("mount --bind /dev/null /proc/cpuinfo")
    assert not usable and "systempaths=unconfined" in reasons[0] and "unmask=ALL" in started


@root_only
def test_user_namespaces_switched_off() -> None:
    nested = 'echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"'
    usable, reasons, started = probe_under(f"exec unshare --user --map-root-user sh -ec '{nested}' sh \"$@\"")
    assert not usable
    assert "max_user_namespaces" in started or "id range" in started, (reasons, started)


async def test_no_descriptor_is_left(layer: Path) -> None:
    """It is told with the remedy, and harms no sandbox that runs."""
    backend = NamespacesBackend()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    boxes = []
    try:
        first = await backend.start(EnvSpec(layers=(layer,)))
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 12, before[1]))
        refusal = ""
        while not refusal:
            try:
                boxes.append(await backend.start(EnvSpec(layers=(layer,))))
            except SandboxUnavailable as error:
                refusal = str(error)
        assert "ulimit -n" in refusal and boxes and (await first.exec("echo on")).output == b"on\n"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    async with await backend.start(EnvSpec(layers=(layer,))) as another:
        assert (await another.exec("echo on")).output == b"on\n"
    await backend.close()


def test_required_limit_without_means(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = NamespacesBackend()
    found = backend.probe()
    weaker = dataclasses.replace(found, enforced=found.enforced - {"cpu"}, reasons=("no cpu controller",))
    monkeypatch.setattr(backend, "capabilities", weaker)
    limits = Limits(required=frozenset({"memory", "cpu"}))
    with pytest.raises(SandboxUnavailable, match=r"\['cpu'\].*no cpu controller"):
        asyncio.run(backend.start(EnvSpec(layers=()), limits=limits))
    asyncio.run(backend.close())


@pytest.mark.parametrize(
    ("cgroup", "cpu", "enforced"), [("v2", True, True), ("v1", False, False), ("none", False, False)]
)
def test_capabilities_say_what_is_enforced(cgroup: str, cpu: bool, enforced: bool) -> None:
    found = read_capabilities(
        {
            "cgroup": cgroup,
            "cpu": cpu,
            "users": enforced,
            "reasons": ["why"] if cgroup == "none" else [],
            "trial": {"op": "ready", "inodes": True},
        }
    )
    assert found.usable and ("cpu" in found.enforced) is enforced and {"memory", "processes", "disk"} <= found.enforced
    assert bool(found.reasons) is not enforced


def test_users_of_their_own_can_be_required(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Capabilities(
        usable=True, cgroup="v2", enforced=Limits().required, reasons=("an ordinary user has one id",)
    )
    refuse_unenforceable(Limits(), shared)
    monkeypatch.setenv(USERS, "required")
    with pytest.raises(LimitUnenforceable, match=r"users.*: an ordinary user has one id"):
        refuse_unenforceable(Limits(), shared)
    refuse_unenforceable(Limits(), dataclasses.replace(shared, enforced=shared.enforced | {"users"}))


def test_a_failed_trial_is_not_usable() -> None:
    trial = {"op": "fail", "step": "overlay", "errno": 19, "text": "mount overlay: No such device"}
    found = read_capabilities({"cgroup": "none", "cpu": False, "reasons": [], "trial": trial})
    assert found == Capabilities(usable=False, cgroup="none", reasons=found.reasons)
    assert "modprobe overlay" in found.reasons[0]


def test_advice_for_apparmor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    knob = tmp_path / "restrict"
    knob.write_text("1\n")
    monkeypatch.setattr("sandbox.backends.namespaces.remedies.RESTRICTED_BY_APPARMOR", str(knob))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "apparmor_restrict_unprivileged_userns=0" in explain("mount", 1, "mount tmpfs")
    knob.write_text("0\n")
    assert "AppArmor" not in explain("mount", 1, "mount tmpfs")
