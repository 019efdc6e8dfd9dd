"""What every backend promises about snapshots, forks and the store that keeps them."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, cast

import pytest

from sandbox.backends.base import (
    Backend,
    EnvSpec,
    Limits,
    Sandbox,
    SandboxLost,
    Snapshot,
    SnapshotError,
    SnapshotTooLarge,
)
from sandbox.backends.snapshots import SnapshotStore
from tests.support.fork_backend import fork

from .conftest import MIB, output

ROOT = Path(__file__).resolve().parents[3]


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

    async def test_a_stamp_tells_whether_anything_changed(self, sandbox: Sandbox) -> None:
        stamps = [await sandbox.stamp()]
        await sandbox.read("main.py")
        await sandbox.list(".")
        await sandbox.exec("cat main.py; true >/dev/null", keep_state=False)
        assert await sandbox.stamp() == stamps[0]
        for command in ("echo >>main.py", "chmod +x main.py", "rm README.md", "mkdir d", "touch d/e", "N=1", "cd d"):
            await sandbox.exec(command)
            stamps.append(await sandbox.stamp())
        assert len(set(stamps)) == len(stamps)
        await sandbox.exec("mkdir -p $(printf 'x/%.0s' $(seq 120))")
        with pytest.raises(SnapshotTooLarge, match="nested"):
            await sandbox.stamp()

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
                counted = [int(file.read_text() or -1) if file.exists() else -1 for file in (one, two)]
                if min(counted) >= 0:  # else it was emptied to be written anew
                    assert 0 <= counted[0] - counted[1] <= 1
                before = (await sandbox.read("one") if one.exists() else b"").strip()
                async with asyncio.timeout(60):  # and runs on afterwards
                    while (await sandbox.exec("cat one", keep_state=False)).output.strip() == before:
                        pass

    async def test_what_is_forked_meanwhile_runs_on(self, backend: Backend, env: EnvSpec, tmp_path: Path) -> None:
        """The signal that stops everything comes to it too, though it is in no list of processes yet."""
        async with await backend.start(env) as sandbox:
            for name in ("one", "two"):
                await sandbox.exec(f"(while :; do n=$(($(echo $n) + 1)); echo $n >{name}; done) >/dev/null 2>&1 &")
            for number in range(60):
                await sandbox.snapshot(tmp_path / str(number))
            for name in ("one", "two"):
                then = (await sandbox.exec(f"cat {name}", keep_state=False)).output
                async with asyncio.timeout(60):
                    while (await sandbox.exec(f"cat {name}", keep_state=False)).output in (then, b""):
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
