"""A backend and an environment store for every test that runs real sandboxes."""

from __future__ import annotations

import pytest

from sandbox.backends.base import Backend
from sandbox.backends.namespaces.backend import NamespacesBackend
from sandbox.tasks.environments import EnvironmentStore


@pytest.fixture(scope="session")
def backend() -> Backend:
    made = NamespacesBackend()
    found = made.probe()
    if not found.usable:
        pytest.skip(f"no sandboxes on this machine: {'; '.join(found.reasons)}")
    return made


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> EnvironmentStore:
    return EnvironmentStore(tmp_path_factory.mktemp("environments"))
