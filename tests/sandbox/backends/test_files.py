"""What every backend promises about files: reading, writing, searching, and the patch."""

from __future__ import annotations

import asyncio
import os

import pytest

from sandbox.backends.base import (
    Backend,
    EnvSpec,
    PathError,
    Sandbox,
)

from .conftest import FILES, output


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
