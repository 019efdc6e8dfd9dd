"""Programs that try to keep the agent itself, or a neighbour, from working."""

from __future__ import annotations

import asyncio
import time

import pytest

from sandbox.backends.base import EnvSpec
from sandbox.backends.namespaces import sandbox as namespaces
from sandbox.backends.namespaces.backend import NamespacesBackend

from ..attacks import alive, python

STOP_WHAT_STARTS = python("""
    import os, signal
    if os.fork(): raise SystemExit
    os.setsid(); os.fork(); os.fork()
    open("/tmp/lurking", "w").close()
    seen = set(os.listdir("/proc"))
    for _ in range(2):
        stopped = False
        while not stopped:
            newest = int(open("/proc/loadavg").read().split()[-1])
            for pid in range(newest, newest + 3):
                try:
                    os.kill(pid, signal.SIGSTOP)
                    stopped = str(pid) not in seen and open(f"/proc/{pid}/comm").read() == "init\\n"
                    if not stopped: os.kill(pid, signal.SIGCONT)
                except OSError: pass
        open("/tmp/held", "a").write(f"{pid}\\n")
""")


async def test_a_command_stopped_before_it_runs(env: EnvSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent waits in the kernel for each command's start; only the supervisor can end that wait."""
    monkeypatch.setattr(namespaces, "PATIENCE_SECONDS", 0.3)
    backend = NamespacesBackend()
    async with await backend.start(env) as sandbox:
        await sandbox.exec(STOP_WHAT_STARTS)
        give_up = time.monotonic() + 25
        while not any(name == "held" for name, _, _ in await sandbox.list("/tmp")):
            await sandbox.exec(":", keep_state=False, timeout=0.3)
            if time.monotonic() > give_up:
                pytest.skip("the attack needs a processor at the right moment, and this machine is too busy")
        async with asyncio.timeout(60):
            await sandbox.exec("pkill -9 python3", timeout=5)
            await alive(sandbox)
    await backend.close()


async def test_a_stopped_program_whose_name_is_no_text(env: EnvSpec) -> None:
    backend = NamespacesBackend()
    async with await backend.start(env) as sandbox:
        await sandbox.exec(
            python("""
                import ctypes, os, signal
                if os.fork(): raise SystemExit
                os.setsid()
                ctypes.CDLL(None).prctl(15, b"\\xff\\xfe", 0, 0, 0)
                open("/tmp/up", "w").close()
                os.kill(os.getpid(), signal.SIGSTOP)
            """)
        )
        async with asyncio.timeout(20):
            while b"T" not in (await sandbox.exec("cut -d' ' -f3 /proc/[0-9]*/stat")).output:
                await asyncio.sleep(0.05)
        sandbox._rescue()
        await sandbox.diff()
        await alive(sandbox)
    await backend.close()


async def test_pid_1_keeps_its_priority(env: EnvSpec) -> None:
    backend = NamespacesBackend()
    async with await backend.start(env) as sandbox:
        result = await sandbox.exec(
            python("""
                import os
                attempts = {
                    "idle": lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),
                    "affinity": lambda: os.sched_setaffinity(1, {0}),
                    "nice": lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
                    "group": lambda: os.setpriority(os.PRIO_PGRP, 1, 19),
                    "everybody": lambda: os.setpriority(os.PRIO_USER, 0, 19),
                    "own": lambda: os.setpriority(os.PRIO_PROCESS, 0, 5),
                }
                for name, attempt in attempts.items():
                    try: attempt()
                    except PermissionError: continue
                    print(name)
            """)
        )
        assert result.output == b"own\n"
    await backend.close()


async def test_what_the_kernel_counts_by_user_is_left_to_neighbours(env: EnvSpec) -> None:
    backend = NamespacesBackend()
    take = """
        import ctypes, sys, time
        count = 0
        while count < 1000 and ctypes.CDLL(None).inotify_init() >= 0: count += 1
        print(count, flush=True)
        time.sleep(float(sys.argv[1]))
    """
    async with await backend.start(env) as greedy, await backend.start(env) as modest:
        await greedy.exec(f": >/tmp/taken; ({python(take).replace('python3 -', 'python3 - 60')}\n) >/tmp/taken &")
        async with asyncio.timeout(30):
            while not (taken := await greedy.read("/tmp/taken")):
                pass
        assert 1 <= int(taken) <= 16
        assert int((await modest.exec(python(take).replace("python3 -", "python3 - 0"))).output) >= 1
    await backend.close()
