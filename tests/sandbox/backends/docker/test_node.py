"""Inside a container the namespaces backend serves as a node for many sandboxes; which flags that takes."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.backends.docker import image
from sandbox.backends.docker.engine import Engine
from sandbox.backends.docker.settings import DockerSettings

from ..namespaces import test_ordinary_user

pytestmark = pytest.mark.docker
ROOT = Path(__file__).resolve().parents[4]
USER = 1000
LESS = {"CapDrop": ["ALL"], "ReadonlyRootfs": True, "Tmpfs": {"/tmp": "rw,mode=1777"}, "NetworkMode": "none"}
"""A node needs no capability at all."""
OPEN_SECCOMP, OPEN_PATHS = "seccomp=unconfined", "systempaths=unconfined"
CROWD = """
import asyncio, json
from pathlib import Path
from sandbox.backends.base import EnvSpec, Limits
from sandbox.backends.namespaces.backend import NamespacesBackend

async def main():
    backend = NamespacesBackend()
    Path("/tmp/layer/repo").mkdir(parents=True)
    Path("/tmp/layer/repo/f").write_text("f")
    env, limits = EnvSpec((Path("/tmp/layer"),)), Limits(memory_bytes=64 << 20, disk_bytes=8 << 20)
    boxes = await asyncio.gather(*(backend.start(env, limits=limits) for _ in range(20)))
    said = await asyncio.gather(*(box.exec(f"echo {n} >>f; cat f") for n, box in enumerate(boxes)))
    await backend.close()
    print(json.dumps([result.output.decode() for result in said]))

asyncio.run(main())
"""
Run = Callable[[str, list[str]], tuple[str, str]]


@pytest.fixture(scope="module")
def run(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run Python code in a container with our packages; its standard output and error."""
    made = image.ready(engine, DockerSettings(image=""))
    sources = tmp_path_factory.mktemp("node")
    sources.chmod(0o755)
    shutil.copytree(ROOT / "sandbox/backends", sources / "sandbox/backends")
    (sources / "sandbox/__init__.py").touch()
    shutil.copy(ROOT / "tests/sandbox/backends/namespaces/scenario.py", sources)
    api = engine._api

    def started(code: str, security: list[str]) -> tuple[str, str]:
        folders = [(path, path) for path in made.folders] + [(str(sources), "/node")]
        mounts = [{"Type": "bind", "Source": source, "Target": target, "ReadOnly": True} for source, target in folders]
        options = {"SecurityOpt": ["no-new-privileges", *(option for option in security if option != OPEN_PATHS)]}
        if OPEN_PATHS in security:  # a word of the command line for two lists of the API
            options |= {"MaskedPaths": [], "ReadonlyPaths": []}
        container = engine.create(
            {
                "Image": made.name,
                "Entrypoint": [made.python, "-c", code],
                "User": str(USER),
                "Env": ["PYTHONPATH=/node", "HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1"],
                "HostConfig": LESS | {"Mounts": mounts} | options,
            }
        )
        try:
            engine.start(container)
            api.wait(container, timeout=150)
            return tuple(api.logs(container, stdout=out, stderr=not out).decode() for out in (True, False))  # type: ignore[return-value]
        finally:
            engine.remove(container)

    return started


SCENARIO = """
import asyncio, json, scenario
from pathlib import Path
print(json.dumps(asyncio.run(scenario.scenario(Path("/tmp")))))
"""


async def test_the_whole_scenario(run: Run) -> None:
    said, errors = await asyncio.to_thread(run, SCENARIO, [OPEN_SECCOMP, OPEN_PATHS])
    assert said, errors
    found = json.loads(said)
    test_ordinary_user.check(found)
    assert {"memory", "processes", "disk", "inodes", "network", "seccomp"} <= set(found["enforced"])


async def test_many_sandboxes_in_one_container(run: Run) -> None:
    said, errors = await asyncio.to_thread(run, CROWD, [OPEN_SECCOMP, OPEN_PATHS])
    assert said, errors
    assert json.loads(said) == [f"f{number}\n" for number in range(20)]


PROBE = """
from sandbox.backends.namespaces.backend import NamespacesBackend
found = NamespacesBackend().probe()
print(found.usable, *found.reasons, sep="\\n")
"""


@pytest.mark.parametrize(
    ("security", "named"),
    [([], "seccomp=unconfined"), ([OPEN_PATHS], "seccomp=unconfined"), ([OPEN_SECCOMP], "systempaths=unconfined")],
    ids=["none", "no-seccomp", "no-paths"],
)
async def test_a_missing_flag_is_named(run: Run, security: list[str], named: str) -> None:
    said, errors = await asyncio.to_thread(run, PROBE, security)
    usable, reason, *_ = said.splitlines() or [errors, ""]
    assert usable == "False" and named in reason, (said, errors)
