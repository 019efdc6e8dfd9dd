"""Each sandbox is a kernel user of its own, leased across processes, and given back however they end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sandbox.backends.base import EnvSpec, Sandbox, SandboxUnavailable
from sandbox.backends.namespaces.backend import NamespacesBackend
from sandbox.backends.namespaces.kernel.identity import NoIdentity
from sandbox.backends.namespaces.kernel.uids import Pool, mapped_ids
from sandbox.backends.users import USERS

from ..conftest import write_tree

ROOT = Path(__file__).resolve().parents[4]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has one id to give")
EXHAUSTED = textwrap.dedent("""
    import asyncio, fcntl, json, os, struct
    from sandbox.backends.base import EnvSpec, SandboxUnavailable
    from sandbox.backends.namespaces.backend import NamespacesBackend
    from sandbox.backends.namespaces.kernel.uids import NAME, mapped_ids
    async def main():
        backend = NamespacesBackend()
        boxes = []
        assert "users" in backend.probe().enforced, backend.probe()
        boxes.append(await backend.start(EnvSpec(layers=())))
        ids, file, refusal = mapped_ids(), os.open(f"/run/{NAME}", os.O_RDWR), ""
        for uid in ids:  # what other hosts of the machine would do
            try: fcntl.fcntl(file, 37, struct.pack("hhqqixxxx", fcntl.F_WRLCK, 0, uid, 1, 0))
            except BlockingIOError: pass
        while not refusal:
            try: boxes.append(await backend.start(EnvSpec(layers=())))
            except SandboxUnavailable as error: refusal = str(error)
        alive = (await boxes[0].exec("echo alive")).output.decode()
        for box in boxes: await box.close()
        again = await backend.start(EnvSpec(layers=()))
        print(json.dumps([refusal, alive, (await again.exec("id -un")).output.decode(), len(boxes)]))
        await backend.close()
    asyncio.run(main())
""")


async def kernel_uid(sandbox: Sandbox) -> int:
    return int((await sandbox.exec("cat /proc/self/uid_map")).output.split()[1])


async def test_no_two_live_sandboxes_are_one_user(tmp_path: Path) -> None:
    env = EnvSpec(layers=(write_tree(tmp_path / "layer", {"repo/a": "a\n"}),))
    backends = [NamespacesBackend(), NamespacesBackend()]
    boxes = await asyncio.gather(*(backend.start(env) for backend in backends for _ in range(3)))
    uids = [await kernel_uid(box) for box in boxes]
    assert len(set(uids)) == len(boxes) and set(uids) <= set(mapped_ids())
    said = [(await box.exec("stat -c %U a && echo b >>a && cat a")).output for box in boxes]
    assert set(said) == {b"dev\na\nb\n"}
    await asyncio.gather(*(box.close() for box in boxes))
    for backend in backends:
        await backend.close()


async def test_a_snapshot_belongs_to_whoever_starts_from_it(tmp_path: Path) -> None:
    backend = NamespacesBackend()
    async with await backend.start(EnvSpec(layers=())) as box:
        await box.exec("mkdir -p folder && echo one >folder/file")
        snapshot = await box.snapshot(tmp_path / "snapshot")
        first = await kernel_uid(box)
        async with await backend.start(EnvSpec(layers=()), snapshot=snapshot) as other:
            assert await kernel_uid(other) != first
            said = await other.exec("stat -c %U folder/file && echo two >>folder/file && cat folder/file")
            assert said.output == b"dev\none\ntwo\n"
            assert (snapshot.layer / "repo/folder/file").read_text() == "one\n"
    await backend.close()


def test_a_lease_ends_with_its_process_however_that_ends(tmp_path: Path) -> None:
    folder = str(tmp_path)
    take = f"from sandbox.backends.namespaces.kernel.uids import Pool; lease = Pool([7], ({folder!r},)).take(); print(lease.uid)"
    command = [sys.executable, "-c", f"{take.replace('print(lease.uid)', 'print(lease.uid, flush=True)')}; input()"]
    holder = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin and holder.stdout and holder.stdout.readline() == b"7\n"
    pool = Pool([7], (folder,))
    assert pool.lent(7)
    with pytest.raises(NoIdentity, match=r"all 1 user ids .* are in use on this machine: run fewer"):
        pool.take()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    lease = pool.take()
    assert lease.uid == 7 and pool.lent(7)
    lease.close()
    assert not pool.lent(7)
    for end in (holder.stdin, holder.stdout):
        end.close()


def test_when_ids_run_out_the_start_says_so_and_what_runs_is_unharmed() -> None:
    command = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-ec",
        'mount -t tmpfs tmpfs /run; exec "$@"',
        "sh",
    ]
    done = subprocess.run([*command, sys.executable, "-c", EXHAUSTED], cwd=ROOT, capture_output=True, timeout=90)
    assert done.returncode == 0, done.stderr.decode()
    refusal, alive, again, count = json.loads(done.stdout)
    assert "are in use on this machine: run fewer sandboxes at once" in refusal
    assert (alive, again) == ("alive\n", "dev\n") and count >= 1


async def test_sharing_one_user_is_a_choice_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(USERS, "shared")
    backend = NamespacesBackend()
    found = backend.probe()
    assert found.usable and "users" not in found.enforced and any(USERS in reason for reason in found.reasons)
    async with await backend.start(EnvSpec(layers=())) as first, await backend.start(EnvSpec(layers=())) as second:
        assert await kernel_uid(first) == await kernel_uid(second)
    await backend.close()
    monkeypatch.setenv(USERS, "everybody")
    with pytest.raises(SandboxUnavailable, match=f"{USERS} is 'everybody': use own, required or shared"):
        NamespacesBackend().probe()
