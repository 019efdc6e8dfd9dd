"""The snapshot store by itself: what goes in comes out, elsewhere too, and what is wrong is refused."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import shutil
import stat
import struct
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.backends.base import Snapshot, SnapshotDamaged, SnapshotError, SnapshotMissing
from sandbox.backends.choice import layer_owner
from sandbox.backends.namespaces.layers import OPAQUE, remove_tree
from sandbox.backends.snapshots import SnapshotStore, archive
from sandbox.backends.snapshots.locks import shared

ROOT = Path(__file__).resolve().parents[3]
BOUNDS = {"most_bytes": 1 << 20, "most_entries": 100}


def make_layer(root: Path) -> Path:
    """One of everything that an upper layer can hold."""
    (root / "repo" / "pkg").mkdir(parents=True)
    (root / "repo/main.py").write_bytes(b"print(1)\n")
    (root / "repo/tool").write_bytes(b"#!/bin/sh\n")
    os.chmod(root / "repo/tool", 0o755)
    os.utime(root / "repo/main.py", ns=(1, 1_700_000_000_123_456_789))
    os.symlink("../../../etc/passwd", root / "repo/link")
    os.mknod(root / "repo/gone.py", stat.S_IFCHR, 0)
    os.setxattr(root / "repo/pkg", OPAQUE, b"y")
    (root / "repo/pkg" / os.fsdecode(b"odd\xff\n%41 name")).write_bytes(os.urandom(3000))
    (root / "closed").mkdir()
    (root / "closed/secret").write_bytes(b"s")
    os.chmod(root / "closed/secret", 0)
    os.chmod(root / "closed", 0)
    deep = root
    for _ in range(60):
        deep /= "d" * 100
        deep.mkdir() if len(str(deep)) < 3500 else None
    return root


def described(tree: Path) -> dict[bytes, tuple]:
    """Every path below `tree` with all that must survive."""
    found: dict[bytes, tuple] = {}
    root = os.fsencode(tree)
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            seen = os.lstat(path)
            content: object = None
            if stat.S_ISREG(seen.st_mode):
                content = Path(os.fsdecode(path)).read_bytes()
            elif stat.S_ISLNK(seen.st_mode):
                content = os.readlink(path)
            opaque = stat.S_ISDIR(seen.st_mode) and OPAQUE in os.listxattr(path)
            mtime = 0 if stat.S_ISCHR(seen.st_mode) else seen.st_mtime_ns
            found[os.path.relpath(path, root)] = (stat.filemode(seen.st_mode), seen.st_rdev, mtime, content, opaque)
    return found


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    return make_layer(tmp_path / "layer")


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "store")


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="reads what modes close to an ordinary user")


@needs_root
def test_what_goes_in_comes_out(store: SnapshotStore, layer: Path) -> None:
    before = described(layer)
    with store.put(Snapshot(layer, b"state")) as lease:
        assert described(lease.snapshot.layer) == before == described(layer)
        assert lease.snapshot.shell_state == b"state" and store.digests() == {lease.digest}
        for path in lease.snapshot.layer.rglob("*"):
            assert (path.lstat().st_uid, path.lstat().st_gid) == layer_owner()
    with store.put(Snapshot(layer, b"state")) as again, store.put(Snapshot(layer, b"other")) as other:
        assert again.digest == lease.digest != other.digest


@needs_root
def test_the_archive_alone_is_enough_elsewhere(store: SnapshotStore, layer: Path, tmp_path: Path) -> None:
    with store.put(Snapshot(layer, b"state")) as lease:
        copy = SnapshotStore(tmp_path / "elsewhere")
        shutil.copy(tmp_path / "store/archives" / lease.digest, tmp_path / "elsewhere/archives")
        with copy.get(lease.digest) as there:
            assert described(there.snapshot.layer) == described(layer)
            assert there.snapshot.shell_state == b"state"


@pytest.mark.parametrize("name", ["", "x" * 64, "../archives", "0" * 64])
def test_missing(store: SnapshotStore, tmp_path: Path, name: str) -> None:
    with pytest.raises(SnapshotMissing):
        store.get(name)
    assert not list((tmp_path / "store/leases").iterdir())


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "empty"])
def test_damage_is_found_and_can_be_healed(store: SnapshotStore, tmp_path: Path, damage: str) -> None:
    (tmp_path / "layer").mkdir()
    (tmp_path / "layer/file").write_bytes(os.urandom(5000))
    snapshot = Snapshot(tmp_path / "layer")
    store.put(snapshot).close()
    (digest,) = store.digests()
    assert store.collect(store.digests(), min_age_seconds=0).trees == 1  # the unpacked copy would hide the damage
    path = tmp_path / "store/archives" / digest
    content = bytearray(path.read_bytes())
    content[2500] ^= 1
    path.write_bytes({"flip": content, "cut": content[:2500], "grow": content + b"x", "empty": b""}[damage])
    with pytest.raises(SnapshotDamaged, match=digest):
        store.get(digest)
    assert not store.digests() and not list((tmp_path / "store/drafts").iterdir())
    with store.put(snapshot) as lease:
        assert (lease.snapshot.layer / "file").read_bytes() == (tmp_path / "layer/file").read_bytes()


def stream(*records: tuple[dict | bytes, bytes]) -> tuple[bytes, str]:
    """An archive of these records, and its digest."""
    parts = []
    for record, content in records:
        text = record if isinstance(record, bytes) else archive.Record(**record).model_dump_json().encode()
        parts.append(struct.pack("<I", len(text)) + text + content)
    raw = b"".join(parts)
    return zstandard.compress(raw), hashlib.sha256(raw).hexdigest()


STATE, END = ({"kind": "state"}, b""), ({"kind": "end"}, b"")
FOLDER = ({"kind": "folder", "name": "d", "mode": 0o700}, b"")
FILE = {"kind": "file", "name": "f", "mode": 0o600}


@pytest.mark.parametrize(
    "records",
    [
        (STATE, ({**FILE, "name": ".."}, b""), END),
        (STATE, ({**FILE, "name": "a%2Fb"}, b""), END),
        (STATE, ({**FILE, "name": "a/b"}, b""), END),
        (STATE, ({**FILE, "name": ""}, b""), END),
        (STATE, ({**FILE, "name": "a%00"}, b""), END),
        (STATE, ({**FILE, "name": "a" * 256}, b""), END),
        (STATE, ({**FILE, "depth": 1}, b""), END),
        (STATE, FOLDER, ({**FILE, "depth": 2}, b""), END),
        (STATE, ({"kind": "link", "name": "l", "target": "/etc"}, b""), ({**FILE, "depth": 1}, b""), END),
        (STATE, ({"kind": "link", "name": "l", "target": "/etc"}, b""), ({**FILE, "name": "l"}, b""), END),
        (STATE, ({"kind": "link", "name": "l"}, b""), END),
        (STATE, (FILE, b""), (FILE, b""), END),
        (STATE, FOLDER, FOLDER, END),
        (STATE, ({**FILE, "size": (1 << 20) + 1}, b""), END),
        (STATE, ({**FILE, "size": 10}, b"x"), END),
        (STATE, *(({**FILE, "name": str(n)}, b"") for n in range(101)), END),
        (STATE, STATE, END),
        (STATE,),
        (STATE, END, (FILE, b"")),
        (END,),
        (({"kind": "state", "size": 1 << 30}, b""), END),
        (STATE, (b'{"kind":"file","name":"f","mode":2541}', b""), END),
        (STATE, (b'{"kind":"device","name":"f"}', b""), END),
        (STATE, (b"{}" * 600_000, b""), END),
        (STATE, ({"kind": "gone", "name": "g", "size": 3}, b"abc"), END),
    ],
)
def test_hostile_archives(tmp_path: Path, records: tuple) -> None:
    data, digest = stream(*records)
    (tmp_path / "into").mkdir()
    with pytest.raises(SnapshotDamaged):
        archive.unpack(io.BytesIO(data), digest, tmp_path / "into", owner=None, **BOUNDS)
    assert os.listdir(tmp_path) == ["into"]
    for path in (tmp_path / "into").rglob("*"):
        assert path.lstat().st_size <= BOUNDS["most_bytes"] and not path.lstat().st_mode & 0o6000


@given(
    data=st.binary(max_size=200)
    | st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=20)), max_size=6).map(lambda all: stream(*all)[0])
)
@settings(max_examples=200, deadline=None)
def test_arbitrary_bytes_are_damage(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    into = tmp_path_factory.mktemp("fuzz")
    with pytest.raises(SnapshotDamaged):
        archive.unpack(io.BytesIO(data), "0" * 64, into, owner=None, **BOUNDS)


def test_a_bomb_costs_no_memory(tmp_path: Path) -> None:
    size = 1 << 20
    data, digest = stream(STATE, ({**FILE, "size": size}, bytes(size)), (b"\0" * (200 << 20), b""))
    with pytest.raises(SnapshotDamaged, match="a record of"):
        archive.unpack(io.BytesIO(data), digest, tmp_path, owner=None, most_bytes=2 * size, most_entries=9)


def test_a_layer_that_is_nested_too_deeply(store: SnapshotStore, tmp_path: Path) -> None:
    deep = tmp_path / "layer"
    for _ in range(archive.MAX_DEPTH + 3):
        deep /= "d"
    deep.mkdir(parents=True)
    with pytest.raises(SnapshotError, match="nested"):
        store.put(Snapshot(tmp_path / "layer"))
    assert not store.digests() and not list((tmp_path / "store/drafts").iterdir())


class TestCollection:
    def test_a_lease_of_nothing_goes(self, store: SnapshotStore, tmp_path: Path) -> None:
        """Its holder was killed before the snapshot existed. A lease that is still held stays."""
        gone, held = (tmp_path / "store" / "leases" / (digit * 64) for digit in "ab")
        gone.touch()
        with shared(held):
            store.collect(set())
            assert list(held.parent.iterdir()) == [held]
        store.collect(set())
        assert not list(held.parent.iterdir())

    def put(self, store: SnapshotStore, folder: Path, text: str) -> str:
        (folder / text).mkdir()
        (folder / text / "file").write_text(text)
        with store.put(Snapshot(folder / text)) as lease:
            return lease.digest

    def test_only_what_nobody_wants_goes(self, store: SnapshotStore, tmp_path: Path) -> None:
        kept, leased, old = (self.put(store, tmp_path, text) for text in ("kept", "leased", "old"))
        with store.get(leased) as lease:
            found = store.collect({kept}, min_age_seconds=0)
            assert (found.snapshots, found.trees) == (1, 2)
            assert store.digests() == {kept, leased}
            assert (lease.snapshot.layer / "file").read_text() == "leased"
        with pytest.raises(SnapshotMissing):
            store.get(old)
        with store.get(kept) as lease:
            assert (lease.snapshot.layer / "file").read_text() == "kept"

    async def test_who_is_cancelled_while_waiting_holds_nothing(self, store: SnapshotStore, tmp_path: Path) -> None:
        digest = self.put(store, tmp_path, "text")
        waiting = asyncio.ensure_future(store.use(digest))
        await asyncio.sleep(0)  # it has begun
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert store.collect(set(), min_age_seconds=0).snapshots == 1
        with pytest.raises(SnapshotMissing):
            await store.use(digest)

    def test_what_is_new_stays(self, store: SnapshotStore, tmp_path: Path) -> None:
        digest = self.put(store, tmp_path, "new")
        assert store.collect(set()) == store.collect(set(), min_age_seconds=60)
        assert store.digests() == {digest}

    def test_saving_again_makes_it_new(self, store: SnapshotStore, tmp_path: Path) -> None:
        digest = self.put(store, tmp_path, "again")
        os.utime(tmp_path / "store/archives" / digest, (1, 1))
        with store.put(Snapshot(tmp_path / "again")) as lease:
            assert lease.digest == digest
        assert store.collect(set()).snapshots == 0

    def test_drafts_of_the_living_stay(self, store: SnapshotStore, tmp_path: Path) -> None:
        drafts = tmp_path / "store/drafts"
        (drafts / "dead").mkdir()
        (drafts / "dead" / "file").touch()
        (drafts / "dead.lock").touch()
        with store._draft() as mine:
            assert store.sweep() == 1
            assert mine.is_dir()
        assert not list(drafts.iterdir())

    def test_trees_of_another_boot_go(self, store: SnapshotStore, tmp_path: Path) -> None:
        digest = self.put(store, tmp_path, "text")
        (other,) = (tmp_path / "store/trees").iterdir()
        other.rename(tmp_path / "store/trees/earlier")
        SnapshotStore(tmp_path / "store")
        os.utime(tmp_path / "store/trees/earlier", (1, 1))
        os.utime(tmp_path / "store/trees/earlier" / digest, (1, 1))
        assert store.collect({digest}).trees == 1
        store.collect({digest}, min_age_seconds=0)
        assert not (tmp_path / "store/trees/earlier").exists() and store.digests() == {digest}


WORKER = """
import os, random, sys
from pathlib import Path
from sandbox.backends.base import Snapshot, SnapshotMissing
from sandbox.backends.snapshots import SnapshotStore
store, layers, seed = SnapshotStore(Path(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])
chance = random.Random(seed)
names = sorted(os.listdir(layers))
known = {}
for _ in range(60):
    name, action = chance.choice(names), chance.randrange(4)
    if action < 2:
        with store.put(Snapshot(layers / name, name.encode())) as lease:
            known[name] = lease.digest
            assert (lease.snapshot.layer / "file").read_text() == name
    elif action == 2 and name in known:
        try:
            with store.get(known[name]) as lease:
                assert (lease.snapshot.layer / "file").read_text() == name
                assert lease.snapshot.shell_state == name.encode()
        except SnapshotMissing:
            pass
    else:
        store.collect(set(), min_age_seconds=0)
