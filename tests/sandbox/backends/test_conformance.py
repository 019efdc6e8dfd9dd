"""What every backend promises in `sandbox/backends/base.py`."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any, cast, get_args

import pytest

from sandbox.backends.base import (
    Backend,
    EndReason,
    EnvSpec,
    Guarantee,
    Limits,
    LimitUnenforceable,
    PathError,
    Sandbox,
    SandboxExpired,
    SandboxLost,
    SandboxUnavailable,
    Snapshot,
    SnapshotError,
    SnapshotTooLarge,
)
from sandbox.backends.fork import fork
from sandbox.backends.snapshots import SnapshotStore

from .conftest import FILES, MIB, write_tree

ROOT = Path(__file__).resolve().parents[3]


async def output(sandbox: Sandbox, command: str, **options: object) -> str:
    result = await sandbox.exec(command, **options)  # type: ignore[arg-type]
    return result.output.decode(errors="replace").rstrip("\n")


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
        whole = await sandbox.exec("head -c 4194304 /dev/zero >&$RESULT_FD", private_result=True)
        assert len(whole.result) == 4 * MIB
        over = await sandbox.exec("head -c 4194305 /dev/zero >&$RESULT_FD; echo on", private_result=True)
        assert (over.result, over.output) == (b"", b"on\n")

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


class TestFiles:
    async def test_round_trip(self, sandbox: Sandbox) -> None:
        content = os.urandom(500_000)
        await sandbox.write("new/deep/file.bin", content)
        assert await sandbox.read("new/deep/file.bin") == content
        await sandbox.write("new/deep/file.bin", b"short")
        assert await sandbox.read("/home/dev/repo/new/deep/file.bin") == b"short"
        await sandbox.delete("new/deep/file.bin")
        assert await sandbox.list("new/deep") == []

    async def test_executable(self, sandbox: Sandbox) -> None:
        await sandbox.write("run.sh", b"#!/bin/sh\necho ran\n", executable=True)
        assert await output(sandbox, "./run.sh; stat -c %a run.sh main.py") == "ran\n755\n644"

    async def test_listing(self, sandbox: Sandbox) -> None:
        await sandbox.exec("ln -s nowhere dangling; ln -s pkg linked; mkfifo pipe")
        assert await sandbox.list(".") == [
            ("README.md", "file", 26),
            ("dangling", "other", 0),
            ("linked", "dir", 0),
            ("main.py", "file", len(FILES["repo/main.py"])),
            ("pipe", "other", 0),
            ("pkg", "dir", 0),
        ]

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("absent.py", "no such file: absent.py"),
            ("pkg", "is a directory: pkg"),
            ("main.py/x", "not a directory"),
            ("fifo", "not a regular file: fifo"),
            ("zero", "not a regular file: zero"),
            ("environ", "not a regular file|Permission denied"),
            ("memory", "not a regular file|Permission denied"),
            ("/proc/self/status", "not a regular file"),
            ("a\0b", "NUL"),
            ("", "empty"),
            ("\udcff", "not valid text"),
        ],
    )
    async def test_refused_reads(self, sandbox: Sandbox, path: str, message: str) -> None:
        await sandbox.exec(
            "mkfifo fifo; ln -s /dev/zero zero; ln -s /proc/self/environ environ; ln -s /proc/1/mem memory"
        )
        async with asyncio.timeout(5):
            with pytest.raises(PathError, match=message):
                await sandbox.read(path)

    async def test_refused_writes(self, sandbox: Sandbox) -> None:
        await sandbox.exec("mkfifo fifo; ln -s /proc/self/oom_score_adj knob")
        for path in ("pkg", "fifo", "knob", "/usr/bin/x", "/etc/passwd", "main.py/below"):
            with pytest.raises(PathError):
                await sandbox.write(path, b"x")
        for path in ("pkg", "absent", "fifo"):
            with pytest.raises(PathError):
                await sandbox.delete(path)

    async def test_too_large(self, sandbox: Sandbox) -> None:
        await sandbox.write("big", b"x" * 1001)
        assert len(await sandbox.read("big", max_bytes=1001)) == 1001
        with pytest.raises(PathError, match="too large"):
            await sandbox.read("big", max_bytes=1000)

    async def test_full_disk_keeps_the_old_content(self, sandbox: Sandbox) -> None:
        await sandbox.exec("head -c 40M /dev/zero >filler")
        with pytest.raises(PathError, match="No space"):
            await sandbox.write("main.py", b"x" * 200_000)
        assert await sandbox.read("main.py") == FILES["repo/main.py"].encode()
        await sandbox.exec("rm filler")
        await sandbox.write("main.py", b"x" * 200_000)

    async def test_linked_files_are_followed_inside(self, sandbox: Sandbox) -> None:
        await sandbox.exec("ln -s main.py alias.py; ln -s /etc/shadow shadow")
        await sandbox.write("alias.py", b"changed\n")
        assert await sandbox.read("main.py") == b"changed\n"
        with pytest.raises(PathError):
            await sandbox.read("shadow")


class TestSearch:
    async def test_matches_in_path_order(self, sandbox: Sandbox) -> None:
        assert await sandbox.search(r"def \w+\(", ".", glob=None, max_matches=10) == [
            ("main.py", 4, "def add(a, b):"),
            ("pkg/core.py", 4, "def add_all(values):"),
        ]

    async def test_bounds_and_globs(self, sandbox: Sandbox) -> None:
        await sandbox.exec("seq 100 >pkg/n.txt; head -c 100 /dev/zero >zeros; mkdir .git; echo 5 >.git/config")
        assert len(await sandbox.search("5", ".", glob=None, max_matches=4)) == 4
        assert await sandbox.search("5", ".", glob="*.py", max_matches=4) == []
        assert await sandbox.search("^55$", ".", glob="**/*.txt", max_matches=9) == [("pkg/n.txt", 55, "55")]
        assert await sandbox.search("^55$", "pkg/n.txt", glob=None, max_matches=9) == [("pkg/n.txt", 55, "55")]

    async def test_bad_requests(self, sandbox: Sandbox) -> None:
        with pytest.raises(ValueError, match="not a regular expression"):
            await sandbox.search("(", ".", glob=None, max_matches=1)
        with pytest.raises(PathError, match="no such file"):
            await sandbox.search("x", "absent", glob=None, max_matches=1)

    async def test_a_pattern_that_never_ends_is_ended(self, sandbox: Sandbox) -> None:
        await sandbox.write("trap.txt", b"a" * 60 + b"!\n")
        searching = asyncio.create_task(sandbox.search("(a+)+$", ".", glob="trap.txt", max_matches=1))
        assert await output(sandbox, "echo meanwhile") == "meanwhile"
        with pytest.raises(ValueError, match="too long"):
            await searching


class TestPatch:
    async def test_nothing_changed(self, sandbox: Sandbox) -> None:
        await sandbox.exec("touch main.py; cat pkg/core.py; chmod 644 README.md; python -m compileall -q pkg")
        assert (await sandbox.diff()).changes == ()

    async def test_changes(self, sandbox: Sandbox) -> None:
        await sandbox.exec(
            "echo more >>main.py; rm pkg/core.py; mkdir n; echo new >n/f.py; chmod +x README.md; "
            "mv pkg/data/table.txt moved.txt; echo x >../outside"
        )
        found = {
            change.path: (change.content, change.executable, change.before) for change in (await sandbox.diff()).changes
        }
        before = {name.removeprefix("repo/"): text.encode() for name, text in FILES.items()}
        assert found == {
            "README.md": (before["README.md"], True, before["README.md"]),
            "main.py": (before["main.py"] + b"more\n", False, before["main.py"]),
            "moved.txt": (before["pkg/data/table.txt"], False, None),
            "n/f.py": (b"new\n", False, None),
            "pkg/core.py": (None, False, before["pkg/core.py"]),
            "pkg/data/table.txt": (None, False, before["pkg/data/table.txt"]),
        }
        assert [change.path for change in (await sandbox.diff()).changes] == sorted(found)

    async def test_removed_and_replaced_directories(self, sandbox: Sandbox) -> None:
        await sandbox.exec("rm -r pkg; mkdir pkg; echo a >pkg/only.py; rm main.py; mkdir main.py; echo b >main.py/x")
        changes = {change.path: change.content for change in (await sandbox.diff()).changes}
        assert changes == {
            "main.py": None,
            "main.py/x": b"b\n",
            "pkg/__init__.py": None,
            "pkg/core.py": None,
            "pkg/data/table.txt": None,
            "pkg/only.py": b"a\n",
        }

    async def test_checkout_removed(self, sandbox: Sandbox) -> None:
        await sandbox.exec("rm -rf /home/dev/repo; ln -s /etc /home/dev/repo")
        patch = await sandbox.diff()
        assert {change.path for change in patch.changes if change.content is None} == {
            name.removeprefix("repo/") for name in FILES if name.startswith("repo/")
        }
        assert all(change.content is None for change in patch.changes)
        assert (await sandbox.exec("pwd")).exit_code == 0

    async def test_what_a_patch_cannot_hold_is_named(self, sandbox: Sandbox) -> None:
        await sandbox.exec(
            "ln -s /etc/passwd link.py; mkfifo pipe; head -c 3M /dev/zero >big.bin; echo x >$'new\\nline'; "
            "echo y >$'bad\\xff'; mkdir -p .git/objects; echo z >.git/objects/o; rm README.md; ln -s main.py README.md"
        )
        patch = await sandbox.diff()
        skipped = dict(patch.skipped)
        assert {(change.path, change.content) for change in patch.changes} == {("README.md", None)}
        assert skipped["link.py"] == skipped["README.md"] == "symbolic link"
        assert skipped["pipe"] == "not a regular file"
        assert "larger than" in skipped["big.bin"] and ".git" in skipped
        assert any("UTF-8" in reason for reason in skipped.values())
        assert any("control characters" in reason for reason in skipped.values())

    async def test_unreadable_files_are_read(self, sandbox: Sandbox) -> None:
        await sandbox.exec("echo hidden >h; chmod 000 h; mkdir d; echo x >d/x; chmod 000 d")
        assert {change.path: change.content for change in (await sandbox.diff()).changes} == {
            "h": b"hidden\n",
            "d/x": b"x\n",
        }

    async def test_a_patch_applied_elsewhere_gives_the_same_files(self, backend: Backend, env: EnvSpec) -> None:
        async with await backend.start(env) as first, await backend.start(env) as second:
            await first.exec(
                "git init -q . 2>/dev/null; sed -i s/add/sum/ main.py; rm pkg/data/table.txt; cp -r pkg p2"
            )
            for change in (await first.diff()).changes:
                if change.content is None:
                    await second.delete(change.path)
                else:
                    await second.write(change.path, change.content, executable=change.executable)
            listing = "find . -path ./.git -prune -o -type f -printf '%P ' -exec md5sum {} \\; | sort"
            assert await output(first, listing) == await output(second, listing)


class TestSnapshots:
    async def test_files_and_state_go_on(self, backend: Backend, env: EnvSpec, tmp_path: Path) -> None:
        async with await backend.start(env) as first:
            await first.exec(
                "cd pkg; export S=1; rm core.py; echo n >n.py; rm -r data; mkdir data; echo d >data/d; touch ~/h"
            )
            snapshot = await first.snapshot(tmp_path / "one")
            await first.exec("echo later >later.py")
        async with await backend.start(env, snapshot=snapshot) as second:
            assert await output(second, "pwd; echo $S; ls . data; ls ~") == (
                "/home/dev/repo/pkg\n1\n.:\n__init__.py\ndata\nn.py\n\ndata:\nd\nh\nrepo"
            )
            await second.exec("rm n.py; echo 2 >second.py; rm -r data")
            again = await second.snapshot(tmp_path / "two")
            whole = {change.path: change.content for change in (await second.diff()).changes}
        assert whole == {"pkg/core.py": None, "pkg/data/table.txt": None, "pkg/second.py": b"2\n"}
        async with await backend.start(env, snapshot=again) as third:
            assert await output(third, "ls") == "__init__.py\nsecond.py"
            assert {change.path for change in (await third.diff()).changes} == set(whole)

    async def test_a_used_directory_is_refused(self, sandbox: Sandbox, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(SnapshotError, match="not empty"):
            await sandbox.snapshot(tmp_path)

    async def test_everything_stands_still_meanwhile(self, backend: Backend, env: EnvSpec, tmp_path: Path) -> None:
        """Two counters that a program keeps equal, but for a moment, are equal in every snapshot."""
        count = "n=0; while :; do n=$((n+1)); echo $n >one; for i in $(seq 2000); do :; done; echo $n >two; done"
        async with await backend.start(env) as sandbox:
            await sandbox.exec(f"({count}) >/dev/null 2>&1 &")
            for number in range(4):
                snapshot = await sandbox.snapshot(tmp_path / str(number))
                one, two = (snapshot.layer / "repo" / name for name in ("one", "two"))
                if two.exists():
                    assert 0 <= int(one.read_text() or 0) - int(two.read_text() or 0) <= 1
                before = (await sandbox.read("one") if one.exists() else b"").strip()
                async with asyncio.timeout(20):  # and runs on afterwards
                    while (await sandbox.exec("cat one", keep_state=False)).output.strip() == before:
                        pass

    async def test_calls_wait_for_a_snapshot(self, sandbox: Sandbox, tmp_path: Path) -> None:
        await sandbox.exec("head -c 4M /dev/urandom >big")
        taken, *said = await asyncio.gather(
            sandbox.snapshot(tmp_path / "one"),
            *(sandbox.exec("echo said", keep_state=False) for _ in range(5)),
            sandbox.exec("echo said"),
        )
        assert {result.output for result in said} == {b"said\n"}  # type: ignore[union-attr]
        assert (taken.layer / "repo/big").stat().st_size == 4 * MIB

    async def test_too_much_for_a_snapshot(self, backend: Backend, env: EnvSpec, tmp_path: Path) -> None:
        """A hole costs a sandbox nothing, but would fill the host's disk or its time."""
        limits = Limits(disk_bytes=8 * MIB, inodes=500)
        async with await backend.start(env, limits=limits) as sandbox:
            await sandbox.exec("truncate -s 200M hole")
            with pytest.raises(SnapshotTooLarge, match=str(8 * MIB)):
                await sandbox.snapshot(tmp_path / "hole")
            assert not (tmp_path / "hole").exists()
            await sandbox.exec("rm hole; d=.; for i in $(seq 120); do d=$d/d; done; mkdir -p $d")
            with pytest.raises(SnapshotTooLarge, match="nested"):
                await sandbox.snapshot(tmp_path / "deep")
            await sandbox.exec("rm -r d")
            await sandbox.snapshot(tmp_path / "fine")

    async def test_fork(self, backend: Backend, env: EnvSpec, tmp_path: Path) -> None:
        async with await backend.start(env) as first:
            await first.exec("cd pkg; export N=0; echo base >base")
            snapshot = await first.snapshot(tmp_path / "one")
        boxes = await fork(backend, env, snapshot, 6, limits=Limits(life_seconds=300))
        said = await asyncio.gather(
            *(box.exec(f"N=$((N+{n})); echo {n} >>base; cat base; pwd; echo $N") for n, box in enumerate(boxes))
        )
        expected = [f"base\n{n}\n/home/dev/repo/pkg\n{n}\n".encode() for n in range(6)]
        assert [result.output for result in said] == expected
        await asyncio.gather(*(box.close() for box in boxes))

    async def test_a_fork_is_all_or_nothing(self, backend: Backend, env: EnvSpec, tmp_path: Path) -> None:
        started: list[Sandbox] = []
        calls = 0

        class Failing:
            async def start(self, env: EnvSpec, **options: Any) -> Sandbox:
                nonlocal calls
                calls += 1
                if calls == 4:
                    while len(started) < 3:
                        await asyncio.sleep(0.01)
                    raise SandboxLost("no more")
                started.append(await backend.start(env, **options))
                return started[-1]

        (tmp_path / "empty").mkdir()
        with pytest.raises(SandboxLost, match="no more"):
            await fork(cast("Backend", Failing()), env, Snapshot(tmp_path / "empty"), 5)
        for box in started:
            with pytest.raises(SandboxLost):
                await box.read("main.py")


