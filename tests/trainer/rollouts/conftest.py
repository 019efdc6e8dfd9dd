from __future__ import annotations

import asyncio

import pytest

from sandbox.backends.choice import default_backend
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.procedural import generate
from tests.trainer.rollouts.scripted import ScriptedClient
from tests.trainer.stages.memory import BASE_POLICY
from trainer.policy import ChatRenderer, load_tokenizer, make_renderer
from trainer.rollouts.episode import RolloutServices


@pytest.fixture(scope="session")
def renderer() -> ChatRenderer:
    return make_renderer(load_tokenizer(BASE_POLICY))


@pytest.fixture(scope="session")
def environments(tmp_path_factory) -> EnvironmentStore:
    return EnvironmentStore(tmp_path_factory.mktemp("environments"))


@pytest.fixture
async def backend():
    backend = default_backend()
    yield backend
    await backend.close()


@pytest.fixture(scope="session")
def task():
    return generate(11, "train")


@pytest.fixture
def services(renderer, environments, backend):
    def build(client: ScriptedClient, *, slots: int = 8) -> RolloutServices:
        return RolloutServices(
            client=client,
            renderer=renderer,
            backend=backend,
            environments=environments,
            deployment="policy",
            slots=asyncio.Semaphore(slots),
        )

    return build
