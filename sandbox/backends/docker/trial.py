"""Capabilities of an engine: what it reports, and what a first sandbox shows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from sandbox.backends.base import (
    Capabilities,
    EnvSpec,
    Guarantee,
    Limits,
    SandboxLost,
    SandboxUnavailable,
)
from sandbox.backends.docker import remedies
from sandbox.backends.docker.containers import Kind
from sandbox.backends.docker.image import Image
from sandbox.backends.docker.sandbox import DockerSandbox
from sandbox.backends.docker.settings import DockerSettings
from sandbox.backends.namespaces.kernel import identity

LIMITS = Limits(memory_bytes=256 << 20, disk_bytes=16 << 20, inodes=1000, processes=32, life_seconds=600.0)
SWITCHES = {"memory": "MemoryLimit", "processes": "PidsLimit", "cpu": "CpuCfsQuota"}
"""Limit → where the engine says that it can enforce it."""
LOOK = "id -un; id -u; stat d/old >/dev/null && rm -r d && mkdir d && echo new >d/new && echo done"
CROWD = """%s -c 'import os, time
try:
    for count in range(%d):
        if os.fork() == 0: time.sleep(60)
except OSError: print("refused")'; kill -9 -1"""
"""Starts more processes than are allowed."""
HOG = "head -c %d /dev/zero | tail -c 4G >/dev/null; test ${PIPESTATUS[1]} = 0 || echo refused"
"""Holds more memory than is allowed."""
REFUSED = b"refused"
USERNS = "name=userns"


def kind(settings: DockerSettings, info: dict[str, Any], image: Image) -> Kind:
    """How containers are made on this engine. Raises SandboxUnavailable for a runtime or an engine that will not do."""
    runtimes = sorted(info.get("Runtimes") or ())
    if settings.runtime and settings.runtime not in runtimes:
        raise remedies.no_runtime(settings.runtime, runtimes)
    if any(option.startswith(USERNS) for option in info.get("SecurityOptions") or ()):
        raise SandboxUnavailable(
            "the engine remaps user ids (userns-remap), so files of environments would belong to nobody: use an engine "
            "without `userns-remap`, or the namespaces backend"
        )
    security = () if settings.seccomp is None else (f"seccomp={_profile(settings.seccomp)}",)
    controls = frozenset(limit for limit, switch in SWITCHES.items() if info.get(switch))
    trusted = "runc" if "runc" in runtimes else ""
    return Kind(
        image=image, runtime=settings.runtime, trusted_runtime=trusted, security=security, controls=controls, labels={}
    )


def _profile(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise SandboxUnavailable(
            f"seccomp profile {path}: {error.strerror}; correct OPENCOMPOSER_DOCKER_SECCOMP"
        ) from None


def sharing(why: str) -> str:
    return f"sandboxes share one user, and what the kernel counts by user: {why}"


def capabilities(info: dict[str, Any], made: Kind, why_shared: str) -> Capabilities:
    """What the engine promises before anything was tried; `why_shared` is empty where users are not."""
    version: Literal["v2", "v1"] = "v2" if str(info.get("CgroupVersion")) == "2" else "v1"
    enforced: set[Guarantee] = {"memory", "disk", "files", "output", "time", "network", "seccomp"}
    reasons = [sharing(why_shared)] if why_shared else []
    if "memory" not in made.controls:
        reasons.append("memory is watched, not limited: the engine has no memory controller (see `docker info`)")
    if "processes" in made.controls:
        enforced.add("processes")
    else:
        reasons.append("processes are not limited: the engine has no pids controller (see `docker info`)")
    if "cpu" in made.controls:
        enforced.add("cpu")
    else:
        reasons.append("cpu shares are not enforced: the engine has no cpu controller (see `docker info`)")
    return Capabilities(
        usable=True,
        cgroup=version if "memory" in made.controls else "none",
        enforced=frozenset(enforced),
        reasons=tuple(reasons),
    )


def environment(folder: Path) -> EnvSpec:
    """A layer in the new folder `folder`."""
    inner = folder / "repo" / "d"
    inner.mkdir(parents=True)
    (inner / "old").write_text("old\n")
    return EnvSpec(layers=(folder,))


async def judge(box: DockerSandbox, promised: Capabilities, made: Kind, *, named_image: bool) -> Capabilities:
    """What is true of the promises. Raises SandboxUnavailable when sandboxes cannot work."""
    said = (await box.exec(LOOK, timeout=60)).output.decode(errors="replace").splitlines()
    if said[:2] != [identity.USER, str(identity.INNER_UID)] and named_image:
        raise SandboxUnavailable(
            f"the image has no user {identity.USER!r} with number {identity.INNER_UID} (`id` said {said[:2]}): add it "
            f"with `RUN useradd --uid {identity.INNER_UID} --create-home --shell /bin/bash {identity.USER}`"
        )
    changed = {change.path: change.content for change in (await box.diff()).changes}
    if said[-1:] != ["done"] or changed != {"d/old": None, "d/new": b"new\n"}:
        raise SandboxUnavailable(
            f"a home made of layers does not work here (said {said}, found {sorted(changed)}). The engine's machine "
            f"needs Linux 6.6 or later (this is {os.uname().release}) with the overlay module, and its runtime must pass "
            "such a file system on: gVisor of 2022 does not, that of July 2024 does"
        )
    enforced, reasons = set(promised.enforced), list(promised.reasons)
    if box.counts_inodes:
        enforced.add("inodes")
    if made.own_users:
        enforced.add("users")
    if not box.guarded:
        reasons.append("a program locks the machine's anonymous inode, so locks cross there: find it in /proc/locks")
    if not made.on_host_kernel:
        if "processes" in enforced and not await _stands(box, CROWD % (made.image.python, LIMITS.processes * 3)):
            enforced.discard("processes")
            reasons.append("processes are not limited: the runtime does not count them one by one (gVisor does not)")
        if not await _stands(box, HOG % (2 * (LIMITS.memory_bytes + LIMITS.disk_bytes))):
            reasons.append("a command that runs out of memory takes its sandbox along: the runtime ends it as a whole")
    return Capabilities(usable=True, cgroup=promised.cgroup, enforced=frozenset(enforced), reasons=tuple(reasons))


async def _stands(box: DockerSandbox, attack: str) -> bool:
    """Whether a limit stops the command that it is meant for, and nothing else."""
    try:
        went_through = REFUSED not in (await box.exec(attack, timeout=60)).output
        await box.exec("true", timeout=60)
    except SandboxLost:
        return False
    return not went_through