class TestStore:
    """Snapshots by digest: on this worker, on another one, and on another machine."""

    async def test_saved_and_started_again(self, backend: Backend, env: EnvSpec, tmp_path: Path) -> None:
        store = SnapshotStore(tmp_path / "store")
        async with await backend.start(env) as first:
            await first.exec("cd pkg; export S=1; rm core.py; echo n >n.py; chmod 000 n.py; ln -s n.py l; rm -r data")
            with await store.save(first) as lease:
                digest = lease.digest
            with await store.save(first) as lease:
                assert lease.digest == digest, "the same files and state have the same name"
        with store.get(digest) as lease:
            async with await backend.start(env, snapshot=lease.snapshot) as second:
                assert await output(second, "pwd; echo $S; ls; stat -c %a n.py; chmod 600 l; cat l") == (
                    "/home/dev/repo/pkg\n1\n__init__.py\nl\nn.py\n0\nn"
                )
        assert store.collect(set(), min_age_seconds=0).snapshots == 1

    async def test_another_worker_with_a_copy_of_the_archive(
        self, backend: Backend, env: EnvSpec, tmp_path: Path
    ) -> None:
        store = SnapshotStore(tmp_path / "store")
        async with await backend.start(env) as first:
            await first.exec("cd pkg; export S=carried; rm core.py; echo new >new.py")
            with await store.save(first) as lease:
                digest = lease.digest
        (tmp_path / "copy/archives").mkdir(parents=True)
        shutil.copy(tmp_path / "store/archives" / digest, tmp_path / "copy/archives")
        source = textwrap.dedent("""
            import asyncio, importlib, sys
            from pathlib import Path
            from sandbox.backends.base import EnvSpec
            from sandbox.backends.snapshots import SnapshotStore
            layer, store, digest, module, name = sys.argv[1:]
            async def main():
                backend = getattr(importlib.import_module(module), name)()
                with SnapshotStore(Path(store)).get(digest) as lease:
                    async with await backend.start(EnvSpec((Path(layer),)), snapshot=lease.snapshot) as box:
                        print((await box.exec("echo $S; ls; cat new.py")).output.decode(), end="")
                await backend.close()
            asyncio.run(main())
        """)
        kind = type(backend)
        arguments = [str(env.layers[0]), str(tmp_path / "copy"), digest, kind.__module__, kind.__name__]
        command = [sys.executable, "-c", source, *arguments]
        done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, text=True, timeout=90)
        assert done.stdout == "carried\n__init__.py\ndata\nnew.py\nnew\n", done.stderr


