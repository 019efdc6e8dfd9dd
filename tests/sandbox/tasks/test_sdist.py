import gzip
import io
import tarfile

import pytest

from sandbox.tasks import sdist
from sandbox.tasks.errors import PackageError
from tests.sandbox.shelf import FILES, write_sdist


def test_the_locks_pin_version_and_hash():
    pins = sdist.read_lock()
    assert len(pins) >= 3
    assert set(sdist.read_lock(sdist.TOOLCHAIN_LOCK)) >= {"pytest", "pluggy"}
    assert all(len(digest) == 64 for pin in pins.values() for digest in pin.sha256)
    for lock in (sdist.PACKAGES_LOCK, sdist.TOOLCHAIN_LOCK):
        assert "://" not in lock.read_text()


@pytest.mark.parametrize("line", ["shelf\n", "shelf==1\n", "shelf --hash=sha256:aa\n"])
def test_an_unpinned_line_is_refused(tmp_path, line):
    (tmp_path / "x.lock").write_text(line)
    with pytest.raises(PackageError, match="pins no version or no hash"):
        sdist.read_lock(tmp_path / "x.lock")


def test_unpacking_leaves_out_what_packaging_added(tmp_path):
    archive = write_sdist(tmp_path / "shelf-1.2.tar.gz", {**FILES, "shelf/__pycache__/x.pyc": "", ".git/config": ""})
    assert set(sdist.unpack(archive)) == {"shelf/__init__.py", "tests/test_shelf.py", "README.md", "pyproject.toml"}
    assert sdist.metadata(archive).startswith(b"Metadata-Version")


def test_links_are_not_followed(tmp_path):
    path = tmp_path / "x.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        link = tarfile.TarInfo("x-1/evil")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        member = tarfile.TarInfo("x-1/a.py")
        tar.addfile(member, io.BytesIO())
    assert set(sdist.unpack(path)) == {"a.py"}


@pytest.mark.parametrize("name", ["../../evil.py", "a/../../../evil.py"])
def test_escaping_members_are_refused(tmp_path, name):
    with pytest.raises(PackageError, match="unsafe or oversized"):
        sdist.unpack(write_sdist(tmp_path / "x.tar.gz", {name: "x"}))


def test_bombs_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sdist, "MAX_TOTAL_BYTES", 1000)
    with pytest.raises(PackageError, match="more than 1000 bytes"):
        sdist.unpack(write_sdist(tmp_path / "x.tar.gz", {"a": "x" * 600, "b": "x" * 600}))
    monkeypatch.setattr(sdist, "MAX_FILE_BYTES", 100)
    with pytest.raises(PackageError, match="oversized"):
        sdist.unpack(write_sdist(tmp_path / "y.tar.gz", {"a": "x" * 101}))


@pytest.mark.parametrize(
    "data", [b"", b"not an archive", gzip.compress(b"not a tar", mtime=0)[:-4]], ids=["empty", "text", "cut"]
)
def test_broken_archives_are_refused(tmp_path, data):
    path = tmp_path / "x.tar.gz"
    path.write_bytes(data)
    with pytest.raises(PackageError, match=r"not a readable archive|holds no files"):
        sdist.unpack(path)
