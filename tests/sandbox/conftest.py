"""A backend, an environment store and a built package for every test that runs real sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sandbox.backends.base import Backend
from sandbox.backends.namespaces.backend import NamespacesBackend
from sandbox.packages.build import BuiltPackage, build_archive
from sandbox.repositories import pins
from sandbox.tasks.environments import EnvironmentStore
from tests.sandbox.shelf import FILES, PIN, put_toolchain, write_sdist


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


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A download cache that holds the test tools, copied from the interpreter that runs these tests."""
    return put_toolchain(tmp_path_factory.mktemp("downloads"))


@pytest.fixture(scope="session")
def build(backend: Backend, environments: EnvironmentStore, cache: Path, tmp_path_factory) -> Callable[..., object]:
    """`await build(files)` builds an environment of those files."""

    async def run(files: Mapping[str, str], pin: pins.Pin = PIN) -> BuiltPackage:
        archive = write_sdist(tmp_path_factory.mktemp("sdist") / "shelf-1.2.tar.gz", files)
        return await build_archive(environments, archive, pin, backend=backend, cache=cache)

    return run


@pytest.fixture(scope="session")
def built(build) -> BuiltPackage:
    return asyncio.run(build(FILES))
