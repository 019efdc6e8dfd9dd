"""Programs that try to hold a sandbox beyond the limit of a call: it is over within five seconds of it, by the wall."""

from __future__ import annotations

import asyncio
import time

import pytest

from sandbox.backends.base import Backend, EndReason, EnvSpec, Limits

from .attacks import python

pytestmark = pytest.mark.integration

LIMIT, LATE, LONGEST = 2.0, 5.0, 60.0
HOLDS = {
    "asleep": "sleep 1000",
    "stopped": "kill -STOP $$; sleep 1000",
    "deaf": python("""
        import signal, time
        for number in range(1, 32):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True: time.sleep(1)
    """),
    "daemons that hold the output": "for i in 1 2 3 4 5 6 7 8; do setsid sh -c 'trap \"\" 1 2 15; sleep 1000' & done; wait",
    "many processes that compute": "for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait",
    "threads that compute": python("""
        import threading
        def spin():
            while True: pass
        for _ in range(8): threading.Thread(target=spin).start()
    """),
    "output without end": "yes 0123456789012345678901234567890123456789",
    "a pipe that nobody reads": "mkfifo /tmp/pipe; cat /tmp/pipe",
    "a fork bomb": ":(){ :|:& };:; sleep 1000",
    "a large tree": python("""
        import os, time
        for folder in range(300):
            os.makedirs(f"/tmp/tree/{folder}")
            for name in range(300): os.close(os.open(f"/tmp/tree/{folder}/{name}", os.O_CREAT))
        time.sleep(1000)
    """),
    "a deep tree": "cd /tmp; for i in $(seq 3000); do mkdir d && cd d || break; done; sleep 1000",
    "a parent that waits for a stopped child of its memory": python("""
        import ctypes, os, signal
        libc, parent = ctypes.CDLL(None), os.getpid()
        if libc.syscall(58 if os.uname().machine == "x86_64" else 1071) == 0: os.kill(os.getpid(), signal.SIGSTOP)
    """),
}


@pytest.mark.parametrize("name", HOLDS)
async def test_a_call_and_its_sandbox_end_in_time(backend: Backend, env: EnvSpec, name: str) -> None:
    limits = Limits(memory_bytes=256 << 20, processes=64, cpus=1.0)
    sandbox = await backend.start(env, limits=limits)
    began, busy = time.monotonic(), time.process_time()
    result = await sandbox.exec(HOLDS[name], timeout=LIMIT, longest=LONGEST, keep_state=False)
    await sandbox.close()
    assert result.ended is EndReason.TIMEOUT
    # what the machine itself kept the call waiting is named by the call; the rest is what was held
    assert time.monotonic() - began - result.starved <= LIMIT + LATE, result.seconds
    assert time.process_time() - busy < LATE
    assert result.starved < LONGEST


async def test_time_without_a_processor_is_not_the_calls(backend: Backend, env: EnvSpec) -> None:
    """Neighbours take the machine's processors: honest work of one second still ends, beyond its limit by the wall."""
    neighbours = [await backend.start(env) for _ in range(6)]
    spin = [asyncio.create_task(box.exec("while :; do :; done", timeout=30, keep_state=False)) for box in neighbours]
    work = "import time\nwhile time.process_time() < 1.2: pass"
    async with await backend.start(env) as sandbox:
        result = await sandbox.exec(f"python3 -c '{work}'", timeout=2.4, longest=60.0)
    for task, box in zip(spin, neighbours, strict=True):
        task.cancel()
        await box.close()
    assert (result.ended, result.exit_code) == (EndReason.EXIT, 0)
    assert result.starved > 0 and result.seconds <= 2.4 + LATE + result.starved
