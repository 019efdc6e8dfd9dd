"""A stack of its own for each test that asks for one, in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.stack import environment, processes
from scripts.stack.layout import REPOSITORY, Layout
from scripts.stack.lifecycle import bring_down


def wait_until(condition: Callable[[], bool], *, seconds: float = 20.0, what: str = "the condition") -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not come true within {seconds:g} s")
        time.sleep(0.05)


def clean_environment() -> dict[str, str]:
    """Ours without the addresses of the test session's throw-away services."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OPENCOMPOSER_")}


@dataclass(frozen=True)
class Stack:
    """The command line of a stack in its own data folder."""

    data: Path

    @property
    def layout(self) -> Layout:
        return Layout.open(self.data)

    @property
    def variables(self) -> dict[str, str]:
        return environment.read(self.layout)

    def environment(self, **extra: str) -> dict[str, str]:
        return {**clean_environment(), "OPENCOMPOSER_DATA": str(self.data), **extra}

    def command(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "scripts.stack", *arguments],
            cwd=REPOSITORY,
            env=self.environment(**extra),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def processes(self) -> list[int]:
        return processes.of_stack(self.layout, environment.read_mark(self.layout))


@contextlib.contextmanager
def own_stack() -> Iterator[Stack]:
    folder = Path(tempfile.mkdtemp(prefix="oc-stack-"))
    yield Stack(folder)
    bring_down(Layout.open(folder))
    shutil.rmtree(folder)


def up(stack: Stack) -> Stack:
    done = stack.command("up", "--only-services", "--detach")
    assert done.returncode == 0, done.stderr
    return stack


@pytest.fixture
def stack() -> Iterator[Stack]:
    with own_stack() as made:
        yield made


@pytest.fixture
def services(stack: Stack) -> Stack:
    return up(stack)


@pytest.fixture(scope="module")
def standing() -> Iterator[Stack]:
    """Services that run before and after each test."""
    with own_stack() as made:
        yield up(made)
