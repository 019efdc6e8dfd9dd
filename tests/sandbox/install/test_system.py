"""System packages below a prefix: what of an archive is laid out, and by which variables it is found."""

import io
import shutil
import subprocess
import tarfile

import pytest

from sandbox.backends.base import EndReason, ExecResult
from sandbox.install.recipes import diagnosis, system
from sandbox.install.recipes.system import PREFIX, SystemPackages, variables

TREE = {
    "usr/include/odd.h": "#define ODD 3\n",
    "usr/share/doc/odd/readme": "long\n",
    "etc/odd.conf": "x\n",
}


@pytest.fixture
def archive(tmp_path):
    """A package whose maintainer script must not run, made by the tools of the machine."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not on this machine")
    root = tmp_path / "odd"
    for path, text in TREE.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "usr/lib").mkdir()
    (root / "usr/lib/libodd.so").symlink_to("libodd.so.3")
    (root / "usr/lib/absolute").symlink_to("/etc/passwd")
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text(
        "Package: odd\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n"
    )
    (root / "DEBIAN/postinst").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (root / "DEBIAN/postinst").chmod(0o755)
    subprocess.run(["dpkg-deb", "--build", "-Znone", str(root), str(tmp_path / "odd_1_all.deb")], check=True)
    shutil.rmtree(root)
    return tmp_path / "odd_1_all.deb"


class Place:
    """A sandbox that keeps what is written to it and says yes to every command."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.commands: list[str] = []
        self.written: list[bytes] = []
        self.env = {"PATH": "/usr/bin"}
        self.box = self
        self.log = self.said.append

    async def write(self, path: str, content: bytes) -> None:
        self.written.append(content)

    async def exec(self, command: str, **_: object) -> ExecResult:
        self.commands.append(command)
        return ExecResult(0, EndReason.EXIT, b"", 0, 0.0, 0)

    async def export(self) -> None:
        self.commands.append("export")

    async def run(self, command: str, seconds: float) -> ExecResult:
        return await self.exec(command)


async def test_a_package_is_laid_below_the_prefix_and_its_scripts_do_not_run(archive, monkeypatch):
    async def downloaded(folder, names):
        assert list(names) == ["odd"]
        return [archive]

    monkeypatch.setattr(system, "download_archives", downloaded)
    place, packages = Place(), SystemPackages()
    assert await packages.provide(place, ["odd"])
    assert not await packages.provide(place, ["odd"])  # asked for once
    assert packages.provided == ["odd_1"] and not (archive.parent / "ran").exists()
    with tarfile.open(fileobj=io.BytesIO(place.written[0])) as laid:
        files = {m.name: m for m in laid if not m.isdir()}
    assert sorted(files) == ["usr/include/odd.h", "usr/lib/absolute", "usr/lib/libodd.so"]
    assert files["usr/lib/absolute"].linkname == f"{PREFIX}/etc/passwd"
    assert f"{PREFIX}/usr/include" in place.env["CPATH"] and place.env["PATH"].startswith("/usr/bin:")


async def test_what_apt_does_not_give_is_named_with_its_remedy():
    place = Place()
    assert not await SystemPackages().provide(place, ["no-such-package-here", "that has x.h; rm -rf /"])
    assert any("apt-get install -y no-such-package-here" in line for line in place.said)
    assert not place.commands


def test_the_variables_do_not_grow_when_more_is_laid_out():
    once = {"PATH": "/usr/bin"} | variables({"PATH": "/usr/bin"})
    assert variables(once)["PATH"] == once["PATH"]


@pytest.mark.parametrize(
    ("said", "packages"),
    [
        ("fatal error: libpq-fe.h: No such file or directory", ["libpq-dev"]),
        ("Package cairo was not found in the pkg-config search path.\nNo package 'glib-2.0' found",
         ["libcairo2-dev", "libglib2.0-dev"]),
        ("OSError: libsndfile.so.1: cannot open shared object file: No such file", ["libsndfile1"]),
        ("-- Could NOT find Freetype (missing: X)", ["libfreetype-dev"]),
        ("all is well", []),
    ],
)  # fmt: skip
def test_packages_by_the_words_of_a_build(said, packages):
    assert diagnosis.system_packages(said) == packages