print("done")
"""


def test_many_processes_at_once(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / "layers" / name).mkdir(parents=True)
        (tmp_path / "layers" / name / "file").write_text(name)
    arguments = [sys.executable, "-c", WORKER, str(tmp_path / "store"), str(tmp_path / "layers")]
    workers = [
        subprocess.Popen([*arguments, str(seed)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for seed in range(4)
    ]
    for worker in workers:
        out, errors = worker.communicate(timeout=100)
        assert out == "done\n", errors
    store = SnapshotStore(tmp_path / "store")
    store.collect(set(), min_age_seconds=0)
    assert not store.digests()
    for folder in ("archives", "leases", "drafts"):
        assert not list((tmp_path / "store" / folder).iterdir())


def _keep_and_remove(home: Path) -> str:
    """In a child: become nobody, put, get, collect; what the kept layer held, or what went wrong."""
    try:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        store = SnapshotStore(home / "store")
        with store.put(Snapshot(home / "layer")) as lease:
            names = sorted(os.listdir(lease.snapshot.layer))
        store.collect(set(), min_age_seconds=0)
        remove_tree(str(home / "layer"))
        return " ".join(names)
    except Exception:  # noqa: BLE001 - told to the parent, which must never run twice
        return traceback.format_exc()[-1900:]


@needs_root
def test_an_ordinary_user_keeps_what_is_closed_to_him() -> None:
    home = Path("/var/tmp") / f"opencomposer-snapshots-{os.getpid()}"  # pytest's folders are closed to other users
    try:
        make_layer(home / "layer")
        for path in (home, *home.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writer, _keep_and_remove(home).encode())
            os._exit(0)
        os.close(writer)
        said = os.read(reader, 2000).decode()
        os.close(reader)
        assert (said, os.waitpid(pid, 0)[1]) == (f"closed {'d' * 100} repo", 0)
        assert not list((home / "store/archives").iterdir()) and not (home / "layer").exists()
    finally:
        remove_tree(str(home))
