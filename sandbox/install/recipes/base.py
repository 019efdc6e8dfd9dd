"""The interface between the installer and a language's recipe."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from sandbox.backends.base import ExecResult, Sandbox
from sandbox.grading.adapters.base import Order, TestRun
from sandbox.install.recipes import diagnosis
from sandbox.install.recipes.errors import InstallFailed
from sandbox.install.recipes.goals import Goal
from sandbox.network import RegistryPolicy
from sandbox.repositories.checkout import Checkout

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
    packages: tuple[str, ...] = ()
    """What was installed beside the checkout, `name==version`."""
    provenance: dict[str, str] = field(default_factory=dict)
    """Where parts come from that are neither of the checkout nor packages of its language."""
    left_out: int = 0
    """Tests of a long suite for which the tests of `order` stand."""
    run: TestRun | None = None
    """The last run of the suite in the installing sandbox."""
    problem: InstallFailed | None = None
    """Why the attempt fails although the package is installed."""


class Recipe(Protocol):
    """One language, deterministic: goals from project files, and one way to install per attempt."""

    language: str
    registries: RegistryPolicy
    """The registries that its installations need."""

    def applies(self, checkout: Checkout) -> bool: ...

    def goals(self, checkout: Checkout) -> list[Goal]:
        """Ten commands, written from project files alone."""
        ...

    async def install(self, box: Sandbox, checkout: Checkout, *, attempt: int, log: Log) -> Installed:
        """Install into the fresh sandbox `box`. Attempts count from 1 and differ. Raises InstallFailed, SandboxError."""
        ...

    async def clean(self, box: Sandbox, checkout: Checkout, installed: Installed, log: Log) -> None:
        """After the goals: take out what was made of the checkout itself and would give answers away. Raises InstallFailed."""
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


def build_failure(result: ExecResult, what: str) -> InstallFailed:
    """What a failed command says, with the reason and the remedy that its words name."""
    said = result.output.decode("utf-8", "replace")
    package = diagnosis.system_package(said)
    lines = [line.strip() for line in re.sub(r"(?i)(caused by:)\s*\n\s*", r"\1 ", said).splitlines()]
    lines = [line for line in lines if re.search(r"error|cause|because", line, re.IGNORECASE)]
    why = " / ".join(line[:200] for line in lines[-3:]) or said.strip()[-300:] or f"{result.ended}, no output"
    return InstallFailed(diagnosis.of_build(said), f"{what}: {why}", remedy=diagnosis.remedy(package))