class TestEnvironments:
    async def test_layers_are_shared_and_never_written(self, backend: Backend, tmp_path: Path) -> None:
        upper = write_tree(tmp_path / "upper", {"repo/a.py": "upper\n"})
        lower = write_tree(tmp_path / "lower", {"repo/a.py": "lower\n", "repo/b.py": "b\n"})
        spec = EnvSpec(layers=(upper, lower))
        async with await backend.start(spec) as first, await backend.start(spec) as second:
            await first.exec("echo changed >a.py; rm b.py")
            assert await output(second, "cat a.py b.py") == "upper\nb"
        assert (upper / "repo/a.py").read_text() == "upper\n" and (lower / "repo/b.py").exists()

    async def test_no_layer_gives_an_empty_checkout(self, backend: Backend) -> None:
        async with await backend.start(EnvSpec(layers=())) as sandbox:
            assert await output(sandbox, "pwd; ls -A") == "/home/dev/repo"

    async def test_a_layer_path_used_again_for_other_files(self, backend: Backend, tmp_path: Path) -> None:
        for text in ("one\n", "two\n"):
            layer = write_tree(tmp_path / "same", {"repo/f": text})
            async with await backend.start(EnvSpec(layers=(layer,))) as sandbox:
                assert await output(sandbox, "cat f") == text.strip()
            layer.rename(tmp_path / f"old-{text.strip()}")

    async def test_missing_layer(self, backend: Backend, tmp_path: Path) -> None:
        with pytest.raises(SandboxUnavailable, match=r"absent.*No such file"):
            await backend.start(EnvSpec(layers=(tmp_path / "absent",)))

    async def test_limits_that_cannot_work(self, backend: Backend, env: EnvSpec) -> None:
        with pytest.raises(SandboxUnavailable, match="memory_bytes"):
            await backend.start(env, limits=Limits(memory_bytes=1))

    async def test_what_cannot_be_enforced_is_named_and_refused(self, backend: Backend, env: EnvSpec) -> None:
        found = backend.probe()
        everything = frozenset(get_args(Guarantee))
        if missing := everything - found.enforced:
            assert found.reasons
            with pytest.raises(LimitUnenforceable, match=sorted(missing)[0]):
                await backend.start(env, limits=Limits(required=everything))
        async with await backend.start(env, limits=Limits(required=found.enforced)) as sandbox:
            assert sandbox.limits.required == found.enforced and sandbox.name

    async def test_a_sweep_touches_nothing_alive(self, sandbox: Sandbox, backend: Backend) -> None:
        await backend.sweep()
        assert await output(sandbox, "echo alive") == "alive"


class TestEnd:
    async def test_close_twice_and_calls_afterwards(self, backend: Backend, env: EnvSpec) -> None:
        sandbox = await backend.start(env)
        pending = asyncio.create_task(sandbox.exec("sleep 60"))
        await asyncio.sleep(0)
        await sandbox.close()
        await sandbox.close()
        with pytest.raises(SandboxLost):
            await pending
        with pytest.raises(SandboxLost):
            await sandbox.read("main.py")

    async def test_life_is_limited(self, backend: Backend, env: EnvSpec) -> None:
        async with await backend.start(env, limits=Limits(life_seconds=0.5)) as sandbox:
            with pytest.raises(SandboxExpired, match="life was over"):
                await sandbox.exec("sleep 30", timeout=20)
            with pytest.raises(SandboxExpired):
                await sandbox.read("main.py")

    async def test_many_sandboxes(self, backend: Backend, env: EnvSpec) -> None:
        sandboxes = await asyncio.gather(*(backend.start(env) for _ in range(12)))
        results = await asyncio.gather(*(box.exec("echo $$ >mine; ls | wc -l") for box in sandboxes))
        assert {result.output for result in results} == {b"4\n"}
        await asyncio.gather(*(box.close() for box in sandboxes))
