"""Programs that will not end, and those that break what a session stands on: the next call answers all the same."""

from __future__ import annotations

import asyncio
import time

import pytest

from sandbox.backends.base import EndReason, Sandbox

from .attacks import alive, python

pytestmark = pytest.mark.usefixtures("unchanged_host")


class TestStubbornness:
    @pytest.mark.parametrize(
        "command",
        [
            "trap '' TERM INT HUP QUIT; while :; do :; done",
            python("""
                import signal
                for number in range(1, 65):
                    try: signal.signal(number, signal.SIG_IGN)
                    except (OSError, ValueError): pass
                while True: pass
            """),
            "setsid sh -c '(sleep 987 &)'; sleep 100",
            "kill -STOP $$",
        ],
        ids=["traps", "ignores", "daemon", "stopped"],
    )
    async def test_ignoring_a_timeout(self, sandbox: Sandbox, command: str) -> None:
        began = time.monotonic()
        result = await sandbox.exec(command, timeout=0.5)
        assert result.ended is EndReason.TIMEOUT and time.monotonic() - began < 60
        assert (await sandbox.exec("pgrep -c sleep")).output == b"0\n"
        await alive(sandbox)

    async def test_waiting_for_input(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec("cat; read x; python3 -c 'input()'; less main.py | head -1; git log", timeout=10)
        assert result.ended is EndReason.EXIT
        await alive(sandbox)

    async def test_killing_everything(self, sandbox: Sandbox) -> None:
        for command in ("kill -9 -1", "kill -9 1; kill -STOP 1; kill -TERM 1; kill -CHLD 1", "exec 0<&- 1>&- 2>&-"):
            await sandbox.exec(command, timeout=5)
            await alive(sandbox)

    async def test_breaking_the_shell(self, sandbox: Sandbox) -> None:
        for command in (
            "trap - EXIT; eval() { :; }; cd() { :; }; declare() { :; }; unset PATH",
            "mkdir /tmp/gone; cd /tmp/gone; rm -rf /tmp/gone",
            "builtin() { :; }; printf() { exit 3; }",
            "shopt -s extdebug; set -euf -o pipefail; exec 2>/dev/null",
            "readonly HOME PATH PWD; set -o noglob",
            "ulimit -n 8; ulimit -u 1; ulimit -t 1",
        ):
            await sandbox.exec(command, timeout=5)
            result = await sandbox.exec("echo still; /bin/pwd", timeout=5)
            assert result.output.startswith(b"still\n"), (command, result)

    async def test_limits_of_pid_1_cannot_be_lowered(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec("prlimit --pid 1 --nofile=3:3 --cpu=1:1")
        assert result.exit_code != 0
        await alive(sandbox)

    async def test_zombies(self, sandbox: Sandbox) -> None:
        await sandbox.exec(
            python("""
                import os
                for _ in range(50):
                    if os.fork() == 0:
                        if os.fork() == 0: os._exit(0)
                        os._exit(0)
            """)
        )
        # On a busy machine the last orphans may still be on their way out when the first call returns.
        async with asyncio.timeout(20):
            while True:
                result = await sandbox.exec("ps -eo stat | grep -c Z")
                if result.background == 0:
                    break
        assert result.output == b"0\n"

    async def test_races_with_file_operations(self, sandbox: Sandbox) -> None:
        """A directory that turns into a link and back never makes the host read through it."""
        swap = "mkdir -p d; echo in >d/passwd; while :; do mv d e; ln -s /etc d; rm d; mv e d; done"
        swapping = asyncio.create_task(sandbox.exec(swap, timeout=2))
        while not swapping.done():
            for change in (await sandbox.diff()).changes:
                assert change.content in (b"in\n", b""), change
        await swapping
