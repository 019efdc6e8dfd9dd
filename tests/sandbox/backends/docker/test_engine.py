"""What only containers have: their confinement, their images and runtimes, and their end."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sandbox.backends.base import EnvSpec, Limits, SandboxError, SandboxLost, SandboxUnavailable
from sandbox.backends.docker.backend import DockerBackend
from sandbox.backends.docker.engine import Engine
from sandbox.backends.docker.layers import OWNER
from sandbox.backends.docker.settings import DockerSettings
from sandbox.backends.namespaces.kernel.uids import DOCKER_IDS
from sandbox.backends.users import USERS

from ..conftest import MIB, write_tree
from .conftest import eventually, held

pytestmark = pytest.mark.docker
LIMITS = Limits(memory_bytes=128 * MIB, disk_bytes=32 * MIB, inodes=3000, processes=64, cpus=0.5, open_files=200)


async def test_a_box_may_nothing(backend: DockerBackend, engine: Engine, env: EnvSpec) -> None:
    async with await backend.start(env, limits=LIMITS) as sandbox:
        found = engine._api.inspect_container(sandbox._made_of.box)
        keeper = engine._api.inspect_container(sandbox._made_of.keeper)
        rights = await sandbox.exec("awk '/^Cap/ {print $2} /^NoNewPrivs/ {print $2}' /proc/self/status")
        readable = await sandbox.exec("awk '$3 == \"overlay\" && $4 ~ /^ro/ {print $2}' /proc/mounts")
    host, config = found["HostConfig"], found["Config"]
    assert rights.output.split() == [b"0" * 16] * 5 + [b"1"]
    assert config["User"] in {f"{uid}:{uid}" for uid in DOCKER_IDS}
    assert [pair for pair in config["Env"] or () if not pair.startswith("PATH=")] == []
    assert (host["CapDrop"], host["Privileged"]) == (["ALL"], False)
    assert [name.removeprefix("CAP_") for name in host["CapAdd"]] == ["SYS_ADMIN"]  # for a filter; nobody has it
    assert host["NetworkMode"] == "none" and host["ReadonlyRootfs"] and "no-new-privileges" in host["SecurityOpt"]
    assert (host["Memory"], host["MemorySwap"]) == (160 * MIB, 160 * MIB)
    assert host["PidsLimit"] == 68 and host["CpuQuota"] == host["CpuPeriod"] // 2
    assert {"Name": "nofile", "Soft": 200, "Hard": 200} in host["Ulimits"]
    written = {mount["Destination"] for mount in found["Mounts"] if mount["RW"]}
    assert written - set(readable.output.decode().split()) == {"/home/dev", "/tmp", "/dev/shm", "/dev/pts"}
    assert keeper["HostConfig"]["NetworkMode"] == "none" and keeper["HostConfig"]["ReadonlyRootfs"]
    assert {*keeper["HostConfig"]["CapAdd"]} == {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SYS_ADMIN", "SETUID", "SETGID"}
    assert {mount["Destination"] for mount in keeper["Mounts"] if mount["RW"]} == {"/w"}


async def test_only_what_is_bounded_can_be_written(backend: DockerBackend, env: EnvSpec) -> None:
    async with await backend.start(env, limits=LIMITS) as sandbox:
        found = await sandbox.exec(
            "find / -xdev -writable -type d -not -path '/proc/*' 2>/dev/null; df --output=target /tmp"
        )
        folders = set(found.output.decode().split()) - {"/tmp", "Mounted", "on"}
        assert not {folder for folder in folders if not folder.startswith(("/home/dev", "/dev/shm", "/dev/mqueue"))}


async def test_a_killed_box_is_lost(backend: DockerBackend, engine: Engine, env: EnvSpec) -> None:
    sandbox = await backend.start(env, limits=LIMITS)
    running = asyncio.create_task(sandbox.exec("sleep 60"))
    await sandbox.read("main.py")
    await asyncio.to_thread(engine._api.kill, sandbox._made_of.box)
    with pytest.raises(SandboxLost, match="it died"):
        await running
    with pytest.raises(SandboxLost):
        await sandbox.exec("true")
    await sandbox.close()


async def test_a_killed_keeper_loses_the_patch(backend: DockerBackend, engine: Engine, env: EnvSpec) -> None:
    sandbox = await backend.start(env, limits=LIMITS)
    await asyncio.to_thread(engine._api.kill, sandbox._made_of.keeper)
    with pytest.raises(SandboxLost):
        async with asyncio.timeout(60):
            await sandbox.diff()
    await sandbox.close()


async def test_close_leaves_nothing(
    backend: DockerBackend, engine: Engine, settings: DockerSettings, layer: Path
) -> None:
    before = held(engine, settings)
    sandboxes = await asyncio.gather(*(backend.start(EnvSpec((layer,)), limits=LIMITS) for _ in range(2)))
    await sandboxes[0].exec("setsid sleep 976 & head -c 1M /dev/zero >file")
    assert len(held(engine, settings)) > len(before)
    await sandboxes[0].close()
    await backend.close()  # takes the other one along, and the copies of layers
    assert held(engine, settings) == set()
    assert [path.name for path in settings.leases.iterdir()] == ["id"]
    with pytest.raises(SandboxLost):
        await sandboxes[1].exec("true")
    async with await backend.start(EnvSpec((layer,)), limits=LIMITS) as again:  # it may be used anew
        assert (await again.exec("echo on")).output == b"on\n"


@pytest.mark.parametrize("nth", [1, 2], ids=["keeper", "box"])
@pytest.mark.parametrize("moment", ["create", "attach", "start"])
async def test_a_cancelled_start_leaves_nothing(
    backend: DockerBackend,
    engine: Engine,
    settings: DockerSettings,
    env: EnvSpec,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    nth: int,
) -> None:
    async with await backend.start(env, limits=LIMITS):
        pass
    before, loop, reached, calls = held(engine, settings), asyncio.get_running_loop(), asyncio.Event(), []
    real = getattr(Engine, moment)

    def counted(*arguments: object) -> object:
        calls.append(moment)
        if len(calls) == nth:
            loop.call_soon_threadsafe(reached.set)
        return real(*arguments)

    monkeypatch.setattr(Engine, moment, counted)
    starting = asyncio.create_task(backend.start(env, limits=LIMITS))
    async with asyncio.timeout(60):
        await reached.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await asyncio.to_thread(eventually, lambda: held(engine, settings) == before)


async def test_a_copy_that_vanished_is_made_anew(
    engine: Engine, settings: DockerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(USERS, "shared")
    backend = DockerBackend(settings)
    spec = EnvSpec((write_tree(tmp_path / "layer", {"repo/f": "f\n"}),))
    async with await backend.start(spec, limits=LIMITS):
        pass
    for volume in held(engine, settings):
        assert engine.remove_volume(volume)  # as `docker volume prune --all` does
    with pytest.raises(SandboxError):
        await backend.start(spec, limits=LIMITS)
    async with await backend.start(spec, limits=LIMITS) as sandbox:
        assert (await sandbox.exec("cat f")).output == b"f\n"
    await backend.close()


def give(tree: Path) -> None:
    """To the user that sandboxes have."""
    for path in (tree, *tree.rglob("*")):
        os.chown(path, *OWNER)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
async def test_layers_of_any_owner_and_name(backend: DockerBackend, engine: Engine, tmp_path: Path) -> None:
    odd = write_tree(tmp_path / "a,b:c\\d", {"repo/odd": "odd\n"})
    async with await backend.start(EnvSpec((odd,)), limits=LIMITS) as sandbox:
        assert (await sandbox.exec("cat odd; echo more >>odd; stat -c %U odd")).output == b"odd\ndev\n"
    assert (odd / "repo/odd").read_text() == "odd\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
async def test_where_a_user_is_shared_its_layers_are_used_in_place(
    engine: Engine, settings: DockerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(USERS, "shared")
    backend = DockerBackend(settings)
    layers = tuple(write_tree(tmp_path / f"{'long' * 20}{number}", {"repo/f": "f\n"}) for number in range(40))
    for layer in layers:
        give(layer)
    with pytest.raises(SandboxUnavailable, match="merge some"):
        await backend.start(EnvSpec(layers), limits=LIMITS)
    volumes = held(engine, settings)
    async with await backend.start(EnvSpec(layers[:2]), limits=LIMITS) as sandbox:
        assert (await sandbox.exec("cat f; stat -c %U f")).output == b"f\ndev\n"
    assert held(engine, settings) == volumes == set()  # no copy was made
    await backend.close()


async def test_many_layers_of_any_path(backend: DockerBackend, tmp_path: Path) -> None:
    layers = tuple(write_tree(tmp_path / f"{'long' * 20}{number}", {f"repo/{number}": ""}) for number in range(40))
    async with await backend.start(EnvSpec(layers), limits=LIMITS) as sandbox:
        assert (await sandbox.exec("ls | wc -l")).output == b"40\n"


def test_an_image_that_is_absent(engine: Engine, tmp_path: Path) -> None:
    found = DockerBackend(DockerSettings(image="opencomposer-absent:1", leases=tmp_path)).probe()
    assert not found.usable and "docker pull opencomposer-absent:1" in found.reasons[0]


def test_a_runtime_that_is_unknown(engine: Engine, tmp_path: Path) -> None:
    found = DockerBackend(DockerSettings(runtime="wonder", leases=tmp_path)).probe()
    assert not found.usable and "'wonder'" in found.reasons[0] and "daemon.json" in found.reasons[0]


def test_a_profile_that_is_absent(engine: Engine, tmp_path: Path) -> None:
    found = DockerBackend(DockerSettings(seccomp=tmp_path / "absent.json", leases=tmp_path)).probe()
    assert not found.usable and "OPENCOMPOSER_DOCKER_SECCOMP" in found.reasons[0]


async def test_a_profile_of_ones_own(engine: Engine, tmp_path: Path, env: EnvSpec) -> None:
    """It replaces the engine's; our filter inside holds either way."""
    (tmp_path / "profile.json").write_text('{"defaultAction": "SCMP_ACT_ALLOW"}')
    leases = tmp_path / "leases"
    backend = DockerBackend(DockerSettings(seccomp=tmp_path / "profile.json", leases=leases))
    async with await backend.start(env, limits=LIMITS) as sandbox:
        assert (await sandbox.exec("unshare --user true")).exit_code != 0
    await backend.close()
