"""A worker that is killed leaves nothing that the engine or the next worker does not remove."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sandbox.backends.base import EnvSpec
from sandbox.backends.docker import leases
from sandbox.backends.docker.backend import DockerBackend
from sandbox.backends.docker.engine import Engine
from sandbox.backends.docker.settings import DockerSettings

from ..host_state import mounts
from .conftest import eventually, held

pytestmark = pytest.mark.docker
ROOT = Path(__file__).resolve().parents[4]
WORKER = textwrap.dedent("""
    import asyncio, sys
    from pathlib import Path
    from sandbox.backends.base import EnvSpec, Limits
    from sandbox.backends.docker import containers
    from sandbox.backends.docker.backend import DockerBackend
    from sandbox.backends.docker.settings import DockerSettings

    async def main(layer, leases, unstarted):
        backend, limits = DockerBackend(DockerSettings(leases=leases)), Limits(memory_bytes=64 << 20, disk_bytes=16 << 20)
        box = await backend.start(EnvSpec((layer,)), limits=limits)
        if unstarted:
            ready = backend._ready
            ready.engine.create(containers.keeper(ready.kind, [], limits))
        await box.exec("setsid sleep 977 & sleep 978 & head -c 1M /dev/zero >file")
        print("running", flush=True)
        await box.exec("sleep 979")

    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "unstarted"))
""")


@pytest.fixture(params=["started", "unstarted"])
def killed(request: pytest.FixtureRequest, engine: Engine, settings: DockerSettings, layer: Path) -> str:
    """Run a worker, and kill it in the middle of a command."""
    before = mounts()
    arguments = [str(layer), str(settings.leases), request.param]
    worker = subprocess.Popen([sys.executable, "-c", WORKER, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "running\n"
    assert len(held(engine, settings)) >= 4
    worker.kill()
    worker.wait()
    worker.stdout.close()
    assert mounts() == before
    return request.param


def test_kill_9(killed: str, engine: Engine, settings: DockerSettings) -> None:
    mine = f"{leases.FOLDER_LABEL}={leases.folder_id(settings.leases)}"
    eventually(lambda: not engine._api.containers(filters={"label": mine}))  # the engine alone ends what ran

    survivor = DockerBackend(settings)
    if killed == "unstarted":
        assert held(engine, settings)  # the engine waits for what never ran
    asyncio.run(survivor.sweep())  # already when it is first used
    asyncio.run(survivor.close())
    assert held(engine, settings) == set()
    assert [path.name for path in settings.leases.iterdir()] == ["id"]


async def test_what_lives_is_not_swept(backend: DockerBackend, settings: DockerSettings, layer: Path) -> None:
    async with await backend.start(EnvSpec((layer,))) as sandbox:
        other = DockerBackend(settings)
        assert await other.sweep() == 0
        await other.close()
        assert await backend.sweep() == 0
        assert (await sandbox.exec("echo on")).output == b"on\n"


async def test_leases_in_another_folder_are_somebody_elses(
    backend: DockerBackend, tmp_path: Path, layer: Path, engine: Engine
) -> None:
    async with await backend.start(EnvSpec((layer,))) as sandbox:
        stranger = DockerBackend(DockerSettings(leases=tmp_path / "other"))
        assert await stranger.sweep() == 0
        await stranger.close()
        assert (await sandbox.exec("echo on")).output == b"on\n"
