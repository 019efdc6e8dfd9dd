"""Start a throw-away Postgres and Valkey for the session, before Django reads its settings.

Loaded by `-p` in pyproject.toml (a conftest would be too late). With xdist the controller starts them and the
workers inherit the addresses; each worker gets a Valkey database and a data folder of its own, as pytest-django gives
it a Postgres database.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from scripts.stack import throwaway
from scripts.stack.errors import StackError

_open = contextlib.ExitStack()


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """A wrapper runs before every plain implementation of this hook, pytest-django's among them."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch's own threads do not survive a fork
    # Else every process that a test starts compiles all that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        base = os.environ["OPENCOMPOSER_REDIS_URL"].rsplit("/", 1)[0]
        # Valkey has 16 databases, 0 is the controller's.
        os.environ["OPENCOMPOSER_REDIS_URL"] = f"{base}/{1 + int(worker.removeprefix('gw')) % 15}"
        # Artifacts are named by row ids, which every worker's database counts from one.
        data = Path(os.environ["OPENCOMPOSER_DATA"]) / worker
        data.mkdir(exist_ok=True)
        os.environ["OPENCOMPOSER_DATA"] = str(data)
    elif not (early_config.known_args_namespace.help or early_config.known_args_namespace.version):
        try:
            os.environ.update(_open.enter_context(throwaway.services()))
        except StackError as error:
            raise pytest.UsageError(str(error)) from error
    return (yield)


def pytest_unconfigure() -> None:
    _open.close()
