"""The read-only base root that all sandboxes of a zygote lie over, built once.

Everything is mounted in a private mount namespace, below a staging directory that exists on every host and that
nobody keeps environments in; nothing of it is visible on the host or survives its processes.

    stage/draft  a small /etc, links and mount points; read-only as stage/root
    stage/s/N    directories of the machine: /usr, the interpreter
    stage/d/     the machine's devices, for hosts that cannot make some for each sandbox
    stage/new    mount point of a sandbox's root
    stage/l/N    environment layers in use, by number, on kernels without detached mounts
    stage/w      mount point of a sandbox's size-limited tmpfs

No sandbox sees these inodes themselves: file locks and watches would cross. Each lays overlays of its own over
`Base.sources` (`mounts.py`).
"""

from __future__ import annotations

import errno
import os
import shlex
from dataclasses import dataclass

from sandbox.backends.namespaces.kernel import syscalls, system
from sandbox.backends.namespaces.kernel.syscalls import ATTR_NODEV, ATTR_NOSUID, ATTR_RDONLY, BIND, NOSUID

STAGES = ("/sys/kernel", "/mnt", "/media")
READONLY = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
LINKS = {
    **{f"/dev/{name}": target for name, target in DEVICE_LINKS.items()},
    "/etc/mtab": "/proc/self/mounts",
    "/var/tmp": "../tmp",
    "/var/run": "../run",
}


@dataclass(frozen=True)
class Base:
    """Where the base root lies, and which directories in it are mounts of the machine's own."""

    stage: str
    sources: tuple[str, ...]
    """Where `stage/s/N` belongs in the root, by N, parents first."""


def build_base(interpreter: str, prefix: str) -> Base:
    """Mount the staging tmpfs and the base root in it. Raises StepError."""
    stage = next((path for path in STAGES if os.path.isdir(path)), None)
    if stage is None:
        raise syscalls.StepError("mount", errno.ENOENT, f"find a directory to mount on (none of {STAGES} exists)")
    syscalls.mount("tmpfs", stage, "tmpfs", NOSUID, "mode=755,size=24m", step="mount")
    draft = f"{stage}/draft"
    for folder in ("draft", "root", "new", "l", "l/empty", "w", "s", "d"):
        os.mkdir(f"{stage}/{folder}")
    for folder in system.FOLDERS:
        os.makedirs(f"{draft}/{folder}")
    sources: dict[str, str] = {}
    for name in ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        source = f"/{name}"
        if os.path.islink(source):
            os.symlink(os.readlink(source), f"{draft}/{name}")
        elif os.path.isdir(source):
            sources[name] = source
    for name in system.ETC:
        _provide_etc(os.path.realpath(f"/etc/{name}"), f"{draft}/etc/{name}")
    for path, text in system.files().items():
        with open(draft + path, "w") as file:
            file.write(text)
    for device in DEVICES:
        for path in (f"{draft}/dev/{device}", f"{stage}/d/{device}"):
            with open(path, "w"):
                pass
        syscalls.mount(f"/dev/{device}", f"{stage}/d/{device}", None, BIND, step="mount")
    for path, target in LINKS.items():
        os.symlink(target, draft + path)
    if prefix != "/usr" and not prefix.startswith("/usr/"):
        sources[prefix.strip("/")] = prefix
    if prefix != "/usr/local" and os.path.isdir("/usr/local/bin"):
        sources["usr/local/bin"] = _python_folder(stage, interpreter)
    for number, (name, source) in enumerate(sources.items()):
        if not name.startswith("usr/"):  # /usr is not ours to add to
            os.makedirs(f"{draft}/{name}", exist_ok=True)
        os.mkdir(f"{stage}/s/{number}")
        syscalls.bind_readonly(source, f"{stage}/s/{number}", READONLY, step="mount", recursive=False)
    syscalls.bind_readonly(draft, f"{stage}/root", READONLY, step="mount")
    return Base(stage, tuple(sources))


def _provide_etc(source: str, target: str) -> None:
    """Copied, because every mount makes every start dearer."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
        for name in os.listdir(source):
            if os.path.islink(f"{source}/{name}"):
                os.symlink(os.readlink(f"{source}/{name}"), f"{target}/{name}")
            else:
                _provide_etc(f"{source}/{name}", f"{target}/{name}")
    elif os.path.isfile(source) and os.path.getsize(source) < system.MAX_COPIED_BYTES and os.access(source, os.R_OK):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(source, "rb") as reader, open(target, "wb") as writer:
            writer.write(reader.read())


def _python_folder(stage: str, interpreter: str) -> str:
    """A folder of programs on the usual PATH that start the host's interpreter, which is at its own path."""
    os.mkdir(f"{stage}/bin")
    for name, text in python_programs(interpreter).items():
        with open(f"{stage}/bin/{name}", "w") as file:
            file.write(text)
        os.chmod(file.name, 0o755)
    return f"{stage}/bin"


def python_programs(interpreter: str) -> dict[str, str]:
    """Name → text of the programs on the PATH that start `interpreter`.

    Not links: started through a link outside its installation, `venv` would make environments that look for the
    standard library beside the link.
    """
    text = f'#!/bin/sh\nexec {shlex.quote(interpreter)} "$@"\n'
    return {"python": text, "python3": text}
