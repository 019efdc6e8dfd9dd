"""Each container is a kernel user of its own, lent by the engine; where that cannot be, the backend says why."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
from pathlib import Path

import pytest

from sandbox.backends.base import EnvSpec, Limits, LimitUnenforceable, Sandbox
from sandbox.backends.docker import image
from sandbox.backends.docker.backend import DockerBackend
from sandbox.backends.docker.engine import Engine
from sandbox.backends.docker.settings import DockerSettings
from sandbox.backends.docker.users import Users
from sandbox.backends.namespaces.kernel.uids import DOCKER_IDS
from sandbox.backends.users import USERS

from ..conftest import MIB, write_tree

pytestmark = pytest.mark.docker
LIMITS = Limits(memory_bytes=128 * MIB, disk_bytes=32 * MIB)
NO_NAMESPACES = {
    "defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [{"names": ["unshare"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}],
}


async def kernel_uid(sandbox: Sandbox) -> int:
    return int((await sandbox.exec("cat /proc/self/uid_map")).output.split()[1])


async def test_no_two_live_containers_are_one_user(
    backend: DockerBackend, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    env = EnvSpec(layers=(write_tree(tmp_path / "layer", {"repo/a": "a\n"}),))
    other = DockerBackend(DockerSettings(leases=tmp_path_factory.mktemp("other")))
    boxes = await asyncio.gather(*(one.start(env, limits=LIMITS) for one in (backend, other) for _ in range(2)))
    uids = [await kernel_uid(box) for box in boxes]
    assert len(set(uids)) == len(boxes) and set(uids) <= set(DOCKER_IDS)
    said = [(await box.exec("stat -c %U a && echo b >>a && cat a; id -u")).output for box in boxes]
    assert set(said) == {b"dev\na\nb\n1000\n"}
    assert (tmp_path / "layer/repo/a").read_text() == "a\n"
    await asyncio.gather(*(box.close() for box in boxes))
    await other.close()


async def test_the_engine_lends_an_id_once(
    backend: DockerBackend, engine: Engine, settings: DockerSettings, env: EnvSpec
) -> None:
    config = {"Image": image.ready(engine, settings).name, "Entrypoint": ["true"]}
    async with await backend.start(env, limits=LIMITS) as sandbox:
        lent = await kernel_uid(sandbox)
        uid, container = await asyncio.to_thread(Users(first=lent).take, lambda name: engine.create(config, name))
        engine.remove(container)
        assert uid != lent and uid in DOCKER_IDS
    uid, container = await asyncio.to_thread(Users(first=lent).take, lambda name: engine.create(config, name))
    engine.remove(container)
    assert uid == lent


async def test_sharing_one_user_is_a_choice_that_is_named(
    engine: Engine,
    settings: DockerSettings,
    env: EnvSpec,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(USERS, "shared")
    backend = DockerBackend(settings)
    with caplog.at_level(logging.WARNING):
        found = await asyncio.to_thread(backend.probe)
    assert found.usable and "users" not in found.enforced and any(USERS in reason for reason in found.reasons)
    assert f"{USERS}=required" in caplog.text
    async with await backend.start(env, limits=LIMITS) as sandbox:
        assert (await sandbox.exec("id -u; echo x >>main.py; stat -c %U main.py")).output == b"1000\ndev\n"
    await backend.close()


async def test_where_users_cannot_be_had_it_says_why_and_can_be_refused(
    engine: Engine, settings: DockerSettings, env: EnvSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine whose profile lets nobody make a user namespace."""
    (tmp_path / "profile.json").write_text(json.dumps(NO_NAMESPACES))
    backend = DockerBackend(settings.model_copy(update={"seccomp": tmp_path / "profile.json"}))
    found = await asyncio.to_thread(backend.probe)
    assert found.usable and "users" not in found.enforced
    assert any("Operation not permitted" in reason and "6.15" in reason for reason in found.reasons)
    async with await backend.start(env, limits=LIMITS) as sandbox:
        assert (await sandbox.exec("id -un; echo x >>main.py")).output == b"dev\n"
    monkeypatch.setenv(USERS, "required")
    with pytest.raises(LimitUnenforceable, match=r"users.*share one user"):
        await backend.start(env, limits=LIMITS)
    await backend.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
async def test_a_layer_whose_file_system_cannot_translate_owners_is_copied(
    backend: DockerBackend, tmp_path: Path
) -> None:
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "ramfs", str(mounted)], check=True)
    try:
        layer = write_tree(mounted / "layer", {"repo/a": "a\n"})
        for _ in range(2):  # the second one finds the copy
            async with await backend.start(EnvSpec((layer,)), limits=LIMITS) as sandbox:
                assert (await sandbox.exec("stat -c %U a && echo b >>a && cat a")).output == b"dev\na\nb\n"
                assert await kernel_uid(sandbox) in DOCKER_IDS
        assert (layer / "repo/a").read_text() == "a\n"
    finally:
        subprocess.run(["umount", str(mounted)], check=True)
