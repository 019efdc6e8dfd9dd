"""A team's own repository, and everything that turns it into tasks: a registry on the loopback and real workers.

The registry serves the test tools of the interpreter that runs these tests, so nothing is fetched from anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from composer_web.celery import app
from sandbox.network.upstream import SETTINGS
from tests.sandbox.install.tools import STEPS, TOTAL, add_tools
from tests.sandbox.network.local_registry import LocalRegistry
from tests.web.product import Product

NAME = "abacus"
START_SECONDS = 120.0
MORE = '''def largest(numbers, below=100):
    """The largest number that is less than `below`."""
    best = None
    for number in numbers:
        if number < below and (best is None or number > best):
            best = number
    return best


def tally(words, least=1):
    """How often each word occurs, at least `least` times."""
    found = {}
    for word in words:
        found[word] = found.get(word, 0) + 1
    return {word: count for word, count in found.items() if count >= least}
'''
SOURCE = "\n\n".join(('"""Small sums."""\n', STEPS, MORE, TOTAL))
TESTS = """import pytest

from abacus import largest, steps, tally, total


@pytest.mark.parametrize("stop", range(4))
def test_steps(stop):
    assert steps(0, stop) == list(range(stop))


def test_steps_by_two():
    assert steps(1, 7, 2) == [1, 3, 5]


@pytest.mark.parametrize("numbers, expected", [([1, 5, 3], 5), ([], None), ([100, 7], 7), ([99, 98], 99)])
def test_largest(numbers, expected):
    assert largest(numbers) == expected


def test_tally():
    assert tally(["a", "b", "a"]) == {"a": 2, "b": 1}


def test_tally_of_frequent_words():
    assert tally(["a", "b", "a"], least=2) == {"a": 2}


def test_total():
    assert total([1, 2, 3]) == 6
"""
FILES = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    '[project]\nname = "abacus"\nversion = "1.0"\nlicense = "MIT"\nrequires-python = ">=3.8"\n',
    "README.md": "# abacus\n",
    "src/abacus/__init__.py": SOURCE,
    "tests/test_abacus.py": TESTS,
}


def write_repository(folder: Path) -> Path:
    """A git repository of one commit."""
    for path, text in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "abacus"]):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    return folder


@contextlib.contextmanager
def registry() -> Iterator[str]:
    """Address of an index with the tools that an installation needs; it runs in a thread of its own."""
    ready, address = threading.Event(), []

    async def serve(end: asyncio.Event) -> None:
        async with LocalRegistry() as made:
            add_tools(made)
            address.append(made.index)
            ready.set()
            await end.wait()

    loop, end = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(end),), name="registry", daemon=True)
    thread.start()
    assert ready.wait(START_SECONDS), "the registry did not start"
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(START_SECONDS)
        loop.close()


@contextlib.contextmanager
def workers(folder: Path, port: int, *, roots: Path, index: str) -> Iterator[Product]:
    """The inference server, one Celery worker for all queues, and what sends again what was lost; messages of earlier tests
    are forgotten first."""
    app.control.purge()
    made = Product(
        folder, port, **{SETTINGS["python"]: index, "OPENCOMPOSER_GIT_ROOTS": str(roots), "NO_PROXY": "127.0.0.1"}
    )
    queues = ["-Q", "control,io,maintenance,rollout,eval,build", "-c", "4", "-n", f"walk-{os.getpid()}@%h"]
    made.commands["workers"] = [
        *("-m", "celery", "-A", "composer_web", "worker", "--without-gossip", "--without-mingle", "--pool", "threads"),
        *queues,
    ]
    for name in ("inference", "workers", "beat"):
        made.start(name)
    try:
        yield made
    finally:
        made.stop()
