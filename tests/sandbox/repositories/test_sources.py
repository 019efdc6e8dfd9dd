"""Checkouts from git, uploads and source distributions: what is taken, what is refused, and that nothing runs."""

import io
import os
import random
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from pydantic import SecretStr

from sandbox.errors import PackageError, PackageUnavailable
from sandbox.network.guard import Guard
from sandbox.repositories import archives, git
from sandbox.repositories.licences import licence_of
from sandbox.repositories.sdist import from_archive
from sandbox.repositories.upload import from_upload
from tests.sandbox.shelf import write_sdist


def run(folder: Path, *words: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_GLOBAL": "/dev/null"}
    named = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *named, *words], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    run(folder, "init", "-q", "-b", "main")
    (folder / "shop.py").write_text("x = 1\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "LICENSE").write_text("Permission is hereby granted, free of charge, to any person obtaining a copy\n")
    run(folder, "add", "-A")
    run(folder, "commit", "-qm", "one")
    return folder


def test_a_commit_of_a_local_repository(repository, tmp_path):
    first = run(repository, "rev-parse", "HEAD")
    (repository / "shop.py").write_text("x = 2\n")
    run(repository, "commit", "-qam", "two")
    run(repository, "tag", "v2")
    path = str(git.check_path(str(repository), roots=(tmp_path,)))
    newest = git.fetch(path)
    assert newest.commit == run(repository, "rev-parse", "HEAD")
    assert newest.checkout.files["shop.py"].content == b"x = 2\n"
    assert newest.checkout.files["run.sh"].executable and not newest.checkout.files["shop.py"].executable
    assert (newest.checkout.name, newest.checkout.version) == ("shop", newest.commit[:12])
    assert licence_of(newest.checkout) == "MIT"
    assert git.fetch(path, revision="v2").commit == newest.commit
    assert git.fetch(path, revision=first).checkout.files["shop.py"].content == b"x = 1\n"


def test_nothing_of_a_repository_runs(repository, tmp_path):
    """Hooks, filters, a file-system monitor, an upload hook and a submodule: each would leave a file."""
    mark = tmp_path / "ran"
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    evil.chmod(0o755)
    (repository / ".gitattributes").write_text("*.py filter=evil export-ignore\n")
    (repository / ".gitmodules").write_text('[submodule "s"]\n\tpath = s\n\turl = ext::sh -c evil\n')
    (repository / "big.bin").write_bytes(git.LFS + b"\noid sha256:0\n")
    (repository / "link").symlink_to("/etc/passwd")
    head = run(repository, "rev-parse", "HEAD")
    run(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},s")
    run(repository, "add", ".gitattributes", ".gitmodules", "big.bin", "link")
    run(repository, "commit", "-qm", "evil")
    for hook in ("post-checkout", "reference-transaction", "post-merge", "pre-receive", "update"):
        target = repository / ".git" / "hooks" / hook
        target.parent.mkdir(exist_ok=True)
        target.write_text(evil.read_text())
        target.chmod(0o755)
    for key in ("filter.evil.smudge", "core.fsmonitor", "uploadpack.packObjectsHook", "core.sshCommand"):
        run(repository, "config", key, str(evil))
    found = git.fetch(str(repository))
    assert not mark.exists()
    assert "shop.py" in found.checkout.files and "link" not in found.checkout.files
    assert [note.split(" ", 1)[1][:9] for note in found.checkout.notes] == ["submodule", "files are", "symbolic "]


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("ssh://host/x", "not an https address"),
        ("file:///etc", "not an https address"),
        ("ext::sh -c id", "not an https address"),
        ("https://me:secret@example.org/x", "user or password"),
        ("https://127.0.0.1/x", "private address"),
        ("https://localhost/x", "private address"),
        ("https://example.org/x?y", "names no repository"),
        ("--upload-pack=id", "not an https"),
    ],
)  # fmt: skip
def test_addresses_that_are_refused(location, why):
    with pytest.raises(PackageError, match=why) as error:
        git.check_url(location)
    assert "secret" not in str(error.value)


def test_revisions_and_paths_that_are_refused(repository, tmp_path):
    with pytest.raises(PackageError, match="not a branch"):
        git.fetch(str(repository), revision="--upload-pack=id")
    with pytest.raises(PackageError, match="no such revision"):
        git.fetch(str(repository), revision="nowhere")
    with pytest.raises(PackageError, match="not below a folder"):
        git.check_path("/etc", roots=(tmp_path,))
    with pytest.raises(PackageError, match="no git repository"):
        git.check_path(str(tmp_path), roots=(tmp_path,))


def test_odd_names_are_refused_with_the_name(repository):
    with open(os.fsencode(repository) + b"/caf\xe9.txt", "wb") as file:
        file.write(b"x")
    run(repository, "add", "-A")
    run(repository, "commit", "-qm", "odd")
    with pytest.raises(PackageError, match=r"caf.*not UTF-8"):
        git.fetch(str(repository))


