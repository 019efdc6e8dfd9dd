"""What the scripts of `inside/` do, run by an interpreter of this machine over small checkouts and wheels."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sandbox.install.recipes.python.venv import INSIDE

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


def wheel(folder: Path, files: dict[str, str], more: str = "") -> Path:
    path = folder / "shop-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (files | {f"{INFO}/METADATA": f"Name: shop\nVersion: 1.0\n{more}"}).items():
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


@pytest.mark.parametrize(("summary", "same"), [("Sells", True), ("Steals", False)])
def test_where_there_is_no_python_to_compare_the_description_decides(tmp_path, summary, same):
    here = checkout(tmp_path / "repo", {"PKG-INFO": "Name: shop\nVersion: 1.0\nSummary: Sells\n", "src/lib.rs": ""})
    made = wheel(
        tmp_path, {"shop/shop.abi3.so": "\x7fELF", "shop/__init__.py": "from .shop import *\n"}, f"Summary: {summary}\n"
    )
    assert run("same_files.py", here, made)["same"] is same


def test_a_module_that_only_building_makes_is_put_into_the_checkout(tmp_path):
    """Compiled sources alone: what is imported is the checkout's all the same."""
    here = checkout(tmp_path / "repo", {"src/lib.rs": "", "tests/test_a.py": ""})
    made = wheel(tmp_path, {"shop/shop.abi3.so": "\x7fELF", "shop/__init__.py": "X = 1\n"})
    found, site = grafted(tmp_path, here, made)
    assert (found["roots"], found["kept"]) == (["."], [])
    assert (here / "shop/__init__.py").is_file() and not (site / "shop").exists()


def grafted(folder: Path, here: Path, made: Path) -> tuple[dict, Path]:
    """What graft.py says after a wheel was installed into an environment of its own, and where that keeps packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True, timeout=120)
    site = next((folder / "venv/lib").glob("python*/site-packages"))
    with zipfile.ZipFile(made) as archive:
        archive.extractall(site)
        (site / INFO / "RECORD").write_text("".join(f"{name},,\n" for name in archive.namelist()))
    return run("graft.py", here, made, python=str(folder / "venv/bin/python")), site


def test_what_building_rewrites_or_makes_is_in_the_checkout_afterwards(tmp_path):
    """Sources of an old Python that building translates, an extension module, a file with the version."""
    here = checkout(tmp_path / "repo", {"shop/__init__.py": "print '3'\n", "shop/fine.py": "X = 1\r\n"})
    found, site = grafted(tmp_path, here, wheel(tmp_path, BUILT))
    assert (found["roots"], found["kept"]) == (["."], [])
    assert (here / "shop/__init__.py").read_text() == "print('3')\n" and (here / "shop/fast.so").is_file()
    assert (here / "shop/fine.py").read_bytes() == b"X = 1\r\n"  # nothing but its line endings: left as it is
    assert not (site / "shop").exists() and run("owner.py", "shop", python=str(tmp_path / "venv/bin/python"))
