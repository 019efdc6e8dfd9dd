"""What a language's recipe is to the installer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sandbox.backends.base import ExecResult, Sandbox
from sandbox.grading.adapters.base import Order, TestRun
from sandbox.install.checkout import Checkout
from sandbox.install.errors import InstallFailed
from sandbox.install.goals import Goal

Log = Callable[[str], None]
"""Takes one line (or a few) of the live log. Raises InstallCancelled when the work is to stop."""
LOG_CHARS = 4000


@dataclass(frozen=True, slots=True)
class Installed:
    """What an attempt left in its sandbox: how to run the tests there."""

    framework: str
    order: Order
    """The whole suite."""
    env: dict[str, str]
    """Variables that every command of the environment has."""
    python: str = "python3"
    source_roots: tuple[str, ...] = (".",)
    modules: tuple[str, ...] = ()
    test_command: str = ""
    """For people."""
    run: TestRun | None = None
    """The last run of the suite in the installing sandbox."""
    problem: InstallFailed | None = None
    """Why the attempt fails although the package is installed."""


class Recipe(Protocol):
    """One language, deterministic: goals from project files, and one way to install per attempt."""

    language: str

    def applies(self, checkout: Checkout) -> bool: ...

    def goals(self, checkout: Checkout) -> list[Goal]:
        """Ten commands, written from project files alone."""
        ...

    async def install(self, box: Sandbox, checkout: Checkout, *, attempt: int, log: Log) -> Installed:
        """Install into the fresh sandbox `box`. Attempts count from 1 and differ. Raises InstallFailed, SandboxError."""
        ...


async def step(
    box: Sandbox, command: str, log: Log, *, seconds: float, env: dict[str, str] | None = None
) -> ExecResult:
    """Run one command of an installation and write it, and the end of what it said, to the log."""
    log(f"$ {command}" if len(command) < 1000 else f"$ {command[:1000]} …")
    result = await box.exec(command, timeout=seconds, keep_state=False, env=env)
    said = result.output.decode("utf-8", "replace").strip()
    if said:
        log(said[-LOG_CHARS:])
    if result.exit_code != 0:
        log(f"→ {result.ended}, exit code {result.exit_code}, {result.seconds:.1f} s")
    return result
