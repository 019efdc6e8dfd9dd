"""gVisor, where the engine has it: it works with what it cannot hold named, or it is refused with the reason."""

from __future__ import annotations

import asyncio
import os

import pytest

from sandbox.backends.base import EnvSpec, Limits, LimitUnenforceable, NetPolicy, SandboxUnavailable
from sandbox.backends.docker.backend import DockerBackend
from sandbox.backends.docker.engine import Engine
from sandbox.backends.docker.settings import DockerSettings

from ..conftest import MIB
from .test_reaching_in import Answering

pytestmark = pytest.mark.docker
LIMITS = Limits(memory_bytes=256 * MIB, disk_bytes=32 * MIB, inodes=3000, required=frozenset({"memory", "disk"}))


async def test_gvisor(engine: Engine, settings: DockerSettings, env: EnvSpec) -> None:
    if "runsc" not in engine.info()["Runtimes"]:
        pytest.skip("the engine has no runtime runsc (Debian: apt-get install runsc)")
    backend = DockerBackend(settings.model_copy(update={"runtime": "runsc"}))
    found = await asyncio.to_thread(backend.probe)
    if not found.usable:
        assert "gVisor of 2022 does not" in found.reasons[0]
        return
    assert "processes" not in found.enforced and any("processes" in reason for reason in found.reasons)
    with pytest.raises(LimitUnenforceable, match="processes"):
        await backend.start(env)
    with pytest.raises(SandboxUnavailable, match="no way to the network"):
        await backend.start(env, limits=LIMITS, net=NetPolicy(gateway=Answering()))
    async with await backend.start(env, limits=LIMITS) as sandbox:
        said = await sandbox.exec("uname -r; cd pkg; echo more >>core.py; rm -r data; ls; head -c 40M /dev/zero >fill")
        assert os.uname().release.encode() not in said.output and b"No space left" in said.output
        patch = {change.path: change.content for change in (await sandbox.diff()).changes}
        assert patch["pkg/data/table.txt"] is None and (patch["pkg/core.py"] or b"").endswith(b"more\n")
        assert (await sandbox.exec("pwd")).output == b"/home/dev/repo/pkg\n"
    await backend.close()
