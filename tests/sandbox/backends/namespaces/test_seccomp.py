"""The filter program of each architecture, run by a small interpreter of classic BPF."""

from __future__ import annotations

import struct

import pytest

from sandbox.backends.namespaces.kernel import seccomp, syscalls

ALLOW, EPERM, ENOSYS, EAFNOSUPPORT, KILL = 0x7FFF0000, 0x50001, 0x50026, 0x50061, 0x80000000


def run(program: bytes, arch: int, number: int, *arguments: int) -> int:
    data = struct.pack("<IIQ", number, arch, 0) + struct.pack(f"<{len(arguments)}Q", *arguments) + bytes(48)
    steps = [struct.unpack_from("<HBBI", program, offset) for offset in range(0, len(program), 8)]
    at, accumulator = 0, 0
    while True:
        code, on_true, on_false, value = steps[at]
        at += 1
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif code == 0x06:
            return value
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            at += on_true if holds else on_false


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


def decide(machine: str, numbers: tuple[int | None, int | None], *arguments: int, watchdog: bool = False) -> int:
    program = seccomp.build(machine, deny_unowned_memory=watchdog)
    number = numbers[0 if machine == "x86_64" else 1]
    assert number is not None
    return run(program, seccomp.AUDIT_ARCH[machine], number, *arguments)


def test_every_listed_call_is_refused(machine: str) -> None:
    for name, numbers in seccomp.DENIED.items():
        if numbers[0 if machine == "x86_64" else 1] is not None:
            assert decide(machine, numbers) == EPERM, name


def test_numbers_are_distinct(machine: str) -> None:
    index = 0 if machine == "x86_64" else 1
    numbers = [
        row[index] for row in (*seccomp.DENIED.values(), *seccomp.UNOWNED_MEMORY.values()) if row[index] is not None
    ]
    assert len(set(numbers)) == len(numbers)


def test_ordinary_calls_pass(machine: str) -> None:
    for numbers in ((0, 63), (1, 64), (59, 221), (257, 56), (61, 260), (62, 129), (39, 172), (53, 199)):
        assert decide(machine, numbers) == ALLOW


def test_namespaces_and_clone(machine: str) -> None:
    for call in (seccomp.CLONE, seccomp.UNSHARE):
        assert decide(machine, call, 17) == ALLOW
        assert decide(machine, call, syscalls.NEWUSER | 17) == EPERM
    assert decide(machine, seccomp.CLONE3) == ENOSYS


def test_socket_families(machine: str) -> None:
    for family in range(46):
        expected = ALLOW if family in seccomp.ALLOWED_FAMILIES else EAFNOSUPPORT
        assert decide(machine, seccomp.SOCKET, family) == expected, family


def test_limits_of_other_processes(machine: str) -> None:
    assert decide(machine, seccomp.PRLIMIT, 0) == ALLOW
    assert decide(machine, seccomp.PRLIMIT, 1) == EPERM


def test_pid_1_keeps_its_share_of_the_processor(machine: str) -> None:
    for numbers in seccomp.SCHEDULING.values():
        assert [decide(machine, numbers, pid, 1) for pid in (0, 1, 2)] == [ALLOW, EPERM, ALLOW]
    for numbers, owner in seccomp.PRIORITY.values():
        assert decide(machine, numbers, owner, 0) == decide(machine, numbers, 1, 1) == EPERM
        assert decide(machine, numbers, 1, 0) == decide(machine, numbers, 1, 2) == ALLOW


def test_memory_that_no_process_owns(machine: str) -> None:
    for numbers in seccomp.UNOWNED_MEMORY.values():
        assert decide(machine, numbers) == ALLOW
        assert decide(machine, numbers, watchdog=True) == EPERM


def test_another_architecture_is_killed(machine: str) -> None:
    program = seccomp.build(machine, deny_unowned_memory=False)
    assert run(program, 0x40000003, 0) == KILL
    if machine == "x86_64":
        assert run(program, seccomp.AUDIT_ARCH[machine], 0x40000000 | 39) == EPERM


def test_unknown_machine() -> None:
    with pytest.raises(KeyError):
        seccomp.build("riscv64", deny_unowned_memory=False)
