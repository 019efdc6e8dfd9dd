"""What every backend promises about commands: their state, their end, their output, many at once."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from sandbox.backends.base import (
    Backend,
    EndReason,
    EnvSpec,
    Limits,
    Sandbox,
)

from .conftest import FILES, MIB, output


class TestCommands:
    async def test_runs_as_an_ordinary_user_in_the_checkout(self, sandbox: Sandbox) -> None:
        said = (await output(sandbox, "id -un; id -u; pwd; echo $HOME $USER; hostname; ls")).splitlines()
        assert said[:4] == ["dev", "1000", "/home/dev/repo", "/home/dev dev"]
        assert said[4] and said[5:] == ["README.md", "main.py", "pkg"]

    async def test_environment_is_plain(self, sandbox: Sandbox) -> None:
        names = {line.split("=", 1)[0] for line in (await output(sandbox, "env", keep_state=False)).splitlines()}
        assert names <= {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TERM", "PWD", "SHLVL", "_", "OLDPWD"}

    async def test_variables_of_the_environment_are_set(self, backend: Backend, layer: Path) -> None:
        spec = EnvSpec(layers=(layer,), env=(("PROJECT_MODE", "strict"),))
        async with await backend.start(spec) as sandbox:
            assert await output(sandbox, "echo $PROJECT_MODE") == "strict"

    async def test_interpreter_of_the_host_is_on_the_path(self, sandbox: Sandbox) -> None:
        assert await output(sandbox, "python -c 'import json, sqlite3; print(6 * 7)'; python3 -c 'print(1)'") == "42\n1"

    async def test_state_is_carried(self, sandbox: Sandbox) -> None:
        await sandbox.exec(
            "cd pkg; export A=1; B='x  y'; f() { echo \"f $1\"; }; alias say='echo said'; set -o pipefail"
        )
        said = await output(sandbox, "pwd; sh -c 'echo $A'; echo \"$B\"; f 2; say it; false | true; echo $?")
        assert said.splitlines() == ["/home/dev/repo/pkg", "1", "x  y", "f 2", "said it", "1"]

    async def test_multi_line_values_and_quotes_are_carried(self, sandbox: Sandbox) -> None:
        await sandbox.exec("X=$'one\\ndeclare -x PATH=\"gone\"\\n\"quoted\" $y'; declare -A M=([k]='v w')")
        assert await output(sandbox, 'echo "$X"; echo "${M[k]}"; command -v ls') == (
            'one\ndeclare -x PATH="gone"\n"quoted" $y\nv w\n/usr/bin/ls'
        )

    async def test_state_survives_what_ends_a_shell(self, sandbox: Sandbox) -> None:
        await sandbox.exec("cd pkg; KEPT=1")
        for command, code in (("kill -9 $$", -9), ("if then fi (", 2), ("exec false", 1), ("sleep 9", None)):
            result = await sandbox.exec(command, timeout=0.3 if code is None else None)
            assert result.exit_code == code
            assert await output(sandbox, "pwd; echo $KEPT") == "/home/dev/repo/pkg\n1"

    async def test_exit_keeps_the_state(self, sandbox: Sandbox) -> None:
        assert (await sandbox.exec("cd pkg; N=5; exit 7")).exit_code == 7
        assert await output(sandbox, "pwd; echo $N") == "/home/dev/repo/pkg\n5"

    async def test_errexit_is_carried_and_does_no_harm(self, sandbox: Sandbox) -> None:
        assert (await sandbox.exec("set -e; cd pkg; false; echo no")).exit_code == 1
        assert (await output(sandbox, "pwd; false; echo no")) == "/home/dev/repo/pkg"
        assert (await sandbox.exec("set +e; false; echo yes")).output == b"yes\n"

    async def test_a_call_may_leave_the_state_alone(self, sandbox: Sandbox) -> None:
        await sandbox.exec("V=before; cd pkg")
        assert await output(sandbox, "echo $V; V=after; cd /; pwd", keep_state=False) == "before\n/"
        assert await output(sandbox, "echo $V; pwd") == "before\n/home/dev/repo/pkg"

    async def test_variables_of_one_call_stay_in_it(self, sandbox: Sandbox) -> None:
        assert await output(sandbox, "echo $ONCE; ALSO=1", env={"ONCE": "here"}) == "here"
        assert await output(sandbox, "echo [$ONCE] $ALSO") == "[] 1"

    async def test_standard_input(self, sandbox: Sandbox) -> None:
        assert await output(sandbox, "cat; read x; echo [$x]") == "[]"
        big = os.urandom(3 * MIB)
        assert (await sandbox.exec("wc -c; md5sum </dev/null", stdin=big)).output.startswith(b"3145728\n")
        assert (await sandbox.exec("true", stdin=big)).exit_code == 0

    async def test_both_streams_in_order(self, sandbox: Sandbox) -> None:
        assert await output(sandbox, "echo 1; echo 2 >&2; echo 3") == "1\n2\n3"

    async def test_long_output_keeps_head_and_tail(self, backend: Backend, env: EnvSpec) -> None:
        async with await backend.start(env, limits=Limits(output_bytes=1000)) as sandbox:
            result = await sandbox.exec("echo first; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo last")
            assert result.total_bytes == 1_000_012
            assert result.output.startswith(b"first\nxxx") and result.output.endswith(b"xx\nlast\n")
            assert b"\n[... 999012 bytes cut ...]\n" in result.output and len(result.output) < 1100

    async def test_private_result(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec("echo shown; printf 'a\\0b' >&$RESULT_FD", private_result=True)
        assert (result.output, result.result) == (b"shown\n", b"a\0b")
        assert await output(sandbox, "echo [$RESULT_FD]") == "[]"

    async def test_private_result_of_most_and_of_too_many_bytes(self, sandbox: Sandbox) -> None:
        whole = await sandbox.exec(f"head -c {32 * MIB} /dev/zero >&$RESULT_FD", private_result=True)
        assert len(whole.result) == 32 * MIB and not whole.overflowed
        over = await sandbox.exec(f"head -c {32 * MIB + 1} /dev/zero >&$RESULT_FD; echo on", private_result=True)
        assert (over.result, over.output, over.overflowed) == (b"", b"on\n", True)

    async def test_result_descriptor_belongs_to_one_call(self, sandbox: Sandbox) -> None:
        command = "sleep 0.2; echo $N >&$RESULT_FD"
        calls = (sandbox.exec(command, private_result=True, keep_state=False, env={"N": str(n)}) for n in range(4))
        assert [result.result for result in await asyncio.gather(*calls)] == [b"0\n", b"1\n", b"2\n", b"3\n"]

    async def test_timeout_ends_all_that_the_call_started(self, sandbox: Sandbox) -> None:
        await sandbox.exec("sleep 981 &")
        began = time.monotonic()
        result = await sandbox.exec("(setsid sh -c 'sleep 982 & sleep 983' &); trap '' TERM; sleep 984", timeout=0.4)
        assert (result.exit_code, result.ended) == (None, EndReason.TIMEOUT)
        assert time.monotonic() - began < 60
        assert await output(sandbox, "pgrep -a sleep | cut -d' ' -f2-") == "sleep 981"

    async def test_background_jobs_run_on_and_are_counted(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec("(while :; do echo tick; sleep 0.01; done) & sleep 985 & echo started")
        assert b"started" in result.output
        assert result.background >= 2
        await sandbox.exec("pkill -xf 'sleep 985'")
        async with asyncio.timeout(30):
            while await output(sandbox, "pgrep -xfc 'sleep 985'") != "0":
                pass
        after = await sandbox.exec("kill -0 $(pgrep -o bash) && echo on")
        assert (after.output, after.exit_code) == (b"on\n", 0)
        # The loop goes on, with or without the short sleep that it starts again and again.
        assert 1 <= after.background <= 2

    async def test_output_of_the_last_process_is_not_lost(self, sandbox: Sandbox) -> None:
        for _ in range(5):
            assert (await sandbox.exec("seq 20000 | tail -1")).output == b"20000\n"

    async def test_text_beyond_ascii(self, sandbox: Sandbox) -> None:
        await sandbox.exec("echo 'grüße 世界' >'名前.txt'; X='é'")
        assert await output(sandbox, "cat 名*; echo $X") == "grüße 世界\né"
        assert await sandbox.search("世", ".", glob=None, max_matches=1) == [("名前.txt", 1, "grüße 世界")]
        assert [change.path for change in (await sandbox.diff()).changes] == ["名前.txt"]
        assert (await sandbox.read("名前.txt")).decode() == "grüße 世界\n"

    async def test_a_command_that_is_too_long(self, sandbox: Sandbox) -> None:
        result = await sandbox.exec("true " + "x" * 200_000)
        assert (result.exit_code, result.output) == (126, b"bash: Argument list too long\n")

    async def test_broken_pipe_ends_a_writer(self, sandbox: Sandbox) -> None:
        assert (await sandbox.exec("yes | head -1")).output == b"y\n"


class TestParallel:
    async def test_calls_overlap(self, sandbox: Sandbox) -> None:
        meet = "touch m$N; while [ ! -e m1 ] || [ ! -e m2 ]; do sleep 0.01; done; echo met"
        calls = (sandbox.exec(meet, env={"N": n}, keep_state=False, timeout=10) for n in "12")
        assert [result.output for result in await asyncio.gather(*calls)] == [b"met\n", b"met\n"]

    async def test_calls_that_keep_state_run_in_order(self, sandbox: Sandbox) -> None:
        await sandbox.exec("N=0")
        results = await asyncio.gather(*(sandbox.exec("sleep 0.02; N=$((N+1)); echo $N") for _ in range(6)))
        assert [int(result.output) for result in results] == [1, 2, 3, 4, 5, 6]

    async def test_files_do_not_wait_for_commands(self, sandbox: Sandbox) -> None:
        running = asyncio.create_task(sandbox.exec("while [ ! -e go ]; do sleep 0.01; done; cat go"))
        assert await sandbox.read("main.py") == FILES["repo/main.py"].encode()
        assert (await sandbox.search("three", ".", glob=None, max_matches=5))[0][1] == 3
        await sandbox.write("go", b"gone")
        assert (await running).output == b"gone"

    async def test_timeout_of_one_call_spares_the_others(self, sandbox: Sandbox) -> None:
        other = asyncio.create_task(sandbox.exec("sleep 1.2 & wait; echo finished", keep_state=False))
        doomed = await sandbox.exec("sleep 60 & sleep 60", keep_state=False, timeout=0.3)
        assert doomed.ended is EndReason.TIMEOUT
        assert (await other).output == b"finished\n"
        assert (await sandbox.exec("true")).background == 0

    async def test_many_at_once(self, sandbox: Sandbox) -> None:
        results = await asyncio.gather(*(sandbox.exec(f"echo {n}", keep_state=False) for n in range(20)))
        assert [int(result.output) for result in results] == list(range(20))

    async def test_cancelled_call_ends_its_processes(self, sandbox: Sandbox) -> None:
        call = asyncio.create_task(sandbox.exec("touch begun; sleep 986"))
        async with asyncio.timeout(10):
            while not any(name == "begun" for name, _, _ in await sandbox.list(".")):
                await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with asyncio.timeout(10):
            while (await sandbox.exec("pgrep sleep")).exit_code == 0:
                await asyncio.sleep(0.01)
