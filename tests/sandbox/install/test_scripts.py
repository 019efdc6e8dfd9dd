"""What the scripts of `inside/` do, run by an interpreter of this machine over small checkouts and wheels."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sandbox.install.python.venv import INSIDE

INFO = "shop-1.0.dist-info"
BUILT = {
    "shop/__init__.py": "print('3')\n",
    "shop/fine.py": "X = 1\n",
    "shop/fast.so": "\x7fELF",
    "shop/_version.py": "V = 1\n",
}


def run(name: str, *arguments: Path | str, python: str = sys.executable) -> dict:
    text = (INSIDE / name).read_text()
    done = subprocess.run([python, "-c", text, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def wheel(folder: Path, files: dict[str, str]) -> Path:
    path = folder / "shop-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (files | {f"{INFO}/METADATA": "Name: shop\nVersion: 1.0\n"}).items():
            archive.writestr(name, text)
    return path


def checkout(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, newline="")
    return folder


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"src/shop/fine.py": "X = 1\r\n"}, True),  # line endings are no difference
        ({"src/shop/fine.py": "X = 2\n"}, False),
        ({"src/shop/fine.py": None, "src/shop/__init__.py": None}, False),  # another project of the same name
    ],
)
def test_a_published_wheel_counts_only_if_it_is_of_these_files(tmp_path, change, same):
    files = {"src/shop/__init__.py": "print('3')\n", "src/shop/fine.py": "X = 1\n", "README": ""} | change
    here = checkout(tmp_path / "repo", {name: text for name, text in files.items() if text is not None})
    assert run("same_files.py", here, wheel(tmp_path, BUILT))["same"] is same


def test_what_building_rewrites_or_makes_is_in_the_checkout_afterwards(tmp_path):
    """Sources of an old Python that building translates, an extension module, a file with the version."""
    here = checkout(tmp_path / "repo", {"shop/__init__.py": "print '3'\n", "shop/fine.py": "X = 1\r\n"})
    made = wheel(tmp_path, BUILT)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True, timeout=120)
    site = next((tmp_path / "venv/lib").glob("python*/site-packages"))
    with zipfile.ZipFile(made) as archive:
        archive.extractall(site)
        (site / INFO / "RECORD").write_text("".join(f"{name},,\n" for name in archive.namelist()))
    found = run("graft.py", here, made, python=str(tmp_path / "venv/bin/python"))
    assert (found["roots"], found["kept"]) == (["."], [])
    assert (here / "shop/__init__.py").read_text() == "print('3')\n" and (here / "shop/fast.so").is_file()
    assert (here / "shop/fine.py").read_bytes() == b"X = 1\r\n"  # nothing but its line endings: left as it is
    assert not (site / "shop").exists() and run("owner.py", "shop", python=str(tmp_path / "venv/bin/python"))
