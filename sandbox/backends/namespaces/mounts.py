"""The file system of a sandbox: one read-only base root built once by the zygote, and what each sandbox adds.

Everything is mounted in private mount namespaces, below a staging directory that exists on every host and that
nobody keeps environments in; nothing of it is visible on the host or survives its processes.

    stage/root   the read-only base: system directories, the interpreter, a small /etc, devices
    stage/l/N    environment layers in use, by number
    stage/w      (per sandbox) the size-limited tmpfs: upper, work, tmp, shm, and the new root
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
import stat
from collections import OrderedDict

from sandbox.backends.namespaces import identity, syscalls, system
from sandbox.backends.namespaces.syscalls import ATTR_NODEV, ATTR_NOSUID, ATTR_RDONLY, BIND, NODEV, NOEXEC, NOSUID, REC

STAGES = ("/sys/kernel", "/mnt", "/media")
LAYERS_KEPT = 48
READONLY = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
    "/dev/ptmx": "pts/ptmx",
    "/etc/mtab": "/proc/self/mounts",
    "/var/tmp": "../tmp",
    "/var/run": "../run",
}


class LayerError(Exception):
    """An environment layer cannot be used; the message says what to do."""


def enter(host_uid: int) -> None:
    """Move the zygote into a mount namespace of its own (as an ordinary user: and a user namespace)."""
    if host_uid == 0:
        syscalls.unshare(syscalls.NEWNS, "mount")
    else:
        gid = os.getegid()
        syscalls.unshare(syscalls.NEWUSER | syscalls.NEWNS, "userns")
        map_ids(host_uid, gid, host_uid, gid)
    syscalls.mount(None, "/", None, syscalls.PRIVATE | REC, step="mount")


def map_ids(inner_uid: int, inner_gid: int, uid: int, gid: int) -> None:
    """Give this process's fresh user namespace its one uid and gid."""
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1, step="userns")  # else our own map files belong to root
    for name, value in (
        ("setgroups", "deny"),
        ("uid_map", f"{inner_uid} {uid} 1"),
        ("gid_map", f"{inner_gid} {gid} 1"),
    ):
        try:
            put(f"/proc/self/{name}", value)
        except FileNotFoundError:  # gVisor has no setgroups
            if name != "setgroups":
                raise
        except OSError as error:
            raise syscalls.StepError("userns", error.errno or 0, f"write {name}") from None


def put(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def build_base(interpreter: str, prefix: str) -> str:
    """Mount the staging tmpfs and the base root in it; returns the stage. Raises StepError."""
    stage = next((path for path in STAGES if os.path.isdir(path)), None)
    if stage is None:
        raise syscalls.StepError("mount", errno.ENOENT, f"find a directory to mount on (none of {STAGES} exists)")
    syscalls.mount("tmpfs", stage, "tmpfs", NOSUID, "mode=755,size=16m", step="mount")
    draft = f"{stage}/draft"
    for folder in ("draft", "root", "l", "l/empty", "w"):
        os.mkdir(f"{stage}/{folder}")
    for folder in system.FOLDERS:
        os.makedirs(f"{draft}/{folder}")
    for name in ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        source = f"/{name}"
        if os.path.islink(source):
            os.symlink(os.readlink(source), f"{draft}/{name}")
        elif os.path.isdir(source):
            _bind(source, draft + source)
    for name in system.ETC:
        _provide_etc(os.path.realpath(f"/etc/{name}"), f"{draft}/etc/{name}")
    for path, text in system.files().items():
        with open(draft + path, "w") as file:
            file.write(text)
    for device in DEVICES:
        with open(f"{draft}/dev/{device}", "w"):
            pass
        syscalls.mount(f"/dev/{device}", f"{draft}/dev/{device}", None, BIND, step="mount")
    for path, target in LINKS.items():
        os.symlink(target, draft + path)
    _provide_python(stage, draft, interpreter, prefix)
    syscalls.bind_readonly(draft, f"{stage}/root", ATTR_RDONLY | ATTR_NOSUID, step="mount")
    return stage


def _provide_etc(source: str, target: str) -> None:
    """Small files are copied, because every mount makes every start dearer."""
    if os.path.isdir(source):
        _bind(source, target)
    elif os.path.isfile(source) and os.path.getsize(source) < system.MAX_COPIED_BYTES and os.access(source, os.R_OK):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(source, "rb") as reader, open(target, "wb") as writer:
            writer.write(reader.read())


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "a"):
            pass
    syscalls.bind_readonly(source, target, READONLY, step="mount")


def _provide_python(stage: str, draft: str, interpreter: str, prefix: str) -> None:
    """The host's interpreter at its own path, and programs on the usual PATH that start it."""
    if prefix != "/usr" and not prefix.startswith("/usr/"):
        _bind(prefix, draft + prefix)
    local = f"{draft}/usr/local/bin"
    if prefix == "/usr/local" or not os.path.isdir(local):
        return
    os.mkdir(f"{stage}/bin")
    for name, text in python_programs(interpreter).items():
        with open(f"{stage}/bin/{name}", "w") as file:
            file.write(text)
        os.chmod(file.name, 0o755)
    _bind(f"{stage}/bin", local)


def python_programs(interpreter: str) -> dict[str, str]:
    """Name → text of the programs on the PATH that start `interpreter`.

    Not links: started through a link outside its installation, `venv` would make environments that look for the
    standard library beside the link.
    """
    text = f'#!/bin/sh\nexec {shlex.quote(interpreter)} "$@"\n'
    return {"python": text, "python3": text}


