"""The system-call filter of everything inside a sandbox: a deny list, by architecture, as classic BPF.

Refused calls fail with EPERM, as they would for any unprivileged user on a hardened machine. `clone3` fails with
ENOSYS so that libraries fall back to `clone`, whose flags a filter can read.
"""

from __future__ import annotations

import ctypes
import platform
import struct

from sandbox.backends.namespaces.kernel import syscalls

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ARCHES = ("x86_64", "aarch64")

DENIED: dict[str, tuple[int | None, int | None]] = {
    # name: (x86_64, aarch64)
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_setup": (206, 0),  # the kernel counts its requests for the whole machine
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
    "vmsplice": (278, 75),
}
UNOWNED_MEMORY: dict[str, tuple[int | None, int | None]] = {"memfd_create": (319, 279), "shmget": (29, 194)}
"""Calls that make memory no process owns: denied where no cgroup counts it."""

CLONE, UNSHARE, CLONE3 = (56, 220), (272, 97), (435, 435)
SOCKET, PRLIMIT = (41, 198), (302, 261)
SCHEDULING = {
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
}
"""Calls whose first argument is a pid: refused for pid 1, which has the same owner and must stay quick."""
PRIORITY: dict[str, tuple[tuple[int, int], int]] = {"setpriority": ((141, 140), 2), "ioprio_set": ((251, 30), 3)}
"""Calls of (kind, who): refused for `who` 1 and for the kind that means every process of one owner."""
ALLOWED_FAMILIES = (1, 2, 10, 16)  # unix, inet, inet6, netlink

_LOAD, _EQUAL, _GREATER, _TEST, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x50000
_NUMBER, _ARCH, _ARGUMENT0, _ARGUMENT1 = 0, 4, 16, 24
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97


def build(machine: str, *, deny_unowned_memory: bool) -> bytes:
    """The filter program for `machine`. Raises KeyError for an architecture without a table."""
    arch = _ARCHES.index(machine) if machine in _ARCHES else None
    if arch is None:
        raise KeyError(machine)
    program: list[bytes] = []

    def add(code: int, on_true: int, on_false: int, value: int) -> None:
        program.append(struct.pack("HBBI", code, on_true, on_false, value))

    def refuse(error: int) -> None:
        add(_RETURN, 0, 0, _ERRNO | error)

    add(_LOAD, 0, 0, _ARCH)
    add(_EQUAL, 1, 0, AUDIT_ARCH[machine])
    add(_RETURN, 0, 0, _KILL_PROCESS)
    add(_LOAD, 0, 0, _NUMBER)
    if machine == "x86_64":  # the x32 table would be a way around
        add(_GREATER, 0, 1, 0x40000000)
        refuse(_EPERM)
    denied = dict(DENIED, **UNOWNED_MEMORY) if deny_unowned_memory else DENIED
    for numbers in denied.values():
        number = numbers[arch]
        if number is not None:
            add(_EQUAL, 0, 1, number)
            refuse(_EPERM)
    add(_EQUAL, 0, 1, CLONE3[arch])
    refuse(_ENOSYS)
    for call in (CLONE, UNSHARE):  # no new user namespace
        add(_EQUAL, 0, 4, call[arch])
        add(_LOAD, 0, 0, _ARGUMENT0)
        add(_TEST, 0, 1, syscalls.NEWUSER)
        refuse(_EPERM)
        add(_LOAD, 0, 0, _NUMBER)
    add(_EQUAL, 0, 4, PRLIMIT[arch])  # own limits only: those of pid 1 are ours
    add(_LOAD, 0, 0, _ARGUMENT0)
    add(_EQUAL, 1, 0, 0)
    refuse(_EPERM)
    add(_LOAD, 0, 0, _NUMBER)
    for numbers in SCHEDULING.values():
        add(_EQUAL, 0, 4, numbers[arch])
        add(_LOAD, 0, 0, _ARGUMENT0)
        add(_EQUAL, 0, 1, 1)
        refuse(_EPERM)
        add(_LOAD, 0, 0, _NUMBER)
    for numbers, owner in PRIORITY.values():
        add(_EQUAL, 0, 6, numbers[arch])
        add(_LOAD, 0, 0, _ARGUMENT0)
        add(_EQUAL, 2, 0, owner)
        add(_LOAD, 0, 0, _ARGUMENT1)
        add(_EQUAL, 0, 1, 1)
        refuse(_EPERM)
        add(_LOAD, 0, 0, _NUMBER)
    families = len(ALLOWED_FAMILIES)
    add(_EQUAL, 0, families + 2, SOCKET[arch])
    add(_LOAD, 0, 0, _ARGUMENT0)
    for index, family in enumerate(ALLOWED_FAMILIES):
        add(_EQUAL, families - index, 0, family)
    refuse(_EAFNOSUPPORT)
    add(_RETURN, 0, 0, _ALLOW)
    return b"".join(program)


def install(*, deny_unowned_memory: bool) -> None:
    """Filter this process and all it starts. Needs no_new_privs. Raises StepError."""
    code = build(platform.machine(), deny_unowned_memory=deny_unowned_memory)
    instructions = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(instructions)))
    result = syscalls.libc.prctl(syscalls.PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0)
    syscalls.check(result, "seccomp", "install the system-call filter")
