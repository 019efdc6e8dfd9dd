"""A package of our own as a source distribution: no network is needed."""

from __future__ import annotations

import importlib.metadata
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from sandbox.repositories import pins

PIN = pins.Pin("shelf", "1.2", ("0" * 64,))

PRODUCT = '''"""Shelves."""


def widest(sizes, limit=100):
    """The widest size below `limit`."""
    best = None
    for size in sizes:
        if size < limit and (best is None or size > best):
            best = size
    return best


class Shelf:
    def __init__(self, room):
        self.room = room
        self.items = []

    def put(self, name, width):
        if width > self.left():
            raise ValueError("no room")
        self.items.append((name, width))
        return len(self.items)

    def left(self):
        return self.room - sum(width for _, width in self.items)


def never_called():
    return 1
'''

TESTS = """import pytest

from shelf import Shelf, widest


@pytest.mark.parametrize("sizes, expected", [([1, 5, 3], 5), ([], None), ([100, 7], 7), ([99, 99], 99)])
def test_widest(sizes, expected):
    assert widest(sizes) == expected


class TestShelf:
    def test_put(self):
        shelf = Shelf(10)
        assert shelf.put("a", 4) == 1
        assert shelf.put("b", 6) == 2

    def test_full(self):
        shelf = Shelf(3)
        with pytest.raises(ValueError):
            shelf.put("a", 4)

    def test_left(self):
        assert Shelf(3).left() == 3


def test_skipped():
    pytest.skip("not today")


@pytest.mark.xfail
def test_known_bug():
    assert widest([-1]) == 0


def test_broken_upstream():
    assert False


def test_of_the_moment(tmp_path_factory):
    import os
    assert os.getpid() >= 0
"""

FILES = {
    "shelf/__init__.py": PRODUCT,
    "tests/test_shelf.py": TESTS,
    "README.md": "# shelf\n",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-p no_such_plugin'\n",
    "PKG-INFO": "Metadata-Version: 2.1\nName: shelf\nVersion: 1.2\n",
    "shelf.egg-info/SOURCES.txt": "shelf/__init__.py\n",
}


def write_sdist(path: Path, files: Mapping[str, str | bytes], top: str = "shelf-1.2") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            data = text.encode() if isinstance(text, str) else text
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def put_toolchain(cache: Path) -> Path:
    """The test tools of packages, copied from the interpreter that runs these tests into a download cache."""
    target = pins.toolchain_folder(cache, os.path.realpath(sys.executable))
    target.mkdir(parents=True, exist_ok=True)
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        for file in importlib.metadata.files(name) or ():
            if ".." in file.parts or file.suffix == ".pyc":
                continue
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), target / file)
    byte_compile(target)
    return cache


def byte_compile(tools: Path) -> None:
    """As `pins.toolchain` does; without lexers and styles, which are most of the code and which no test run loads."""
    how = ("-q", "-x", "/(lexers|styles)/", "--invalidation-mode", "checked-hash", "-s", str(tools))
    subprocess.run([sys.executable, "-I", "-m", "compileall", *how, str(tools)], check=True, timeout=60)