class Layers:
    """Environment layers bound below the stage, shared by sandboxes that start; the least used are unmounted."""

    def __init__(self, stage: str, host_uid: int, uid: int, gid: int) -> None:
        self._stage, self._root_host = stage, host_uid == 0
        self._owner = (uid, gid)
        self._bound: OrderedDict[str, tuple[int, tuple[int, int]]] = OrderedDict()
        self._namespaces: dict[tuple[int, int], int] = {}
        self._next = 0

    def numbers(self, paths: list[str]) -> list[int]:
        """The numbers N of `l/N` for these host directories, binding what is new. Raises LayerError, StepError."""
        return [self._number(path) for path in paths]

    def trim(self) -> None:
        while len(self._bound) > LAYERS_KEPT:
            _, (number, _) = self._bound.popitem(last=False)
            self._release(number)

    def _number(self, path: str) -> int:
        try:
            found = os.stat(path)
        except OSError as error:
            raise LayerError(f"layer {path}: {error.strerror}") from None
        if not stat.S_ISDIR(found.st_mode):
            raise LayerError(f"layer {path} is not a directory")
        key = (found.st_dev, found.st_ino)
        if path in self._bound:
            number, bound = self._bound[path]
            if bound == key:
                self._bound.move_to_end(path)
                return number
            del self._bound[path]
            self._release(number)
        number, self._next = self._next, self._next + 1
        target = f"{self._stage}/l/{number}"
        os.mkdir(target)
        self._bind(path, target, (found.st_uid, found.st_gid))
        self._bound[path] = (number, key)
        return number

    def _bind(self, path: str, target: str, owner: tuple[int, int]) -> None:
        if owner == self._owner:
            return syscalls.bind_readonly(path, target, READONLY, step="layer")
        remedy = f"run `chown -R {self._owner[0]}:{self._owner[1]} {path}`"
        if not self._root_host:
            raise LayerError(f"layer {path} belongs to {owner[0]}:{owner[1]}, not to us: {remedy}, or copy it")
        try:
            syscalls.clone_mount(path, target, READONLY, step="layer", user_namespace=self._translation(owner))
        except syscalls.StepError as error:
            os.rmdir(target)
            reason = f"cannot be translated by this kernel or file system ({error.strerror})"
            raise LayerError(f"layer {path} belongs to {owner[0]}:{owner[1]}, which {reason}: {remedy}") from None

    def _release(self, number: int) -> None:
        target = f"{self._stage}/l/{number}"
        syscalls.detach(target)
        os.rmdir(target)

    def _translation(self, owner: tuple[int, int]) -> int:
        """Descriptor of a user namespace that maps `owner` on disk to the sandbox's ids."""
        if owner not in self._namespaces:
            ready, wait = os.pipe()
            pid = os.fork()
            if pid == 0:
                with contextlib.suppress(OSError):
                    syscalls.unshare(syscalls.NEWUSER, "userns")
                os.write(wait, b"x")
                signal.pause()
            os.close(wait)
            try:
                os.read(ready, 1)
                for kind, on_disk, shown in zip(("uid", "gid"), owner, self._owner, strict=True):
                    put(f"/proc/{pid}/{kind}_map", f"{on_disk} {shown} 1")
                self._namespaces[owner] = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise LayerError(f"cannot map owner {owner[0]}:{owner[1]} of a layer: {error.strerror}") from None
            finally:
                os.close(ready)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return self._namespaces[owner]


def assemble(stage: str, layers: list[int], *, disk: int, inodes: int) -> tuple[str, int, list[int]]:
    """Build one sandbox's root (in its own mount namespace).

    Returns the new root, a descriptor of the writable layer, and descriptors of the layers, uppermost first.
    """
    work = f"{stage}/w"
    size = f"mode=755,size={disk}"
    options = (f"{size},nr_inodes={inodes}", size)
    syscalls.mount_first("tmpfs", work, "tmpfs", NOSUID | NODEV, options, step="mount")
    for folder in ("upper", "work", "new"):
        os.mkdir(f"{work}/{folder}")
    for folder in ("tmp", "shm"):
        os.mkdir(f"{work}/{folder}")
        os.chmod(f"{work}/{folder}", 0o1777)
    new = f"{work}/new"
    syscalls.mount(f"{stage}/root", new, None, BIND | REC, step="mount")
    os.chdir(stage)  # option strings stay short and show nothing of the host
    names = [f"l/{number}" for number in layers] or ["l/empty"]
    overlay = f"lowerdir={':'.join(names)},upperdir=w/upper,workdir=w/work"
    whole = f"lowerdir={':'.join(f'{stage}/{name}' for name in names)},upperdir={work}/upper,workdir={work}/work"
    kinds = (f"{overlay},userxattr,volatile", f"{overlay},userxattr", overlay, whole)  # the last is for gVisor
    home = f"{new}/home/{identity.USER}"
    syscalls.mount_first("overlay", home, "overlay", NOSUID | NODEV, kinds, step="overlay")
    for source, target in (("tmp", "tmp"), ("shm", "dev/shm")):
        syscalls.mount(f"{work}/{source}", f"{new}/{target}", None, BIND, step="mount")
    flags = NOSUID | NOEXEC
    with contextlib.suppress(syscalls.StepError):  # terminals are a convenience
        syscalls.mount("devpts", f"{new}/dev/pts", "devpts", flags, "newinstance,ptmxmode=0666,mode=620", step="mount")
    directory = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    upper = os.open(f"{work}/upper", directory)
    return new, upper, [os.open(f"l/{number}", directory) for number in layers]