@pytest.mark.parametrize(
    ("bound", "value", "why"),
    [
        ("MAX_FILE_BYTES", 1000, "noise.bin is larger than 1000 bytes"),
        ("MAX_MEMBERS", 2, "the commit has 4 files"),
        ("MAX_TOTAL_BYTES", 200_000, "at most .* and 200000"),
        ("MAX_PACK_BYTES", 51_200, "the repository is larger than 51200 bytes"),
    ],
)
def test_a_repository_that_is_too_large_is_refused_with_the_bound(repository, monkeypatch, bound, value, why):
    """The last of the bounds is the kernel's: what is fetched does not fit the disk before anybody has looked at it."""
    (repository / "noise.bin").write_bytes(random.Random(0).randbytes(300_000))
    run(repository, "add", "-A")
    run(repository, "commit", "-qm", "large")
    monkeypatch.setattr(git, bound, value)
    with pytest.raises(PackageError, match=why):
        git.fetch(str(repository))


def test_text_that_is_not_utf_8_comes_as_it_is(repository):
    text = "# -*- coding: latin-1 -*-\nNAME = 'caf\xe9'\n".encode("latin-1")
    (repository / "odd.py").write_bytes(text)
    (repository / "setup.py").write_bytes(b"# caf\xe9\nfrom setuptools import setup\nsetup(name='shop', version='7')\n")
    run(repository, "add", "-A")
    run(repository, "commit", "-qm", "odd")
    found = git.fetch(str(repository)).checkout
    assert found.files["odd.py"].content == text
    assert found.setup_calls == {"name": "shop", "version": "7"}


def test_the_token_is_in_no_error(tmp_path):
    token = SecretStr("tok-123-secret")
    with pytest.raises(PackageUnavailable) as error:
        git.fetch("https://127.0.0.1:9/x.git", token=token, guard=Guard(frozenset({"127.0.0.1"})))
    assert "tok-123" not in str(error.value)


def test_uploads(tmp_path):
    plain = tmp_path / "a.zip"
    with zipfile.ZipFile(plain, "w") as archive:
        archive.writestr("top/x.py", "x = 1\n")
        archive.writestr("top/tests/test_x.py", "")
    assert set(from_upload(plain, name="a").files) == {"x.py", "tests/test_x.py"}
    loose = write_sdist(tmp_path / "b-1.tar.gz", {"x.py": "1", "y/z.py": "2"})
    assert set(from_upload(loose, name="b").files) >= {"x.py", "y/z.py"}


def _zip(path: Path, name: str, content: bytes = b"x", link: bool = False) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = (0o120777 if link else 0o100644) << 16
        archive.writestr(info, content)
        archive.writestr("top/ok.py", "x")
    return path


def _tar(path: Path, info: tarfile.TarInfo, content: bytes = b"") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return path


def test_uploads_that_are_refused(tmp_path, monkeypatch):
    link = tarfile.TarInfo("top/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"PK\x03\x04 nothing")
    bomb = _zip(tmp_path / "bomb.zip", "top/bomb", b"\0" * (33 << 20))
    cases = [
        (_zip(tmp_path / "slip.zip", "../../etc/x"), "unsafe or oversized"),
        (_zip(tmp_path / "root.zip", "/etc/x"), "unsafe or oversized"),
        (_zip(tmp_path / "link.zip", "top/link", b"/etc/passwd", link=True), "a link or device"),
        (_tar(tmp_path / "link.tar.gz", link), "a link or device"),
        (_tar(tmp_path / "slip.tar.gz", tarfile.TarInfo("../x"), b"x"), "unsafe or oversized"),
        (_tar(tmp_path / "odd.tar.gz", tarfile.TarInfo("top/caf\udce9"), b"x"), "not UTF-8|unsafe"),
        (broken, "not a readable archive"),
        (bomb, "unsafe or oversized"),
    ]
    for path, why in cases:
        with pytest.raises(PackageError, match=why):
            from_upload(path, name="x")
    good = _zip(tmp_path / "good.zip", "top/a.py", b"x" * 600)
    assert set(from_upload(good, name="x").files) == {"a.py", "ok.py"}
    for bound, value, why in (
        ("MAX_PACKED_BYTES", 100, "is larger than 100 bytes"), ("MAX_MEMBERS", 1, "more than 1 members"),
        ("MAX_TOTAL_BYTES", 600, "unpacks to more than 600 bytes"),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(archives, bound, value)
            with pytest.raises(PackageError, match=why):
                from_upload(good, name="x")


def test_the_age_of_a_source_distribution(tmp_path):
    path = tmp_path / "x-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, when in (("x-1.0/a.py", 1_300_000_000), ("x-1.0/b.py", 1_420_000_000)):
            info = tarfile.TarInfo(name)
            info.mtime = when
            archive.addfile(info, io.BytesIO(b""))
    found = from_archive(path)
    assert (found.name, found.version, found.year) == ("x", "1.0", 2014)
