"""The Linux calls that the standard library lacks, through ctypes. A failure names the step that failed."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

libc = ctypes.CDLL(None, use_errno=True)

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
NEWUSER, NEWPID, NEWNET, NEWTIME = 0x10000000, 0x20000000, 0x40000000, 0x80

RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT = 1, 2, 4, 8, 32
BIND, REC, PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2

ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_IDMAP = 1, 2, 4, 0x100000
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
OPEN_TREE_CLONE, MOVE_FROM_FD = 1, 4

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME = 1, 4, 15
PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 22, 24, 38, 47
LAST_CAPABILITY = 63

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 442
_CLOEXEC, _SET_STRING, _CREATE = 1, 1, 6


class StepError(OSError):
    """A system call failed while a sandbox was built. `step` is a stable word that remedies are looked up by."""

    def __init__(self, step: str, number: int, detail: str) -> None:
        super().__init__(number, f"{detail}: {os.strerror(number)}")
        self.step = step


def check(result: int, step: str, detail: str) -> int:
    if result < 0:
        raise StepError(step, ctypes.get_errno(), detail)
    return result


def _bytes(value: str | None) -> bytes | None:
    return value.encode() if value is not None else None


def put(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None, *, step: str) -> None:
    detail = f"mount {kind or 'bind'} at {target}"
    arguments = _bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(data)
    check(libc.mount(*arguments), step, detail)


def mount_first(source: str, target: str, kind: str, flags: int, options: tuple[str, ...], *, step: str) -> None:
    """Mount with the first option string that this kernel understands."""
    for data in options[:-1]:
        try:
            return mount(source, target, kind, flags, data, step=step)
        except StepError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
    mount(source, target, kind, flags, options[-1], step=step)


def detach(target: str) -> None:
    check(libc.umount2(target.encode(), MNT_DETACH), "mount", f"unmount {target}")


def unshare(flags: int, step: str) -> None:
    check(libc.unshare(flags), step, f"unshare {flags:#x}")


def pivot_root_here() -> None:
    """Make the current directory the root and forget the old one."""
    check(libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."), "root", "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "root", "leave the old root")
    os.chdir("/")


def prctl(option: int, argument: int | bytes, *more: int, step: str = "privileges") -> None:
    check(libc.prctl(option, argument, *(more or (0,)), 0, 0), step, f"prctl {option}")


def set_capabilities(mask: int) -> None:
    """Effective and permitted = inheritable = `mask` (capabilities 0–31 only)."""
    header = ctypes.create_string_buffer(struct.pack("II", 0x20080522, 0))
    data = ctypes.create_string_buffer(struct.pack("6I", mask, mask, mask, 0, 0, 0))
    check(libc.capset(header, data), "privileges", "capset")


def drop_all_capabilities() -> None:
    for capability in range(LAST_CAPABILITY + 1):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # EINVAL past the kernel's last one
    libc.prctl(PR_CAP_AMBIENT, 4, 0, 0, 0)
    set_capabilities(0)


def detached_tree(source: str, attributes: int, *, step: str, user_namespace: int = -1, submounts: bool = False) -> int:
    """A copy of the mount at `source` that is nowhere yet, with `attributes` set: a descriptor.

    With `user_namespace` the files' owners are translated by that namespace's id map; with `submounts` what is mounted
    below is copied too. Raises StepError; ENOSYS or EINVAL mean that the kernel or the file system cannot.
    """
    recursive = AT_RECURSIVE if submounts else 0
    fd = check(
        libc.syscall(_OPEN_TREE, AT_FDCWD, source.encode(), OPEN_TREE_CLONE | recursive | os.O_CLOEXEC),
        step,
        f"open_tree {source}",
    )
    try:
        if user_namespace >= 0:
            attributes |= ATTR_IDMAP
        set_attributes(fd, attributes, step=step, flags=recursive, user_namespace=max(user_namespace, 0))
    except StepError:
        os.close(fd)
        raise
    return fd


def set_attributes(fd: int, attributes: int, *, step: str, flags: int = 0, user_namespace: int = 0) -> None:
    """Set `attributes` on the mount that `fd` is the root of. Raises StepError."""
    request = struct.pack("QQQQ", attributes, 0, 0, user_namespace)
    result = libc.syscall(_MOUNT_SETATTR, fd, b"", AT_EMPTY_PATH | flags, request, len(request))
    check(result, step, "mount_setattr")


def detached_tmpfs(size: int, *, step: str) -> int:
    """A new tmpfs of `size` bytes that is mounted nowhere yet: a descriptor. Raises StepError."""
    context = check(libc.syscall(_FSOPEN, b"tmpfs", _CLOEXEC), step, "fsopen tmpfs")
    try:
        for name, value in (("mode", "755"), ("size", str(size))):
            result = libc.syscall(_FSCONFIG, context, _SET_STRING, name.encode(), value.encode(), 0)
            check(result, step, f"fsconfig {name}")
        check(libc.syscall(_FSCONFIG, context, _CREATE, None, None, 0), step, "fsconfig create")
        return check(libc.syscall(_FSMOUNT, context, _CLOEXEC, 0), step, "fsmount tmpfs")
    finally:
        os.close(context)


def attach(fd: int, target: str, *, step: str) -> None:
    """Mount what `detached_tree` or `detached_tmpfs` made at `target`. Raises StepError."""
    result = libc.syscall(_MOVE_MOUNT, fd, b"", AT_FDCWD, target.encode(), MOVE_FROM_FD)
    check(result, step, f"move_mount {target}")


def bind_readonly(source: str, target: str, attributes: int, *, step: str, recursive: bool = True) -> None:
    """Bind `source` at `target`, with `attributes` on every mount of the copy; `recursive` copies submounts too.

    On kernels without detached mounts (before 5.12, gVisor) a plain bind is remounted read-only.
    """
    try:
        fd = detached_tree(source, attributes, step=step, submounts=recursive)
    except StepError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.EPERM):
            raise
    else:
        try:
            return attach(fd, target, step=step)
        finally:
            os.close(fd)
    mount(source, target, None, BIND | (REC if recursive else 0), step=step)
    locked = os.statvfs(target).f_flag & (NOSUID | NODEV | NOEXEC | 1024 | 2048)
    mount(None, target, None, REMOUNT | BIND | RDONLY | locked | attributes, step=step)
