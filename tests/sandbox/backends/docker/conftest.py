"""An engine for the tests marked `docker`, and what it holds of ours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from sandbox.backends.base import SandboxUnavailable
from sandbox.backends.docker import leases
from sandbox.backends.docker.backend import DockerBackend
from sandbox.backends.docker.engine import Engine
from sandbox.backends.docker.settings import DockerSettings


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    try:
        made = Engine(DockerSettings().socket_url())
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    yield made
    made.close()


@pytest.fixture
def settings(tmp_path_factory: pytest.TempPathFactory) -> DockerSettings:
    """Settings with leases of their own, so that what they name is this test's alone."""
    return DockerSettings(leases=tmp_path_factory.mktemp("leases"))


@pytest.fixture
async def backend(engine: Engine, settings: DockerSettings) -> AsyncIterator[DockerBackend]:
    made = DockerBackend(settings)
    found = await asyncio.to_thread(made.probe)
    if not found.usable:
        pytest.skip("; ".join(found.reasons))
    yield made
    await made.close()


def held(engine: Engine, settings: DockerSettings) -> set[str]:
    """Containers and volumes that carry the label of these leases."""
    containers, volumes = engine.labelled(leases.FOLDER_LABEL, leases.folder_id(settings.leases))
    return {*containers, *volumes}


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "still not so after the deadline"
        time.sleep(0.05)
