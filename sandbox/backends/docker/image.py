"""Images of a sandbox's containers: a small image with this machine's own /usr, or a configured image.

The image of this machine holds no program: folders, links and a small /etc, made here from a few files and imported,
so that nothing is fetched from anywhere. /usr and the interpreter's installation are mounted into it, read-only.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tarfile
from dataclasses import dataclass

from sandbox.backends.docker.engine import Engine
from sandbox.backends.docker.settings import DockerSettings
from sandbox.backends.namespaces.kernel import base_root, system

REPOSITORY = "opencomposer-sandbox"
SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
FOLDERS = (*system.FOLDERS, "w", "l", "from", "to")
MADE_BY_ENGINE = {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}
LOCAL_BIN = "/usr/local/bin"


@dataclass(frozen=True)
class Image:
    """An image that the engine has, and how it is used."""

    name: str
    python: str
    folders: tuple[str, ...] = ()
    """Folders of this machine that are mounted into it at the same path, read-only."""
    programs: tuple[tuple[str, str], ...] = ()
    """Name and text of programs that are put on the PATH of sandboxes."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables that the image sets."""
    volumes: tuple[str, ...] = ()
    """Places where the image wants to be written."""


def ready(engine: Engine, settings: DockerSettings) -> Image:
    """The image that the settings ask for. Raises SandboxUnavailable when the engine has none of that name."""
    return _named(engine, settings) if settings.image else _of_this_machine(engine)


def _named(engine: Engine, settings: DockerSettings) -> Image:
    config = engine.image(settings.image)
    own = {"HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "TERM"}
    pairs = [entry.partition("=") for entry in config.get("Env") or []]
    return Image(
        name=settings.image,
        python=settings.python,
        env=tuple((name, value) for name, _, value in pairs if name not in own),
        volumes=tuple(config.get("Volumes") or ()),
    )


def _of_this_machine(engine: Engine) -> Image:
    interpreter = os.path.realpath(sys.executable)
    prefix = sys.base_prefix
    folders = [f"/{name}" for name in SYSTEM if os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}")]
    programs: tuple[tuple[str, str], ...] = ()
    if prefix != "/usr" and not prefix.startswith("/usr/"):
        folders.append(prefix)
    if prefix != "/usr/local" and os.path.isdir(LOCAL_BIN):
        programs = tuple(base_root.python_programs(interpreter).items())
    archive = build_archive()
    name = f"{REPOSITORY}:{hashlib.sha256(archive).hexdigest()[:16]}"
    if not engine.has_image(name):
        engine.import_image(name, archive)
    return Image(name=name, python=interpreter, folders=tuple(folders), programs=programs)


def build_archive() -> bytes:
    """The image of this machine as a tar archive; the same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for folder in sorted(_parents(FOLDERS)):
            entry = _entry(folder, tarfile.DIRTYPE)
            entry.mode = 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        for name in SYSTEM:
            if os.path.islink(f"/{name}"):
                _link(archive, name, os.readlink(f"/{name}"))
        for name in system.ETC:
            _copy(archive, os.path.realpath(f"/etc/{name}"), f"etc/{name}")
        for path, text in system.files().items():
            if path not in MADE_BY_ENGINE:
                _file(archive, path.lstrip("/"), text.encode())
        for path in ("/etc/mtab", "/var/tmp", "/var/run"):
            _link(archive, path.lstrip("/"), base_root.LINKS[path])
    return buffer.getvalue()


def _copy(archive: tarfile.TarFile, source: str, name: str) -> None:
    if os.path.isdir(source):
        archive.addfile(_entry(name, tarfile.DIRTYPE))
        for inner in sorted(os.listdir(source)):
            path = f"{source}/{inner}"
            if os.path.islink(path):
                _link(archive, f"{name}/{inner}", os.readlink(path))
            else:
                _copy(archive, path, f"{name}/{inner}")
    elif os.path.isfile(source) and os.path.getsize(source) < system.MAX_COPIED_BYTES and os.access(source, os.R_OK):
        with open(source, "rb") as file:
            _file(archive, name, file.read())


def _parents(paths: tuple[str, ...]) -> set[str]:
    return {path.rsplit("/", count)[0] for path in paths for count in range(path.count("/") + 1)}


def _entry(name: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, 0o755
    return entry


def _link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = _entry(name, tarfile.SYMTYPE)
    entry.linkname, entry.mode = target, 0o777
    archive.addfile(entry)


def _file(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = _entry(name, tarfile.REGTYPE)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))
