"""The file system of one sandbox, in a mount namespace of its own.

It is made in two steps: `begin` needs no request, so that a waiting sandbox has done it already; `finish` adds what
the request names. Nothing in it is an inode that another sandbox can reach: the machine's directories are seen through
overlays of this sandbox alone, and devices are files of its own (`make_devices`; an ordinary user cannot make any and
shares those of the machine).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from sandbox.backends.namespaces.kernel import identity, syscalls
from sandbox.backends.namespaces.kernel.base_root import DEVICE_LINKS, DEVICES, Base
from sandbox.backends.namespaces.kernel.syscalls import (
    ATTR_NOSUID,
    ATTR_RDONLY,
    BIND,
    NODEV,
    NOEXEC,
    NOSUID,
    RDONLY,
    REC,
)

TERMINALS = 64
"""Pseudo-terminals of one sandbox. The kernel has 4096 for all."""
MASKED = (
    *("buddyinfo", "diskstats", "interrupts", "key-users", "keys", "pressure", "schedstat", "softirqs", "timer_list"),
    *("vmstat", "zoneinfo", "sys/fs/aio-nr", "sys/fs/dentry-state", "sys/fs/file-nr", "sys/fs/inode-nr"),
    *("sys/fs/inode-state", "sys/kernel/pty/nr"),
)
"""Below /proc: what the kernel counts for the whole machine and no tool of a developer needs."""
USER_NAMESPACE_LIMIT = "/proc/sys/user/max_user_namespaces"
"""Every Linux has it, gVisor has not."""


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
            syscalls.put(f"/proc/self/{name}", value)
        except FileNotFoundError:  # gVisor has no setgroups
            if name != "setgroups":
                raise
        except OSError as error:
            raise syscalls.StepError("userns", error.errno or 0, f"write {name}") from None


def make_devices() -> int:
    """/dev of one sandbox as a detached read-only mount: a descriptor. Needs root. Raises StepError, OSError."""
    fd = syscalls.detached_tmpfs(1 << 16, step="devices")
    try:
        for name, (major, minor) in DEVICES.items():
            os.mknod(name, stat.S_IFCHR | 0o666, os.makedev(major, minor), dir_fd=fd)
            os.chmod(name, 0o666, dir_fd=fd)
        for name in ("pts", "shm"):
            os.mkdir(name, dir_fd=fd)
        for name, target in DEVICE_LINKS.items():
            os.symlink(target, name, dir_fd=fd)
        syscalls.set_attributes(fd, ATTR_RDONLY | ATTR_NOSUID, step="devices")
    except OSError:
        os.close(fd)
        raise
    return fd


def begin(base: Base, devices: int | None) -> str:
    """Enter a mount namespace of our own and mount what every sandbox has; returns the new root."""
    syscalls.unshare(syscalls.NEWNS, "namespaces")
    os.chdir(base.stage)  # option strings stay short and show nothing of the host
    new = f"{base.stage}/new"
    _show("root", "new")
    for number, source in enumerate(base.sources):
        _show(f"s/{number}", f"new/{source}")
    if devices is None:
        for name in DEVICES:
            syscalls.mount(f"d/{name}", f"new/dev/{name}", None, BIND, step="mount")
    else:
        syscalls.attach(devices, "new/dev", step="devices")
    flags = NOSUID | NOEXEC
    options = f"newinstance,ptmxmode=0666,mode=620,max={TERMINALS}"
    with contextlib.suppress(syscalls.StepError):  # terminals are a convenience
        syscalls.mount("devpts", "new/dev/pts", "devpts", flags, options, step="mount")
    syscalls.mount("proc", "new/proc", "proc", flags | NODEV, step="proc")
    for name in MASKED:
        target = f"new/proc/{name}"
        with contextlib.suppress(FileNotFoundError):
            source = "new/mnt" if stat.S_ISDIR(os.stat(target).st_mode) else "new/dev/null"
            syscalls.mount(source, target, None, BIND, step="proc")
    return new


def _show(source: str, target: str) -> None:
    options = f"lowerdir=l/empty:{source}"  # without an upper layer there must be two
    kinds = (f"{options},userxattr", options)
    try:
        syscalls.mount_first("overlay", target, "overlay", RDONLY | NOSUID | NODEV, kinds, step="overlay")
    except syscalls.StepError as error:
        if error.errno != errno.EINVAL or os.path.exists(USER_NAMESPACE_LIMIT):
            raise
        syscalls.mount(source, target, None, BIND, step="mount")  # gVisor: its overlays need an upper layer


def finish(base: Base, layers: list[int], *, detached: bool, disk: int, inodes: int) -> tuple[int, list[int]]:
    """Mount the writable places and the layers: detached mounts by descriptor, else by their number in the stage.

    Returns descriptors of the writable layer and of the layers, uppermost first.
    """
    os.chdir(base.stage)
    size = f"mode=755,size={disk}"
    syscalls.mount_first("tmpfs", "w", "tmpfs", NOSUID | NODEV, (f"{size},nr_inodes={inodes}", size), step="mount")
    for folder in ("upper", "work"):
        os.mkdir(f"w/{folder}")
    for folder in ("tmp", "shm"):
        os.mkdir(f"w/{folder}")
        os.chmod(f"w/{folder}", 0o1777)
    names = [f"l/{number}" for number in layers]
    if detached and layers:
        syscalls.mount("tmpfs", "l", "tmpfs", NOSUID | NODEV, "mode=755,size=64k", step="mount")
        names = [f"l/{index}" for index in range(len(layers))]
        for layer, name in zip(layers, names, strict=True):
            os.mkdir(name)
            syscalls.attach(layer, name, step="layer")
            os.close(layer)
    names = names or ["l/empty"]
    work, stage = f"{base.stage}/w", base.stage
    overlay = f"lowerdir={':'.join(names)},upperdir=w/upper,workdir=w/work"
    whole = f"lowerdir={':'.join(f'{stage}/{name}' for name in names)},upperdir={work}/upper,workdir={work}/work"
    kinds = (f"{overlay},userxattr,volatile", f"{overlay},userxattr", overlay, whole)  # the last is for gVisor
    syscalls.mount_first("overlay", f"new/home/{identity.USER}", "overlay", NOSUID | NODEV, kinds, step="overlay")
    for source, target in (("tmp", "tmp"), ("shm", "dev/shm")):
        syscalls.mount(f"w/{source}", f"new/{target}", None, BIND, step="mount")
    directory = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    return os.open("w/upper", directory), [os.open(name, directory) for name in names if name != "l/empty"]
