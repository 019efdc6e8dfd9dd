"""An image of the user's own, made here from this machine's Python and a few programs: nothing is fetched."""

from __future__ import annotations

import asyncio
import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.backends.base import EnvSpec, Limits
from sandbox.backends.docker.backend import DockerBackend
from sandbox.backends.docker.engine import Engine
from sandbox.backends.docker.settings import DockerSettings

from ..conftest import MIB

pytestmark = pytest.mark.docker
PYTHON = "/usr/bin/python3"
PROGRAMS = ("bash", "cat", "head", "id", "ls", "mkdir", "rm", "sleep", "stat", "tail", "touch")
LIMITS = Limits(memory_bytes=128 * MIB, disk_bytes=32 * MIB)
USERS = "root:x:0:0::/root:/bin/bash\n"
USER = "dev:x:1000:1000::/home/dev:/bin/bash\n"


def archive(users: str) -> bytes:
    """A tree with bash, Python and what they are linked with."""
    files = {os.path.realpath(PYTHON)}
    for name in PROGRAMS:
        files.add(os.path.realpath(shutil.which(name, path="/usr/bin:/bin") or pytest.skip(f"no {name} here")))
    version = subprocess.run([PYTHON, "-c", "import sysconfig as s; print(s.get_path('stdlib'))"], capture_output=True)
    library = Path(version.stdout.decode().strip())
    shared = [*files, *map(str, (library / "lib-dynload").glob("*.so"))]
    linked = subprocess.run(["ldd", *shared], capture_output=True, text=True).stdout
    wanted = {path for path in re.findall(r"(/\S+)", linked) if os.path.isfile(path)}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("proc", "sys", "dev", "tmp", "home/dev", "data", "usr/bin", "usr/lib"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder in ("tmp", "data") else 0o755
            tar.addfile(entry)
        for name in ("bin", "lib", "lib64"):
            if os.path.islink(f"/{name}"):
                tar.add(f"/{name}", name)
        for path in sorted(files | wanted):
            tar.add(os.path.realpath(path), os.path.realpath(os.path.dirname(path))[1:] + "/" + os.path.basename(path))
        tar.add(library, str(library)[1:], filter=lambda entry: None if "__pycache__" in entry.name else entry)
        for name, target in ((PYTHON, os.path.realpath(PYTHON)), ("/usr/bin/python", PYTHON)):
            if os.path.realpath(PYTHON) != name:
                link = tarfile.TarInfo(name[1:])
                link.type, link.linkname = tarfile.SYMTYPE, target
                tar.addfile(link)
        passwd = tarfile.TarInfo("etc/passwd")
        passwd.size = len(users)
        tar.addfile(passwd, io.BytesIO(users.encode()))
    return buffer.getvalue()


@pytest.fixture(scope="module")
def images(engine: Engine) -> Iterator[tuple[str, str]]:
    """Names of an image with and of one without our user."""
    if not os.path.exists(PYTHON):
        pytest.skip(f"no {PYTHON} to make an image of")
    names = []
    changes = ["ENV PROJECT=named", "ENV PATH=/usr/bin:/bin", "VOLUME /data", "ENTRYPOINT false", "USER 7"]
    with tempfile.TemporaryDirectory():
        for users, name in ((USERS + USER, "opencomposer-test-with"), (USERS, "opencomposer-test-without")):
            engine._api.import_image_from_data(archive(users), repository=name, tag="1", changes=changes)
            names.append(f"{name}:1")
    yield names[0], names[1]
    for name in names:
        engine._api.remove_image(name)


async def test_a_sandbox_of_a_named_image(images: tuple[str, str], settings: DockerSettings, env: EnvSpec) -> None:
    backend = DockerBackend(settings.model_copy(update={"image": images[0]}))
    found = await asyncio.to_thread(backend.probe)
    assert found.usable, found.reasons
    async with await backend.start(env, limits=LIMITS) as sandbox:
        said = await sandbox.exec("id -un; echo $PROJECT $HOME; python3 -c 'print(6 * 7)'; ls /usr/bin | head -3")
        assert said.output.split()[:4] == [b"dev", b"named", b"/home/dev", b"42"]
        assert b"bash" in said.output  # its programs are the image's, not this machine's
        assert (await sandbox.exec("touch /data/unbounded")).exit_code != 0
        await sandbox.exec("echo more >>main.py")
        assert [change.path for change in (await sandbox.diff()).changes] == ["main.py"]
    await backend.close()


def test_an_image_without_our_user(images: tuple[str, str], settings: DockerSettings) -> None:
    found = DockerBackend(settings.model_copy(update={"image": images[1]})).probe()
    assert not found.usable and "useradd --uid 1000" in found.reasons[0]


def test_an_image_without_that_python(images: tuple[str, str], settings: DockerSettings) -> None:
    found = DockerBackend(settings.model_copy(update={"image": images[0], "python": "python9"})).probe()
    assert not found.usable and "python9" in found.reasons[0]
