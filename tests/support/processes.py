"""Server processes that are forked from one that has imported torch: each starts in tenths of a second.

Each is a process of its own, runs the same `-m` command and can be killed. What starts anew with Python itself is in the
tests of the stack.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from trainer.inference.embedded.serving.process import ServerProcess

PRELOADED = ["tests.support.preloaded"]


def forkserver() -> ForkServerContext:
    """Processes that need not import torch again. There is one server to fork from, so all name the same modules."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


class Forked:
    """What `subprocess.Popen` does of `python -m MODULE …`, as far as servers need it."""

    def __init__(
        self, command: Sequence[str], *, stdout: IO[bytes], stderr: IO[bytes], env: Mapping[str, str] | None = None
    ) -> None:
        assert list(command[:2]) == [sys.executable, "-m"] and stdout is stderr
        arguments = (list(command[2:]), os.path.abspath(stdout.name), dict(os.environ if env is None else env))
        self._process: ForkServerProcess = forkserver().Process(target=_become, args=arguments, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid
        self.args = list(command)

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


def _become(words: list[str], log: str, environment: dict[str, str]) -> None:
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    if threads := environment.get("OMP_NUM_THREADS"):
        import torch

        torch.set_num_threads(int(threads))  # torch was told by its own environment
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def fork_servers(server: type[ServerProcess]) -> None:
    """From now on, such servers are forked."""
    server.launch = Forked  # type: ignore[assignment]
