"""A small environment, and one sandbox in it; every test here runs for each backend of `BACKENDS`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from sandbox.backends.base import Backend, EnvSpec, Limits, Sandbox

from .host_state import Bystander, unchanged


def _namespaces() -> Backend:
    from sandbox.backends.namespaces.backend import NamespacesBackend

    return NamespacesBackend()


def _docker() -> Backend:
    backend = pytest.importorskip("sandbox.backends.docker.backend", exc_type=ImportError)
    return backend.DockerBackend()


BACKENDS: dict[str, Callable[[], Backend]] = {"namespaces": _namespaces, "docker": _docker}
MARKS = {"docker": [pytest.mark.docker]}
MIB = 1 << 20

FILES = {
    "repo/main.py": "import sys\n\n\ndef add(a, b):\n    return a + b\n",
    "repo/README.md": "# Sample\n\nadd two numbers\n",
    "repo/pkg/__init__.py": "",
    "repo/pkg/core.py": "LIMIT = 10\n\n\ndef add_all(values):\n    return sum(values)\n",
    "repo/pkg/data/table.txt": "one\ntwo\nthree\n",
    ".profile": "# profile\n",
}


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


async def output(sandbox: Sandbox, command: str, **options: object) -> str:
    """What `command` prints, without the last line ends."""
    result = await sandbox.exec(command, **options)  # type: ignore[arg-type]
    return result.output.decode(errors="replace").rstrip("\n")


@pytest.fixture(scope="session", params=[pytest.param(name, marks=MARKS.get(name, [])) for name in BACKENDS])
def backend(request: pytest.FixtureRequest) -> Backend:
    made = BACKENDS[request.param]()
    found = made.probe()
    if not found.usable:
        pytest.skip(f"{request.param}: {'; '.join(found.reasons)}")
    return made


@pytest.fixture(scope="session")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("layer"), FILES)


@pytest.fixture
def env(layer: Path) -> EnvSpec:
    return EnvSpec(layers=(layer,))


@pytest.fixture
async def sandbox(backend: Backend, env: EnvSpec) -> AsyncIterator[Sandbox]:
    limits = Limits(memory_bytes=128 * MIB, disk_bytes=32 * MIB, inodes=3000, processes=64, call_seconds=20)
    async with await backend.start(env, limits=limits) as made:
        yield made


@pytest.fixture(scope="session")
def bystander(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bystander]:
    made = Bystander(tmp_path_factory.mktemp("bystander"))
    yield made
    made.close()


@pytest.fixture
def unchanged_host(layer: Path, bystander: Bystander, request: pytest.FixtureRequest) -> Iterator[None]:
    """The host is the same after the test as before it."""
    if "backend" in request.fixturenames:
        request.getfixturevalue("backend")  # what it needs to start may change the host
    with unchanged(layer, bystander):
        yield
