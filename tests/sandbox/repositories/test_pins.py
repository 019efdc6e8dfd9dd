import gzip
import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import PackageError
from sandbox.repositories import archives, pins
from sandbox.repositories.files import check_relative_path
from tests.sandbox.shelf import FILES, write_sdist


def test_the_locks_pin_version_and_hash():
    locked = pins.read_lock()
    assert len(locked) >= 3
    assert set(pins.read_lock(pins.TOOLCHAIN_LOCK)) >= {"pytest", "pluggy"}
    assert all(len(digest) == 64 for pin in locked.values() for digest in pin.sha256)
    for lock in (pins.PACKAGES_LOCK, pins.TOOLCHAIN_LOCK):
        assert "://" not in lock.read_text()


@pytest.mark.parametrize("line", ["shelf\n", "shelf==1\n", "shelf --hash=sha256:aa\n"])
def test_an_unpinned_line_is_refused(tmp_path, line):
    (tmp_path / "x.lock").write_text(line)
    with pytest.raises(PackageError, match="pins no version or no hash"):
        pins.read_lock(tmp_path / "x.lock")


def test_unpacking_leaves_out_what_packaging_added(tmp_path):
    archive = write_sdist(tmp_path / "shelf-1.2.tar.gz", {**FILES, "shelf/__pycache__/x.pyc": "", ".git/config": ""})
    assert set(pins.unpack(archive)) == {"shelf/__init__.py", "tests/test_shelf.py", "README.md", "pyproject.toml"}
    assert pins.metadata(archive).startswith(b"Metadata-Version")


def test_links_are_not_followed(tmp_path):
    path = tmp_path / "x.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        link = tarfile.TarInfo("x-1/evil")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        member = tarfile.TarInfo("x-1/a.py")
        tar.addfile(member, io.BytesIO())
    assert set(pins.unpack(path)) == {"a.py"}


@pytest.mark.parametrize("name", ["../../evil.py", "a/../../../evil.py", "a\nb.py", "/etc/x", "a/" + "b" * 300])
def test_escaping_members_are_refused(tmp_path, name):
    with pytest.raises(PackageError, match="unsafe or oversized"):
        pins.unpack(write_sdist(tmp_path / "x.tar.gz", {name: "x"}))


def test_bombs_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_TOTAL_BYTES", 1000)
    with pytest.raises(PackageError, match="more than 1000 bytes"):
        pins.unpack(write_sdist(tmp_path / "x.tar.gz", {"a": "x" * 600, "b": "x" * 600}))
    monkeypatch.setattr(archives, "MAX_FILE_BYTES", 100)
    with pytest.raises(PackageError, match="oversized"):
        pins.unpack(write_sdist(tmp_path / "y.tar.gz", {"a": "x" * 101}))


@pytest.mark.parametrize(
    "data", [b"", b"not an archive", gzip.compress(b"not a tar", mtime=0)[:-4]], ids=["empty", "text", "cut"]
)
def test_broken_archives_are_refused(tmp_path, data):
    path = tmp_path / "x.tar.gz"
    path.write_bytes(data)
    with pytest.raises(PackageError, match=r"not a readable archive|holds no files"):
        pins.unpack(path)


def test_a_header_that_asks_for_gigabytes_is_refused(tmp_path, monkeypatch):
    """An extended header is read whole into memory by whoever believes its size."""
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 1 << 20)
    block = tarfile.TarInfo("x-1/a")
    block.type, block.size = tarfile.XHDTYPE, 7 << 30
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(block.tobuf() + b"\0" * (2 << 20), mtime=0))
    with pytest.raises(PackageError, match="unpacks to more than"):
        pins.unpack(path)


def test_a_stream_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 1 << 20)
    path = tmp_path / "x.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        device = tarfile.TarInfo("x-1/dev")
        device.type = tarfile.CHRTYPE
        for _ in range(3000):
            tar.addfile(device)
    with pytest.raises(PackageError, match="unpacks to more than"):
        pins.unpack(path)
    monkeypatch.setattr(archives, "MAX_MEMBERS", 100)
    with pytest.raises(PackageError, match="more than 100 members"):
        pins.unpack(path)


def test_a_file_inside_a_file_is_refused(tmp_path):
    with pytest.raises(PackageError, match="lies inside the file"):
        pins.unpack(write_sdist(tmp_path / "x.tar.gz", {"a": "x", "a/b": "x"}))


NAMES = st.lists(
    st.sampled_from(["a", "b.py", "..", ".", "", ".git", "\u202e", "c d", "x" * 120]), min_size=1, max_size=5
)
KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE]
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(NAMES, KINDS, st.binary(max_size=20)), max_size=6),
    st.lists(st.tuples(st.integers(0, 4000), st.binary(max_size=8)), max_size=3),
)
def test_no_archive_gets_out_of_its_folder(tmp_path_factory, contents, damage):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for parts, kind, data in contents:
            member = tarfile.TarInfo("/".join(parts))
            member.type, member.linkname = kind, "../../etc/passwd"
            member.size = len(data) if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(data))
    raw = bytearray(stream.getvalue())
    for at, new in damage:
        raw[at : at + len(new)] = new
    path = tmp_path_factory.mktemp("archive") / "x.tar.gz"
    path.write_bytes(gzip.compress(bytes(raw), mtime=0))
    try:
        files = pins.unpack(path)
    except PackageError:
        files = {}
    for name in files:
        assert check_relative_path(name) == name
