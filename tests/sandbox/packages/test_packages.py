import subprocess
import sys

import pytest

from sandbox.errors import PackageError, PackageUnavailable, PackageWithoutTests
from sandbox.generators.__main__ import main
from sandbox.packages.build import build_packages, source_roots, top_level_modules
from sandbox.repositories.history import TreeFile
from tests.sandbox.shelf import FILES

pytestmark = pytest.mark.integration

STABLE = {
    "tests/test_shelf.py::test_widest[sizes0-5]",
    "tests/test_shelf.py::test_widest[sizes1-None]",
    "tests/test_shelf.py::test_widest[sizes2-7]",
    "tests/test_shelf.py::test_widest[sizes3-99]",
    "tests/test_shelf.py::TestShelf::test_put",
    "tests/test_shelf.py::TestShelf::test_full",
    "tests/test_shelf.py::TestShelf::test_left",
    "tests/test_shelf.py::test_of_the_moment",
}


def test_only_tests_that_really_pass_are_kept(built):
    assert set(built.tests) == STABLE
    assert all(0 <= seconds < 5 for seconds in built.tests.values())


def test_coverage_names_functions_and_the_tests_that_enter_them(built):
    lines = FILES["shelf/__init__.py"].split("\n")
    line_of = {
        name: next(i for i, text in enumerate(lines, 1) if f"def {name}(" in text) for name in ("widest", "put", "left")
    }
    assert {t for t in STABLE if "test_widest" in t} == set(built.covered[f"shelf/__init__.py:{line_of['widest']}"])
    assert set(built.covered[f"shelf/__init__.py:{line_of['put']}"]) == {
        "tests/test_shelf.py::TestShelf::test_put",
        "tests/test_shelf.py::TestShelf::test_full",
    }
    assert not any("never_called" in place for place in built.covered)


def test_the_checkout_holds_no_packaging_artefacts(built, environments):
    repo = environments.repository(built.environment.digest)
    assert sorted(p.name for p in repo.iterdir()) == ["README.md", "pyproject.toml", "shelf", "tests"]


async def test_a_user_can_work_in_it(built, environments, backend):
    async with await backend.start(environments.spec(built.environment)) as sandbox:
        looks = "python -c 'import shelf; print(shelf.__file__)'; which pytest; git status --short; git rev-list --count HEAD"
        run = await sandbox.exec(looks)
        assert run.output.decode() == "/home/dev/repo/shelf/__init__.py\n/home/dev/.venv/bin/pytest\n1\n"
        tests = await sandbox.exec("pytest -q -o addopts= -k 'widest or TestShelf'")
        assert b"7 passed" in tests.output
        version = await sandbox.exec("python -c 'import importlib.metadata as m; print(m.version(\"shelf\"))'")
        assert version.output == b"1.2\n"


@pytest.mark.parametrize(
    ("files", "cause"),
    [
        ({"shelf/__init__.py": "x = 1\n"}, "carries no tests"),
        (
            {"shelf/__init__.py": "x = 1\n", "test_x.py": "def test_a():\n    assert False\n"},
            "none of its 1 tests passes",
        ),
        ({"shelf/__init__.py": "x = 1\n", "test_x.py": "import numpy_not_there\n"}, "cannot be collected"),
        ({"shelf/__init__.py": "x = 1\n", "test_x.py": "import os\nos._exit(0)\n"}, "did not end"),
    ],
)
async def test_a_package_without_usable_tests(build, environments, files, cause):
    before = {p.name for p in (environments.root / "tmp").iterdir()}
    with pytest.raises(PackageWithoutTests, match=cause) as error:
        await build(files)
    assert "shelf 1.2" in str(error.value) and error.value.remedy
    assert {p.name for p in (environments.root / "tmp").iterdir()} == before


async def test_flaky_tests_are_named_and_not_used(build, environments):
    """The second test fails in one of the three runs only: the one that watches which functions are entered."""
    flaky = "import sys\n\ndef test_a():\n    assert True\n\ndef test_b():\n    assert sys.getprofile() is None\n"
    made = await build({"shelf/__init__.py": "x = 1\n", "test_x.py": flaky})
    assert set(made.tests) == {"test_x.py::test_a"}
    assert made.flaky == ("test_x.py::test_b",)
    assert environments.manifest(made.environment.digest).flaky == made.flaky


async def test_a_package_that_the_system_has_anyway_gives_fixes_away(build):
    files = {"json/__init__.py": "x = 1\n", "test_x.py": "def test_a(): pass\n"}
    with pytest.raises(PackageError, match="already has json"):
        await build(files)


async def test_unknown_packages_are_refused_with_the_known_ones(environments, backend):
    with pytest.raises(PackageError, match=r"not in the lock: left-pad.*inflection"):
        await build_packages(environments, ["left-pad"], backend=backend)


async def test_no_network_and_no_cache(environments, backend, tmp_path, monkeypatch):
    """pip itself, told that there is no index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(PackageUnavailable, match="inflection is not in the cache and cannot be fetched") as error:
        await build_packages(environments, ["inflection"], backend=backend, cache=tmp_path / "empty")
    assert "Connect this machine" in error.value.remedy


def test_the_command_line_reports_errors_in_one_line(tmp_path, capsys):
    assert main(["--data", str(tmp_path), "left-pad"]) == 1
    assert capsys.readouterr().err == (
        "error: not in the lock: left-pad. Known are cachetools, inflection, parse, toolz\n"
    )


def test_where_sources_lie():
    flat = {"shelf/__init__.py": TreeFile(b""), "setup.py": TreeFile(b""), "tests/__init__.py": TreeFile(b"")}
    assert source_roots(flat) == (".",)
    assert top_level_modules(flat, (".",)) == ["shelf"]
    src = {"src/shelf/__init__.py": TreeFile(b""), "src/one.py": TreeFile(b""), "tests/__init__.py": TreeFile(b"")}
    assert source_roots(src) == ("src",)
    assert top_level_modules(src, ("src",)) == ["one", "shelf"]


@pytest.fixture
def index(tmp_path):
    """Skips when pip cannot reach a package index."""
    options = ["--quiet", "--no-deps", "--retries", "0", "--timeout", "10", "--dest", str(tmp_path / "trial")]
    command = [sys.executable, "-m", "pip", "download", *options, "iniconfig==2.3.1"]
    if subprocess.run(command, capture_output=True, timeout=90).returncode:
        pytest.skip("the package index cannot be reached from here")


@pytest.mark.slow
async def test_a_real_package_from_the_index(index, environments, backend, tmp_path, monkeypatch):
    cache = tmp_path / "downloads"
    (built,) = await build_packages(environments, ["inflection"], backend=backend, cache=cache)
    assert built.version == "0.5.1" and len(built.tests) > 400 and not built.flaky
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (again,) = await build_packages(environments, ["inflection"], backend=backend, cache=tmp_path / "nothing")
    assert again == built
